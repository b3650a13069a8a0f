"""The two ceremonies of WebAuthn Level 3: registration (7.1) and authentication (7.2).

The only module that uses the WebAuthn library, whose parsers receive untrusted input and may raise
exceptions of any kind for it. Functions import it: it takes 50 ms and 5 MB, which most processes
never need.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from service.access.passkeys.challenges import (
    CHALLENGE_LIFETIME,
    RegistrationChallenge,
    SignInChallenge,
    raw,
)
from service.access.sign_in.relying_party import NAME, RelyingParty
from service.store.tables import Passkey

if TYPE_CHECKING:
    from webauthn.helpers.cose import COSEAlgorithmIdentifier
    from webauthn.helpers.structs import AuthenticationCredential, PublicKeyCredentialDescriptor

CREDENTIAL_ID_BYTES_MAX: Final = 1023
"""WebAuthn Level 3, 7.1, step 25."""

_FAULT_CHARS_MAX: Final = 200
_TIMEOUT_MS: Final = int(CHALLENGE_LIFETIME.total_seconds() * 1000)


class NotProved(Exception):
    """A credential was not accepted."""

    @property
    def fault(self) -> str:
        """Why, only for the log: it may repeat untrusted input."""
        return str(self)[:_FAULT_CHARS_MAX]


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential created by an authenticator."""

    id: str
    public_key: bytes
    sign_count: int
    transports: list[str]


@dataclass(frozen=True, slots=True)
class Assertion:
    """An answer to a sign-in's challenge, not yet verified."""

    unverified_id: str
    unverified_user_handle: str | None
    _credential: "AuthenticationCredential"


def creation_options(
    party: RelyingParty, challenge: RegistrationChallenge, user_name: str, own: Sequence[Passkey]
) -> Mapping[str, Any]:
    """Options to create a discoverable passkey on an authenticator that has none of `own`."""
    import webauthn.helpers.structs

    structs = webauthn.helpers.structs
    options = webauthn.generate_registration_options(
        rp_id=party.id,
        rp_name=NAME,
        user_id=raw(challenge.user_handle),
        user_name=user_name,
        user_display_name=user_name,
        challenge=raw(challenge.id),
        timeout=_TIMEOUT_MS,
        attestation=structs.AttestationConveyancePreference.NONE,
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.REQUIRED,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=[_descriptor(passkey) for passkey in own],
        supported_pub_key_algs=_algorithms(),
    )
    return webauthn.helpers.options_to_json_dict(options)


def request_options(party: RelyingParty, challenge: SignInChallenge) -> Mapping[str, Any]:
    """Options to sign in with any passkey of this service, with user verification."""
    import webauthn.helpers.structs

    options = webauthn.generate_authentication_options(
        rp_id=party.id,
        challenge=raw(challenge.id),
        timeout=_TIMEOUT_MS,
        allow_credentials=[],
        user_verification=webauthn.helpers.structs.UserVerificationRequirement.REQUIRED,
    )
    return webauthn.helpers.options_to_json_dict(options)


def check_registration(
    party: RelyingParty, challenge: RegistrationChallenge, sent: object
) -> NewCredential:
    """Verify `sent` as the answer to `challenge`; its credential. Raises NotProved."""
    import webauthn.helpers

    with _not_proved():
        credential = webauthn.helpers.parse_registration_credential_json(_object(sent))
        _refuse_framed(credential.response.client_data_json)
        made = webauthn.verify_registration_response(
            credential=credential,
            expected_challenge=raw(challenge.id),
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_presence=True,
            require_user_verification=True,
            supported_pub_key_algs=_algorithms(),
        )
        # Otherwise the owner would notice an unusable key only at the next sign-in.
        webauthn.helpers.decoded_public_key_to_cryptography(
            webauthn.helpers.decode_credential_public_key(made.credential_public_key)
        )
    if len(made.credential_id) > CREDENTIAL_ID_BYTES_MAX:
        raise NotProved("credential id too long")
    transports = credential.response.transports or []
    return NewCredential(
        webauthn.helpers.bytes_to_base64url(made.credential_id),
        made.credential_public_key,
        made.sign_count,
        sorted({transport.value for transport in transports}),
    )


def read_assertion(sent: object) -> Assertion:
    """Parse `sent`, without verifying it. Raises NotProved."""
    import webauthn.helpers

    with _not_proved():
        credential = webauthn.helpers.parse_authentication_credential_json(_object(sent))
        handle = credential.response.user_handle
        return Assertion(
            webauthn.helpers.bytes_to_base64url(credential.raw_id),
            None if handle is None else webauthn.helpers.bytes_to_base64url(handle),
            credential,
        )


def check_assertion(
    party: RelyingParty, challenge: SignInChallenge, assertion: Assertion, public_key: bytes
) -> int:
    """Verify `assertion` as the answer to `challenge`; its signature counter.

    Raises NotProved.
    """
    import webauthn

    with _not_proved():
        _refuse_framed(assertion._credential.response.client_data_json)
        verified = webauthn.verify_authentication_response(
            credential=assertion._credential,
            expected_challenge=raw(challenge.id),
            expected_rp_id=party.id,
            expected_origin=party.origin,
            credential_public_key=public_key,
            # Compared by `has_grown`, after the signature over the new one is verified.
            credential_current_sign_count=0,
            require_user_verification=True,
        )
    return verified.new_sign_count


def has_grown(before: int, after: int) -> bool:
    """False if two authenticators seem to hold the same key (WebAuthn Level 3, 6.1.1).

    An authenticator without a counter always sends 0, as those of synchronised passkeys do.
    """
    return after > before or before == after == 0


def _descriptor(passkey: Passkey) -> "PublicKeyCredentialDescriptor":
    from webauthn.helpers.structs import AuthenticatorTransport, PublicKeyCredentialDescriptor

    transports = [AuthenticatorTransport(transport) for transport in passkey.transports]
    return PublicKeyCredentialDescriptor(id=raw(passkey.id), transports=transports)


def _algorithms() -> "list[COSEAlgorithmIdentifier]":
    """Algorithms of common authenticators; Windows Hello uses the last one."""
    from webauthn.helpers.cose import COSEAlgorithmIdentifier

    return [
        COSEAlgorithmIdentifier.EDDSA,
        COSEAlgorithmIdentifier.ECDSA_SHA_256,
        COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
    ]


def _object(sent: object) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise NotProved("no object")
    return sent


def _refuse_framed(client_data: bytes) -> None:
    """Raise NotProved for an answer from a frame of another site: our pages are never framed."""
    import webauthn.helpers

    if webauthn.helpers.parse_client_data_json(client_data).cross_origin:
        raise NotProved("answered in a frame of another site")


@contextmanager
def _not_proved() -> Iterator[None]:
    """Raise NotProved for any exception in the block: the answer's input causes it."""
    try:
        yield
    except NotProved:
        raise
    except Exception as error:
        raise NotProved(f"{type(error).__name__}: {error}") from error
