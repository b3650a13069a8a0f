"""`countersign bindings rejected`: what the operator sees of tokens that were rejected."""

import pytest

from service.app.composition import Services
from service.ci.verifier.codes import FailureCode
from service.core.clock import utc_now
from service.store.organisations import get_org
from tests.service.trust.rejected.notes import rejection

pytestmark = pytest.mark.slow

LIST = ("bindings", "rejected", "--org", "acme")
SUB = "repo:acme/payments:ref:refs/heads/main"
HOSTILE = "repo:evil/\x1b[2J\x07\r\nrepo:acme"


async def reject(services: Services) -> None:
    """One verified and one made-up subject."""
    async with services.store.read() as session:
        acme = await get_org(session, "acme")
    now = utc_now()
    services.rejected.record(rejection(acme.id, at=now))
    services.rejected.record(
        rejection(
            acme.id, at=now, is_verified=False, code=FailureCode.SIGNATURE_INVALID, sub=HOSTILE
        )
    )
    await services.rejected.flush()


def test_both_kinds_are_listed_and_told_apart(home):
    home.change(reject)

    everything = home.ask(*LIST)
    (verified,) = home.ask(*LIST, "--verified")["rejected"]
    (unverified,) = home.ask(*LIST, "--unverified")["rejected"]

    assert (everything["org"], everything["count"]) == ("acme", 2)
    assert (verified["verified"], verified["subject"]) == (
        True,
        SUB,
    )
    assert (unverified["verified"], unverified["subject"], unverified["proposal"]) == (
        False,
        HOSTILE,
        None,
    )
    assert home.ask(*LIST, "--code", "signature_invalid")["rejected"] == [unverified]
    assert home.ask(*LIST, "--limit", "1")["count"] == 1


def test_people_see_what_to_send_and_nothing_a_terminal_obeys(home):
    home.change(reject)

    ran = home.order(*LIST)

    assert ran.code == 0
    assert not [one for one in ran.out if not one.isprintable() and one != "\n"]
    assert "repo:evil/\\x1b[2J\\x07\\r\\nrepo:acme" in ran.out
    assert f"What would make {SUB} trusted:" in ran.out
    assert "check that both are yours" in ran.out
    (body,) = [line for line in ran.out.splitlines() if line.startswith("    -d ")]
    assert '"repository_id": "123456789"' in body


def test_an_unknown_organisation_is_refused(home):
    """An empty list would look as if all were well."""
    ran = home.order("bindings", "rejected", "--org", "nowhere")

    assert (ran.code, ran.err) == (1, "countersign: Org not found\n")
