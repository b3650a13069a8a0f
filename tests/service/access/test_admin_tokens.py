"""The admin token is exchanged while the service runs, with two of them accepted meanwhile."""

import errno
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from service.access.admin_tokens import retire_admin_token, rotate_admin_token
from service.core.errors import Conflict, Invalid, StoreUnavailable
from service.core.secrets import current_admin_token, parse_admin_tokens
from service.core.settings import Settings
from tests.budgets import budget
from tests.conftest import BY_OPERATOR, SettableClock, World, bindings_path, running_world
from tests.crashes import PowerCut, power_cut_after

OLD = "the-old-admin-token-of-the-tests"
NEW = "the-new-admin-token-of-the-tests"


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """The token is in the file that `init` would have created."""
    bare = msgspec.structs.replace(settings, admin_token="")
    bare.data_dir.mkdir()
    token_file(bare).write_text(f"{OLD}\n")
    async with running_world(bare, clock, has_sealer=False) as running:
        yield running


def token_file(settings: Settings) -> Path:
    path = settings.admin_tokens_file
    assert path is not None
    return path


def write(world: World, text: str) -> None:
    """Put another file in the place of the tokens', as a mounted secret is replaced."""
    path = token_file(world.services.settings)
    (beside := path.with_suffix(".new")).write_text(text)
    beside.replace(path)


async def accepted(world: World, *tokens: str) -> list[bool]:
    statuses = []
    for token in tokens:
        answer = await world.client.get(bindings_path(), headers={"x-service-admin-token": token})
        statuses.append(answer.status_code)
    assert set(statuses) <= {200, 401}
    return [status == 200 for status in statuses]


async def test_both_are_accepted_until_the_previous_one_is_retired(world: World) -> None:
    services = world.services
    assert await accepted(world, OLD) == [True]

    new = await rotate_admin_token(services.store, services.settings, BY_OPERATOR)
    assert current_admin_token(services.settings) == new
    assert await accepted(world, new, OLD, NEW) == [True, True, False]
    assert token_file(services.settings).stat().st_mode & 0o777 == 0o600

    await retire_admin_token(services.store, services.settings, BY_OPERATOR)
    assert await accepted(world, new, OLD) == [True, False]


async def test_every_organisation_has_a_row_of_each_change(world: World) -> None:
    """The token opens all of them."""
    services = world.services
    new = await rotate_admin_token(services.store, services.settings, BY_OPERATOR)
    await retire_admin_token(services.store, services.settings, BY_OPERATOR)

    admin = {"x-service-admin-token": new}
    for slug in ("acme", "other"):
        answer = await world.client.get(
            f"/api/v1/admin/orgs/{slug}/audit?event=admin_token_changed", headers=admin
        )
        rows = (await answer.get_json())["entries"]
        assert [row["payload"]["change"] for row in rows] == ["retired", "rotated"]


async def test_a_third_token_waits_until_the_first_is_retired(world: World) -> None:
    services = world.services
    with pytest.raises(Conflict, match="rotate it first"):
        await retire_admin_token(services.store, services.settings, BY_OPERATOR)
    await rotate_admin_token(services.store, services.settings, BY_OPERATOR)

    with pytest.raises(Conflict, match="retire the previous one first"):
        await rotate_admin_token(services.store, services.settings, BY_OPERATOR)


async def test_a_file_that_another_program_replaces_counts_at_once(world: World) -> None:
    """A secret store writes it, not a command."""
    assert await accepted(world, OLD, NEW) == [True, False]
    write(world, f"{NEW}\n{OLD}\n")
    assert await accepted(world, OLD, NEW) == [True, True]
    write(world, f"{NEW}\n")
    assert await accepted(world, OLD, NEW) == [False, True]


