"""What tests share: a real service over a data dir of its own, with a clock they can set."""

import atexit
import os
import pickle
import re
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx2
import hypothesis
import jinja2
import pytest
import pytest_asyncio
from quart import Quart
from quart.typing import TestClientProtocol

from service.access.callers import cli_caller
from service.app.application import create_app
from service.app.background_jobs import all_jobs, seal_jobs
from service.app.bootstrap import prepare
from service.app.composition import EXTENSION, Services
from service.core.clock import Uptime
from service.core.ids import new_id
from service.core.secrets import new_token, token_hash, with_secrets
from service.core.settings import Settings
from service.orgs.members import add_member, issue_cookie, issue_sign_in
from service.orgs.organisations import create_org
from service.orgs.projects import create_project
from service.orgs.roles import set_role_override
from service.orgs.teams import create_team, set_team_admin
from service.store.engine_factory import create_engines
from service.store.sqlite.files import file_of, make_private
from service.store.store import Store
from service.store.tables import ApiKey, Member, Organisation, Project, Team
from tests import databases
from tests.budgets import IS_FULL, budget, tried_cases
from tests.compiled_statements import share_compiled_statements
from tests.crashes import file_steps
from tests.databases import IS_POSTGRESQL, database_url, fill_database
from tests.issuers.issuer import ISSUER, START
from tests.postgres import _stop_shared_postgres, own_postgres, postgres, postgres_url
from tests.run_costs import (
    collect_garbage_less_often,
    keep_bytecode,
    load_without_collections,
    use_memory_for_files,
)
from tests.scheduling import group_of, pytest_xdist_make_scheduler
from tests.seaweedfs import bucket, seaweedfs
from tests.shared_routes import share_routes

__all__ = [
    "_stop_shared_postgres",
    "bucket",
    "file_steps",
    "own_postgres",
    "postgres",
    "postgres_url",
    "pytest_xdist_make_scheduler",
    "seaweedfs",
]

if IS_POSTGRESQL:
    from tests.databases import (  # noqa: F401 - fixtures for all tests
        drop_databases_of_module,
        drop_databases_of_test,
    )

ADMIN_TOKEN = "test-admin-token"
METRICS_TOKEN = "test-metrics-token"
SCRAPER = {"authorization": f"Bearer {METRICS_TOKEN}"}
"""What Prometheus sends."""
BY_OPERATOR = cli_caller("org_platform").audit_context
_HEARD = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}

_foundation: list[tuple[bytes, bytes]] = []
"""A database with all members, and who they are, once a test of this process needed one."""


class _CompiledTemplates(jinja2.BytecodeCache):
    """What the templates compile to, for the apps of all worlds of this process."""

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        if bucket.key in self._code:
            bucket.bytecode_from_string(self._code[bucket.key])

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        self._code[bucket.key] = bucket.bytecode_to_string()


_TEMPLATES = _CompiledTemplates()

# The same examples on every run: a failure is never the machine's load or the day's luck.
hypothesis.settings.register_profile(
    "countersign", derandomize=True, deadline=None, max_examples=budget(25, 100)
)
hypothesis.settings.load_profile("countersign")

load_without_collections()
share_routes()
share_compiled_statements()
keep_bytecode()
if not IS_FULL:
    use_memory_for_files()


@atexit.register
def _close_standard_error() -> None:
    """Let pytest's summary be the last that is printed.

    DuckDB's bindings count what is still alive once the interpreter has ended, and print a hundred
    lines about the functions that pytest's own references kept so long.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def pytest_configure() -> None:
    """Hear Ctrl-C and a hang-up, which a shell makes what it runs in the background ignore.

    What tests start would ignore them, too.
    """
    for number, handler in _HEARD.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


_SERVERS = frozenset({"_server_to_stop", "own_postgres", "postgres", "postgres_url"})
"""Fixtures that start a PostgreSQL server, which `make check` does not install."""


@pytest.hookimpl(tryfirst=True)  # before `-m "not slow"` is applied
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make test-all` runs; slow groups first: they end while others run."""
    for item in items:
        if _SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
        _refuse_two_loops(item)
    if not IS_FULL:
        tried = _tried(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in tried])
        items[:] = [item for item in items if item in tried]
    databases.mark_skipped(items)
    slow = Counter(group_of(item.nodeid) for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-slow[group_of(item.nodeid)], item.path))


