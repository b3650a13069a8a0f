"""What is kept of a CI token matches the bindings that the token itself matches."""

from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.ci.issuers.issuers import Issuer, load_issuers
from service.ci.providers import CONDITION_CLAIMS
from service.ci.verifier.attribution import Attribution, ProvedJob
from service.ci.verifier.candidates import BindingTerms, candidates_of
from service.ci.verifier.claims import Claims
from service.ci.verifier.codes import TokenRejected
from service.ci.verifier.rules import VerificationContext, match_binding
from service.core.settings import REPOSITORY

AUDIENCE = "countersign"


def issuers() -> list[Issuer]:
    """One of each provider, with the claims that the issuers file names for it."""
    text = (REPOSITORY / "data" / "issuers.toml").read_text()
    with NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text.replace("accepted = false", "accepted = true"))
        file.flush()
        return list(load_issuers(Path(file.name)).values())


ISSUERS = issuers()
VALUES = st.sampled_from(["", "1", "41", "push", "schedule", "x" * 300, 41, None, True, ["push"]])


def match(claims: Claims, issuer: Issuer, context: VerificationContext) -> str:
    """The id of the binding that these claims match, or how they are rejected."""
    try:
        return match_binding(claims, context)[1].id
    except TokenRejected as rejection:
        return str(rejection)


@pytest.mark.parametrize("issuer", ISSUERS, ids=[issuer.name for issuer in ISSUERS])
@given(data=st.data())
def test_kept_claims_match_as_the_token_did(issuer: Issuer, data: st.DataObject) -> None:
    names = {
        name
        for name in (
            issuer.repository_id_claim,
            issuer.event_name_claim,
            issuer.run_id_claim,
            issuer.token_id_claim,
        )
        if name is not None
    }
    members: dict[str, Any] = {name: data.draw(VALUES, name) for name in sorted(names)}
    conditions = CONDITION_CLAIMS[issuer.provider]
    members |= {name: data.draw(VALUES, name) for name in conditions}
    claims = Claims({**members, "iss": issuer.url, "aud": [AUDIENCE], "sub": "job"})
    bindings = [
        BindingTerms(
            f"b{number}", None, None, issuer.url, "job", repository, events, "org_admin", wanted
        )
        for number, (repository, events, wanted) in enumerate(
            data.draw(
                st.lists(
                    st.tuples(
                        st.sampled_from([None, "1", "41"]),
                        st.sampled_from([[], ["push"], ["schedule", "push"]]),
                        st.sampled_from([None, {conditions[0]: "push"}, {conditions[1]: "1"}]),
                    ),
                    max_size=3,
                )
            )
        )
    ]
    context = VerificationContext({issuer.url: issuer}, AUDIENCE, candidates_of(bindings))
    attribution = Attribution(issuer, "b0", claims, None, 0)
    kept = attribution.ci

    job = ProvedJob(issuer.url, kept, attribution.condition_claims)
    after = job.claims(issuer, AUDIENCE)

    assert match(after, issuer, context) == match(claims, issuer, context)
    assert Attribution(issuer, "b0", after, None, 0).ci == kept
