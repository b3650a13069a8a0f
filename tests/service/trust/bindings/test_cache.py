"""What organisations trust is kept in memory, and memory is bounded."""

import json
import tracemalloc
from typing import Any

import pytest

from service.ci.verifier.candidates import BindingTerms, candidates_of
from service.trust.bindings.cache import bytes_of
from tests.budgets import sample
from tests.conftest import ISSUER

BINDINGS = 500


def stored(number: int, events: int, letter: str) -> str:
    """A binding as the database has it, of texts that no other has, as long as they may be."""
    names = [f"{letter * 50}{number:07}{event:07}" for event in range(events)]
    sub = f"{letter * 1_000}{number}"
    return json.dumps([f"obind_{number:016}", None, None, ISSUER, sub, str(number + 1), names])


def team_of(row: list[Any], number: int) -> list[Any]:
    """A team's binding in the envelope that `row` is."""
    return [f"obind_team_{number:011}", None, f"team_{number}", *row[3:6], [], "team_admin", None]


@sample(4)
@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u0436", "\U0001f600"])
@pytest.mark.parametrize("events", [0, 1, 64])
@pytest.mark.parametrize("has_team", [False, True])
def test_what_is_kept_is_not_counted_for_less(letter: str, events: int, *, has_team: bool):
    """Otherwise bindings that list many events would take all the memory there is."""
    rows = [stored(number, events, letter) for number in range(BINDINGS)]
    tracemalloc.start()
    try:
        active = [[*json.loads(row), "org_admin", {"ref": f"{letter}" * 900}] for row in rows]
        if has_team:
            active += [team_of(row, number) for number, row in enumerate(active)]
        found = candidates_of(BindingTerms(*row) for row in active)
        del active
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken <= bytes_of(found)