_LOOPS = {"world": "function", "demo": "package"}
"""What runs an app, and of which scope the loop is that it lives in."""


def _refuse_two_loops(item: pytest.Item) -> None:
    """An app lives in the loop of its tests: in another one its tasks stop, and keep locks."""
    marker = item.get_closest_marker("asyncio")
    if marker is None:  # of a test that is no coroutine
        return
    scope = marker.kwargs.get("loop_scope", "function")
    for name in _LOOPS.keys() & set(getattr(item, "fixturenames", ())):
        if scope != _LOOPS[name]:
            reason = f'`{name}` needs loop_scope="{_LOOPS[name]}": take another, or mark the test'
            raise pytest.UsageError(f"{item.nodeid}: {reason}")


def _tried(items: list[pytest.Item]) -> set[pytest.Item]:
    """Those of `items` that `make test` runs."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {case for same in cases.values() for case in tried_cases(same)}


def pytest_collection_finish() -> None:
    """The modules are loaded: what comes now is made by tests."""
    collect_garbage_less_often()


@dataclass
class SettableClock:
    """A clock that moves only when it is told to."""

    now: datetime = START
    jumped: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return self.now

    def uptime(self) -> Uptime:
        """How long the machine of this clock has been running."""
        return Uptime("start of the tests", (self.now - self.jumped - START).total_seconds())

    def jump(self, by: timedelta) -> None:
        """Show another time, although none has passed."""
        self.now += by
        self.jumped += by

    def advance(self, **by: float) -> None:
        """Move on by a timedelta's keyword arguments."""
        self.now += timedelta(**by)


@dataclass
class World:
    """One running service and the people in it. Names of members are their role or office."""

    app: Quart
    client: TestClientProtocol
    services: Services
    clock: SettableClock
    acme: Organisation
    other: Organisation
    project: Project
    team: Team
    members: dict[str, Member] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def admin(self) -> dict[str, str]:
        return {"x-service-admin-token": ADMIN_TOKEN}

    def session(self, name: str) -> dict[str, str]:
        return {"cookie": f"admin_session={self.cookies[name]}"}

    async def bindings(self, **query: str) -> list[dict[str, Any]]:
        """Acme's bindings as the API lists them."""
        response = await self.client.get(
            bindings_path(), headers=self.admin, query_string=query or None
        )
        assert response.status_code == 200, await response.get_data(as_text=True)
        return (await response.get_json())["bindings"]

    async def audit(self, slug: str = "acme", **query: Any) -> list[dict[str, Any]]:
        """An organisation's audit rows, newest first: one page of up to 1,000."""
        response = await self.client.get(
            f"/api/v1/admin/orgs/{slug}/audit",
            headers=self.admin,
            query_string={"limit": 1000, **query},
        )
        assert response.status_code == 200, await response.get_data(as_text=True)
        return (await response.get_json())["entries"]

    async def create(self, headers: dict[str, str] | None = None, **changes: Any) -> Any:
        """POST a valid binding with `changes` (... removes a key); the response."""
        return await self.client.post(
            bindings_path(), headers=headers or self.admin, json=binding_body(**changes)
        )

    async def bind(self, **changes: Any) -> str:
        """The id of a new binding of acme, made with the admin token if no `headers` are given."""
        response = await self.create(**changes)
        assert response.status_code == 201, await response.get_data(as_text=True)
        return str((await response.get_json())["id"])

    async def revoke(self, binding_id: str, reason: str = "") -> None:
        """Revoke a binding of acme with the admin token."""
        query = {"reason": reason} if reason else None
        path = bindings_path("acme", binding_id)
        response = await self.client.delete(path, headers=self.admin, query_string=query)
        assert response.status_code == 200, await response.get_data(as_text=True)

    async def sign_in_link(self, name: str = "owner") -> str:
        """The token of a new sign-in link of a member."""
        async with self.services.store.write() as work:
            return await issue_sign_in(work, self.acme, self.members[name], BY_OPERATOR)


