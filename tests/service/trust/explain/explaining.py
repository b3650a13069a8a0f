"""What the tests of explanations share: acme's bindings, and tokens explained over HTTP."""

from dataclasses import dataclass
from typing import Any

from joserfc.jwk import RSAKey

from service.ci.issuers.issuers import Issuer as KnownIssuer
from service.ci.issuers.jwks import SigningKey, SigningKeys
from service.ci.issuers.key_source import KeysFor
from service.trust.bindings.services import BindingServices
from service.trust.explain.explain_api import (
    ExplainedToken,
    ExplainInput,
    explain_input,
    explanation_form,
)
from tests.conftest import World, bindings_path, refused
from tests.issuers.issuer import Issuer


def explain_path(slug: str = "acme") -> str:
    return f"{bindings_path(slug)}/explain"


async def explained(world: World, **body: Any) -> dict[str, Any]:
    """What the API says of `body`."""
    answer = await world.client.post(explain_path(), headers=world.admin, json=body)
    assert answer.status_code == 200, await answer.get_data(as_text=True)
    return await answer.get_json()


async def explained_claims(world: World, issuer: Issuer, **changes: Any) -> dict[str, Any]:
    """What the API says of the claims of a good token with `changes`."""
    return await explained(world, claims=issuer.claims(**changes))


@dataclass
class Keys:
    """Serves an issuer's public key to explanations, and counts how often it was asked."""

    issuer: Issuer
    fault: str | None = None
    asked: int = 0

    async def __call__(self, issuer: KnownIssuer, unverified_kid: str | None) -> SigningKeys:
        self.asked += 1
        if self.fault is not None:
            return SigningKeys(fault=self.fault)
        return published(self.issuer)


def published(issuer: Issuer) -> SigningKeys:
    keys = {jwk["kid"]: RSAKey.import_key(jwk) for jwk in issuer.jwks["keys"]}
    return SigningKeys({kid: SigningKey(key, frozenset({"RS256"})) for kid, key in keys.items()})


async def explained_token(world: World, token: str, keys: KeysFor) -> ExplainedToken:
    """What is said of `token` with the issuer's `keys`."""
    own = world.services
    services = BindingServices(
        own.settings, own.clock, own.access, own.store, own.issuers, keys_for=keys
    )
    asked = ExplainInput(token, has_signature=True)
    return explanation_form(await explain_input(services, asked, world.acme))


async def follow(world: World, proposal: dict[str, Any]) -> str:
    """Do what a proposal says, to the letter; the id of the binding that came of it."""
    replaced = proposal["replaces"]
    path = bindings_path() if replaced is None else f"{bindings_path('acme', replaced)}/replace"
    answer = await world.client.post(path, headers=world.admin, json=proposal["body"])
    assert answer.status_code == 201, await refused(answer)
    return (await answer.get_json())["id"]


def failing(explanation: dict[str, Any]) -> dict[str, Any] | None:
    failed = [rule for rule in explanation["rules"] if rule["status"] == "failed"]
    assert len(failed) <= 1
    return failed[0] if failed else None


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in texts(one)]
