"""Verifiers that were not written here accept our proofs, and nothing that was changed."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from analytics.evidence.notes import Checkpoint, Note, inclusion_text, sign
from tests.budgets import budget, only_full
from tests.evidence.cases import Case, Consistency, Inclusion
from tests.evidence.logs import Log
from tests.evidence.verifiers import OTHERS, OtherVerifier

pytestmark = [pytest.mark.slow, only_full]

SIZES = [1, 2, 3, 4, 255, 256, 257, 1_023, 4_000]


@pytest.fixture(scope="module", params=OTHERS, ids=lambda other: other.name)
def other(request: pytest.FixtureRequest) -> OtherVerifier:
    request.param.require()
    return request.param


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    return [Log(size) for size in SIZES]


def inclusion(log: Log, index: int, size: int | None = None) -> Inclusion:
    proof = log.proof(index, log.checkpoint(size))
    return Inclusion(log.entries[index], proof, str(log.key))


def consistency(log: Log, old: int, new: int) -> Consistency:
    notes = str(log.checkpoint(old)), str(log.checkpoint(new))
    return Consistency(*notes, log.tree.consistency(old, new), str(log.key))


def random_cases(logs: list[Log], seed: int) -> Iterator[Case]:
    rng = random.Random(seed)
    for _ in range(budget(50, 500)):
        log = rng.choice(logs)
        size = rng.randint(1, log.size)
        yield inclusion(log, rng.randrange(size), size)
        yield consistency(log, rng.randint(1, size), size)


def test_every_proof_is_accepted(other: OtherVerifier, logs: list[Log]) -> None:
    cases = [*random_cases(logs, seed=1)]
    assert {*other.verify(cases)} == {"ok"}


def test_every_proof_of_a_small_log_is_accepted(other: OtherVerifier) -> None:
    log = Log(17)
    sizes = range(1, log.size + 1)
    cases: list[Case] = [inclusion(log, index, size) for size in sizes for index in range(size)]
    cases += [consistency(log, old, new) for new in sizes for old in range(1, new + 1)]
    assert {*other.verify(cases)} == {"ok"}


LOG = Log(300)
WITHIN = inclusion(LOG, 77)
GROWN = consistency(LOG, 77, 300)
OTHER_ORG = Log(300, tenant_id="org_other")
OTHER_KEY = Log(300, seed="another key")


def left_out() -> Inclusion:
    """A proof of a row in a log without the row before it."""
    short = Log(300)
    del short.leaves[76], short.entries[76]
    short.size -= 1
    return replace(inclusion(short, 76), proof=LOG.proof(76))


def moved(case: Inclusion) -> Inclusion:
    return replace(case, proof=case.proof.replace("index 77", "index 78"))


def unsigned() -> Inclusion:
    text = Checkpoint(LOG.origin, 300, LOG.tree.root()).text
    note = Note(text, (sign(OTHER_KEY.private, LOG.origin, text),))
    return replace(WITHIN, proof=inclusion_text(77, LOG.tree.inclusion(77, 300), str(note)))


REFUSED: dict[str, Case] = {
    "a changed row": replace(WITHIN, entry=WITHIN.entry.replace(b"blocklist_hit", b"allowed")),
    "another row": replace(WITHIN, entry=LOG.entries[78]),
    "a row left out": left_out(),
    "another index": moved(WITHIN),
    "a changed checkpoint": replace(WITHIN, proof=WITHIN.proof.replace("\n300\n", "\n301\n")),
    "a checkpoint of another key": unsigned(),
    "a wrong key": replace(WITHIN, vkey=str(OTHER_KEY.key)),
    "another organisation's proof": replace(WITHIN, proof=OTHER_ORG.proof(77)),
    "another organisation's key": replace(WITHIN, vkey=str(OTHER_ORG.key)),
    "a hash too few": replace(
        WITHIN, proof=inclusion_text(77, LOG.tree.inclusion(77, 300)[:-1], str(LOG.checkpoint()))
    ),
    "a history written again": replace(GROWN, old=str(Log(77, first_seq=2).checkpoint())),
    "another organisation's history": replace(GROWN, old=str(OTHER_ORG.checkpoint(77))),
    "a consistency hash too few": replace(GROWN, hashes=GROWN.hashes[:-1]),
    "checkpoints exchanged": replace(GROWN, old=GROWN.new, new=GROWN.old),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_was_changed_is_refused(other: OtherVerifier, what: str) -> None:
    assert other.verify([WITHIN, GROWN]) == ["ok", "ok"]
    (answer,) = other.verify([REFUSED[what]])
    assert answer != "ok"


def test_all_verifiers_agree(other_verifiers, logs: list[Log]) -> None:
    cases = [*random_cases(logs, seed=2), *REFUSED.values()]
    verdicts = other_verifiers.verify(cases)
    assert verdicts == [True] * (len(cases) - len(REFUSED)) + [False] * len(REFUSED)