PROXY_SCOPES = ("packages:install", "audit:ingest")
"""Of a key that a proxy has: it installs, and sends rows."""


def any_scope(capability: object, org: object) -> None:
    """What an issuer with all rights requires of itself."""


def unscoped_key(tenant_id: str, **more: Any) -> tuple[ApiKey, str]:
    secret = new_token("cs_")
    facts = {"project_id": None, "name": "old proxy", "created_at": START} | more
    hashed = token_hash(secret)
    return ApiKey(id=new_id("key"), tenant_id=tenant_id, secret_hash=hashed, **facts), secret


def bindings_path(slug: str = "acme", binding_id: str | None = None) -> str:
    """The binding endpoint, or one binding's."""
    path = f"/api/v1/admin/orgs/{slug}/oidc-bindings"
    return path if binding_id is None else f"{path}/{binding_id}"


def binding_body(**changes: Any) -> dict[str, Any]:
    """A valid create body with `changes`; the value `...` takes a key out."""
    body = {
        "issuer": ISSUER,
        "sub_pattern": "repo:acme/payments:ref:refs/heads/main",
        "repository_id": "123456789",
        "event_names": ["push"],
        "origin": "org_admin",
    } | changes
    return {key: value for key, value in body.items() if value is not ...}


def settings_over(folder: Path, url: str | None = None) -> Settings:
    """Settings over an empty data dir in `folder`; with `url`, that of another database."""
    return Settings(
        data_dir=folder / "data",
        database_url=database_url(folder / "data") if url is None else url,
        admin_token=ADMIN_TOKEN,
        secret_key="test-secret-key-of-at-least-32-characters",
        metrics_token=METRICS_TOKEN,
        metrics_max_age_s=0,
        base_url="http://localhost:8080",
        record_reads=False,  # whose rows come when they come; tests of them record them
        ingest_processes=0,  # which takes seconds to start; tests/processes have it
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_over(tmp_path)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


def _unreachable(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("the tests have no network", request=request)


async def _at_first_query() -> None:
    """Leave DuckDB to the first query, which opens it too: most worlds make none."""


async def refused(response: Any) -> tuple[int, str]:
    """Status and text of an error answer, which must have the one shape every error has."""
    assert response.headers["content-type"] == "application/json"
    assert re.fullmatch(r"req_[0-9a-f]{24}", response.headers["x-request-id"])
    body = await response.get_json()
    assert list(body) == ["error"]
    assert isinstance(body["error"], str)
    return response.status_code, body["error"]


@dataclass(frozen=True, slots=True)
class Founded:
    """Acme (tier org) with a member of every role and a team, and another organisation."""

    acme: Organisation
    other: Organisation
    project: Project
    team: Team
    members: dict[str, Member]
    cookies: dict[str, str]


async def _found(settings: Settings, clock: SettableClock) -> Founded:
    """Write them into the data dir of `settings`."""
    store = Store(create_engines(settings.database, settings.database_wait_s), clock)
    members, cookies = {}, {}
    async with store.write() as work:
        acme = await create_org(work, "acme", "org", BY_OPERATOR)
        other = await create_org(work, "other", "org", BY_OPERATOR)
        project = await create_project(work, acme, "payments", BY_OPERATOR)
        team = await create_team(work, acme, "platform", BY_OPERATOR)
        for name, org, role in [
            ("owner", acme, "owner"),
            ("admin", acme, "admin"),
            ("auditor", acme, "auditor"),
            ("member", acme, "member"),
            ("team_admin", acme, "member"),
            ("stranger", other, "owner"),
        ]:
            address = f"{name}@{org.slug}.example"
            members[name] = await add_member(work, org, address, role, "github", BY_OPERATOR)
            cookies[name] = await issue_cookie(work, org, members[name], BY_OPERATOR)
        await set_team_admin(work, team, members["team_admin"], BY_OPERATOR, is_admin=True)
    await store.close()
    return Founded(acme, other, project, team, members, cookies)


async def _lay_foundation(settings: Settings, clock: SettableClock) -> Founded | None:
    """Begin a data dir with a database of all members; None if the test begins elsewhere.

    To migrate and to found take as long as the rest of a world, and have tests of their own.
    """
    is_own = settings.database_url in {"", database_url(settings.data_dir)}
    is_usual = is_own and settings.binding_slot == Settings().binding_slot
    if settings.data_dir.exists() or clock.now != START or not is_usual:
        return None
    if IS_POSTGRESQL:
        return _lay_postgresql_foundation(settings)
    if not _foundation:
        with tempfile.TemporaryDirectory() as folder:
            first = settings_over(Path(folder))
            await prepare(first, clock)
            founded = await _found(first, clock)
            database = file_of(first.database).read_bytes()
            _foundation.append((database, pickle.dumps(founded)))
    database, people = _foundation[0]
    _make_folders(settings)
    make_private(settings.database)
    file_of(settings.database).write_bytes(database)
    # A copy for each test: what one does to its organisation is not there for the next.
    return cast("Founded", pickle.loads(people))  # noqa: S301 - our own bytes


def _lay_postgresql_foundation(settings: Settings) -> Founded:
    """The same as a copy of a database of the server."""

    async def fill(url: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            first = settings_over(Path(folder), url)
            await prepare(first, SettableClock())
            _foundation.append((b"", pickle.dumps(await _found(first, SettableClock()))))

    fill_database(settings.data_dir, "foundation", fill)
    _make_folders(settings)
    return cast("Founded", pickle.loads(_foundation[0][1]))  # noqa: S301 - our own bytes


def _make_folders(settings: Settings) -> None:
    for folder in (settings.data_dir, settings.audit_dir, settings.temp_dir):
        folder.mkdir(parents=True, mode=0o700)


@asynccontextmanager
async def running_world(
    settings: Settings,
    clock: SettableClock,
    *,
    has_sealer: bool = True,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator[World]:
    """Acme (tier org) with a member of every role and a team, and another organisation.

    Without `has_sealer` nothing runs in the background: for tests that seal step by step. With it
    `make test-all` runs all of the background work, and `make test` what each process does, and
    sealing: it renews keys and writes down uses. The network ends in `transport`; without one
    there is none, and no issuer can be reached.
    """
    laid = await _lay_foundation(settings, clock)
    # To prepare a foundation once more takes half as long as all else.
    is_ready = laid is not None and not IS_FULL
    ready = with_secrets(settings) if is_ready else await prepare(settings, clock)
    there = laid or await _found(ready, clock)
    app = create_app(
        ready,
        clock,
        transport or httpx2.MockTransport(_unreachable),
        jobs=all_jobs if IS_FULL else seal_jobs,
    )
    app.jinja_env.bytecode_cache = _TEMPLATES
    services: Services = app.extensions[EXTENSION]
    if not IS_FULL:
        services.lake.queries.warm_up = _at_first_query  # type: ignore[method-assign]
    people = World(
        app,
        app.test_client(),
        services,
        clock,
        **{part.name: getattr(there, part.name) for part in fields(there)},
    )
    if has_sealer:
        async with app.test_app():
            yield people
        return
    try:
        yield people
    finally:
        await services.close()


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    async with running_world(settings, clock) as people:
        yield people


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One world for all tests of a module that change nothing in it.

    Such a module says `pytestmark = pytest.mark.asyncio(loop_scope="module")`.
    """
    async with running_world(
        settings_over(tmp_path_factory.mktemp("shared")), SettableClock()
    ) as people:
        yield people


async def grant(world: World, role: str, *capabilities: str) -> None:
    """Override: give `role` in acme these capabilities beyond its defaults."""
    async with world.services.store.write() as work:
        acme = await work.session.get_one(Organisation, world.acme.id)
        await set_role_override(work, acme, role, capabilities, BY_OPERATOR)
