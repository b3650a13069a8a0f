"""Whatever is sent as a body, the answer is a documented one and a refusal changes nothing."""

import asyncio
import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from service.store.tables import Binding, Counter
from tests.budgets import budget
from tests.conftest import (
    ISSUER,
    SettableClock,
    World,
    binding_body,
    bindings_path,
    refused,
    running_world,
    settings_over,
)
from tests.service.trust.bindings.texts import DOCUMENTED_400

FIELDS = (*binding_body(), "project_id", "team_id")
SEEDED = settings(
    max_examples=budget(60, 300),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

text = st.text(st.characters(exclude_categories=()), max_size=80)
near_misses = st.sampled_from(
    [
        ISSUER,
        f"{ISSUER}/",
        "team_admin",
        "platform_admin",
        "s" * 1024,
        "s" * 1025,
        "9" * 33,
        "٧",
        "repo:acme/*",
        "acme's team",
        "acme's project",
        ["push", "push"],
        ["e"] * 65,
        [""],
        10**32,
        10**400,
        1e400,
        -0.0,
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | text
values = near_misses | st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(text, inner, max_size=6),
    max_leaves=12,
)
changes = st.dictionaries(st.sampled_from(FIELDS), values, min_size=1, max_size=3)
extras = st.just({}) | st.dictionaries(text, values, max_size=2)


class Service:
    """A running service that is asked from outside its event loop."""

    def __init__(self, runner: asyncio.Runner, world: World) -> None:
        self._runner = runner
        self._world = world

    def create(self, raw: bytes) -> tuple[int, str]:
        """POST `raw`; status and refusal. A binding that comes of it is revoked at once.

        Checks what was stored: one binding and one audit row for a 201, else nothing.
        """
        return self._runner.run(self._create(raw))

    def names(self) -> dict[str, str]:
        """Ids for the placeholders among the values."""
        return {"acme's team": self._world.team.id, "acme's project": self._world.project.id}

    async def _create(self, raw: bytes) -> tuple[int, str]:
        before = await self._stored()
        answer = await self._world.client.post(
            bindings_path(),
            headers={**self._world.admin, "content-type": "application/json"},
            data=raw,
        )
        bindings, rows = await self._stored()
        if answer.status_code != 201:
            assert (bindings, rows) == before
            return await refused(answer)
        assert (bindings, rows) == (before[0] + 1, before[1] + 1)
        created = await answer.get_json()
        check_stored(json.loads(raw), created)
        gone = await self._world.client.delete(
            bindings_path("acme", created["id"]), headers=self._world.admin
        )
        assert gone.status_code == 200
        return 201, ""

    async def _stored(self) -> tuple[int, int]:
        """How many bindings there are, and how many audit rows there have been."""
        async with self._world.services.store.read() as session:
            bindings = await session.scalar(select(func.count()).select_from(Binding))
            rows = await session.scalar(select(Counter.value).where(Counter.name == "audit_seq"))
        return bindings or 0, rows or 0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with asyncio.Runner() as runner:
        running = running_world(settings_over(tmp_path), SettableClock())
        world = runner.run(running.__aenter__())
        yield Service(runner, world)
        runner.run(running.__aexit__(None, None, None))


def encoded(body: dict[str, Any], names: dict[str, str]) -> bytes:
    """`body` as JSON text, lone surrogates and all; NaN and Infinity as Python spells them."""
    meant = {
        key: names.get(value, value) if isinstance(value, str) else value
        for key, value in body.items()
    }
    return json.dumps(meant).encode()


def check_stored(sent: dict[str, Any], created: dict[str, Any]) -> None:
    """What was accepted keeps the rules, and is stored as it was sent."""
    assert set(sent) <= set(FIELDS)
    assert (created["issuer"], created["subPattern"]) == (ISSUER, sent["sub_pattern"])
    assert re.fullmatch("[1-9][0-9]{0,31}", created["repositoryId"], re.ASCII)
    assert int(created["repositoryId"]) == int(sent["repository_id"])
    assert created["eventNames"] == list(dict.fromkeys(sent.get("event_names") or []))
    for character in "".join([created["subPattern"], *created["eventNames"]]):
        assert not character.isspace()
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}


def check(answer: tuple[int, str]) -> None:
    """The answer must be a documented one."""
    status, refusal = answer
    assert status == 201 or (
        status == 400 and any(pattern.fullmatch(refusal) for pattern in DOCUMENTED_400)
    ), answer


@pytest.mark.slow
def test_any_value_in_any_field_is_accepted_or_refused_by_a_documented_text(service: Service):
    """Never a 500; and what is refused leaves no trace."""
    statuses: set[int] = set()

    @SEEDED
    @given(changes, extras)
    def explore(changed: dict[str, Any], extra: dict[str, Any]) -> None:
        answer = service.create(encoded(extra | binding_body(**changed), service.names()))
        check(answer)
        statuses.add(answer[0])

    explore()
    assert statuses == {201, 400}


@pytest.mark.slow
def test_any_bytes_are_refused_unless_they_are_a_valid_body(service: Service):
    """The parser meets whatever a client can send."""
    valid = json.dumps(binding_body()).encode()
    flips = st.tuples(st.integers(0, len(valid) - 1), st.integers(0, 255))
    cuts = st.integers(0, len(valid)).map(lambda end: valid[:end])
    mutated = st.lists(flips, max_size=3).map(lambda found: flipped(valid, found))

    @SEEDED
    @given(st.binary(max_size=200) | mutated | cuts)
    def explore(raw: bytes) -> None:
        check(service.create(raw))

    explore()


def flipped(valid: bytes, flips: list[tuple[int, int]]) -> bytes:
    """`valid` with other bytes at some places."""
    changed = bytearray(valid)
    for place, byte in flips:
        changed[place] = byte
    return bytes(changed)