@pytest.mark.parametrize(
    "text", ["", "short\n", f"{OLD}\n{NEW}\n{OLD}\n", "t\u00f6ken-of-16-chars-x\n"]
)
async def test_a_file_without_a_valid_token_opens_nothing(world: World, text: str) -> None:
    assert await accepted(world, OLD) == [True]
    write(world, text)

    assert await accepted(world, OLD, NEW, "", "short") == [False] * 4


async def test_a_file_that_is_gone_opens_nothing(world: World) -> None:
    assert await accepted(world, OLD) == [True]
    token_file(world.services.settings).unlink()

    assert await accepted(world, OLD, "") == [False, False]


async def test_a_setting_with_a_comma_has_two(settings: Settings, clock: SettableClock) -> None:
    """For nodes that are restarted one by one."""
    both = msgspec.structs.replace(settings, admin_token=f"{NEW}, {OLD}")
    async with running_world(both, clock, has_sealer=False) as world:
        assert await accepted(world, OLD, NEW, f"{NEW}, {OLD}", "") == [True, True, False, False]


@pytest.mark.parametrize("name", ["admin_token", "admin_token_file"])
async def test_the_command_changes_no_token_that_others_set(
    settings: Settings, clock: SettableClock, tmp_path: Path, name: str
) -> None:
    """Each node has its own: the change would be on this one only."""
    (path := tmp_path / "mounted").write_text(f"{OLD}\n")
    given = {"admin_token": "", name: OLD if name == "admin_token" else path}
    elsewhere = msgspec.structs.replace(settings, **given)
    async with running_world(elsewhere, clock, has_sealer=False) as world:
        with pytest.raises(Invalid, match=f"is set by COUNTERSIGN_{name.upper()}:"):
            await rotate_admin_token(world.services.store, elsewhere, BY_OPERATOR)
        assert await accepted(world, OLD) == [True]


async def rows_of_changes(world: World) -> list[str]:
    admin = {"x-service-admin-token": OLD}
    path = "/api/v1/admin/orgs/acme/audit?event=admin_token_changed"
    rows = (await (await world.client.get(path, headers=admin)).get_json())["entries"]
    return [row["payload"]["change"] for row in rows]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
async def test_a_disk_that_takes_no_file_leaves_the_token_and_no_row(
    world: World, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A row would tell of a change that was not made. Afterwards the change is made."""
    services, path = world.services, token_file(world.services.settings)
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if "admin_token" in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StoreUnavailable):
            await rotate_admin_token(services.store, services.settings, BY_OPERATOR)

    assert path.read_text() == f"{OLD}\n"
    assert list(path.parent.glob("*admin_token*")) == list(path.parent.glob("*admin_token"))
    assert await rows_of_changes(world) == []
    new = await rotate_admin_token(services.store, services.settings, BY_OPERATOR)
    assert await accepted(world, OLD, new) == [True, True]


@pytest.mark.parametrize("steps", range(0, 16, budget(3, 1)))
async def test_a_crash_at_any_step_leaves_tokens_that_work(world: World, steps: int) -> None:
    """The old one works until it is retired, and no change is without its row."""
    services = world.services
    with suppress(PowerCut), power_cut_after(steps, services.store):
        await rotate_admin_token(services.store, services.settings, BY_OPERATOR)
    tokens = parse_admin_tokens(token_file(services.settings))
    assert await accepted(world, OLD) == [True]
    assert len(tokens) == 1 or await rows_of_changes(world) == ["rotated"]
    if len(tokens) == 1:
        await rotate_admin_token(services.store, services.settings, BY_OPERATOR)

    with suppress(PowerCut), power_cut_after(steps, services.store):
        await retire_admin_token(services.store, services.settings, BY_OPERATOR)
    new, *old = parse_admin_tokens(token_file(services.settings))
    assert await accepted(world, new, OLD) == [True, bool(old)]
    if old:
        await retire_admin_token(services.store, services.settings, BY_OPERATOR)
    assert await accepted(world, new, OLD) == [True, False]
    assert [path.name for path in services.settings.data_dir.glob("*admin_token*")] == [
        "admin_token"
    ]
