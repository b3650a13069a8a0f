"""The installation that every golden is taken of: the demo, and one of everything besides.

It is set up through commands and the API alone, and each sample of a change gets a copy.
"""

import asyncio
import json
import logging
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import structlog

from service.app.application import create_app
from service.app.composition import EXTENSION
from service.core.secrets import with_secrets
from service.core.settings import REPOSITORY, load_settings
from service.core.version import service_version
from tests.goldens.fixed import CLOCK
from tests.goldens.normalised import Normaliser
from tests.processes.command_line import Ran, invoke
from tests.service.packages.policy.osv_files import osv_record, osv_zip

ADMIN_TOKEN: Final = "goldens-admin-token"
METRICS_TOKEN: Final = "goldens-metrics-token"
BASE_URL: Final = "http://localhost:8080"
OWN_PAGE: Final = {
    "origin": BASE_URL,
    "sec-fetch-site": "same-origin",
    "accept": "text/html,application/xhtml+xml,*/*;q=0.8",
}
"""What a browser says of itself when it sends a form of ours."""
API: Final = "/api/v1/admin/orgs/acme"
MEMBERS: Final = {
    "owner": ("acme", "mara.lindqvist@acme.example"),
    "auditor": ("acme", "sam.whitfield@acme.example"),
    "member": ("acme", "daniel.cho@acme.example"),
    "stranger": ("other", "stranger@other.example"),
}
"""Who samples are taken for: the name in them, and their organisation and address."""
ID_NAMES: Final = (
    "slug",
    "binding_id",
    "export_id",
    "audit_id",
    "member_id",
    "team_id",
    "role",
    "level",
    "number",
    "provider_name",
    "key_id",
    "machine_token_id",
    "search_id",
    "stream_id",
    "exception_id",
    "rule_id",
    "alert_rule_id",
    "alert_id",
)
"""The names of path parameters for which an installation has something."""
MORE_IDS: Final = ("install_id", "run_id")
"""Of an admitted install, for commands."""
_UNAVAILABLE: Final = 503
_TRIES: Final = 20
_DATABASE: Final = "countersign.d*[!m]"
SCOPES: Final = ("packages:install", "audit:ingest")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Installation:
    """A data dir with all that `found` made there; `ids` are by the names of path parameters."""

    folder: Path
    ids: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a command on it, and of a server of it."""
        settings = {
            "DATA_DIR": str(self.folder / "data"),
            "ADMIN_TOKEN": ADMIN_TOKEN,
            "METRICS_TOKEN": METRICS_TOKEN,
            "SECRET_KEY": "goldens-secret-key-of-at-least-32-characters",
            "BASE_URL": BASE_URL,
            "RECENT_SIGN_IN_S": "86400",
            "METRICS_MAX_AGE_S": "0",
            "INGEST_PROCESSES": "0",
            "RECORD_READS": "0",
            "COMPONENTS_PAGE": "true",
        }
        return {f"COUNTERSIGN_{name}": value for name, value in settings.items()} | self.person

    @property
    def person(self) -> dict[str, str]:
        """The variables of a command of a person without a data dir."""
        config = str(self.folder / "config")
        return {"HOME": str(self.folder), "XDG_CONFIG_HOME": config, "COLUMNS": "80"}

    @property
    def normalised(self) -> Normaliser:
        places = {str(self.folder): "folder", str(REPOSITORY): "repository"}
        return Normaliser(places | {service_version(): "version"})

    def credentials(self) -> dict[str, dict[str, str]]:
        """The headers of each caller that samples are taken for."""
        return {
            "visitor": {},
            "admin token": {"x-service-admin-token": ADMIN_TOKEN},
            **{name: self.session(name) for name in MEMBERS},
            "key": {"authorization": f"Bearer {self.ids['secret']}"},
        }

    def session(self, name: str) -> dict[str, str]:
        return {"cookie": f"admin_session={self.cookies[name]}", **OWN_PAGE}

    def run(self, *words: str, given: bytes = b"", **variables: str) -> Ran:
        return invoke(words, self.environment | variables, given)

    def ask(self, *words: str) -> Any:
        """What a command that succeeds answers in JSON."""
        ran = self.run(*words, "--json")
        if ran.code != 0:
            raise RuntimeError(f"{words}: {ran}")
        return ran.json

    @property
    def state(self) -> list[tuple[int, int]]:
        """Sizes and times of the database's files: equal if nothing was written."""
        statuses = [file.stat() for file in sorted((self.folder / "data").glob(_DATABASE))]
        return [(status.st_size, status.st_mtime_ns) for status in statuses]

    def copied(self, folder: Path) -> "Installation":
        shutil.rmtree(folder, ignore_errors=True)
        # Segments are shared: they are never written to again. No call of Python's is as fast.
        subprocess.run(["cp", "-al", str(self.folder), str(folder)], check=True)
        for file in folder.rglob("*.db*"):
            content = file.read_bytes()
            file.unlink()
            file.write_bytes(content)
        return Installation(folder, self.ids, self.cookies)


class App:
    """The service of an installation within this process, without work in the background."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        self._runner = asyncio.Runner()
        self._runner.run(self._start())

    async def _start(self) -> None:
        settings = with_secrets(load_settings(self.installation.environment))
        transport = httpx2.MockTransport(_unreachable)
        self.quart = create_app(settings, CLOCK, transport, jobs=lambda _: [])
        self._serving = self.quart.test_app()
        await self._serving.startup()

    def close(self) -> None:
        self._runner.run(self._serving.shutdown())
        self._runner.close()

    def rules(self) -> Iterator[tuple[str, str]]:
        rules = sorted(self.quart.url_map.iter_rules(), key=lambda rule: rule.rule)
        for rule in rules:
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield method, rule.rule

    def fire(self) -> str:
        """The id of the alert that the rules fire for what there is."""
        self._runner.run(self.quart.extensions[EXTENSION].alerts.watch_due())
        headers = self.installation.credentials()["admin token"]
        (alert,) = json.loads(self.request("GET", f"{API}/alerts", headers).body)["alerts"]
        return str(alert["id"])

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """The answer to one request; on a slow machine a query may need more than one try."""
        for _ in range(_TRIES):
            answer = self._runner.run(self._request(method, path, headers, body))
            if method != "GET" or answer.status != _UNAVAILABLE:
                break
        return answer

    async def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        client = self.quart.test_client(use_cookies=False)
        response = await client.open(path, method=method, headers=dict(headers), data=body)
        content = await response.get_data(as_text=False)
        return Answer(response.status_code, list(response.headers.items()), content)


class Copies:
    """The service over copies of an installation: a fresh one after each change."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self._original, self._folder = installation, folder
        self._app: App | None = None

    @property
    def app(self) -> App:
        if self._app is None:
            self._app = App(self._original.copied(self._folder))
        return self._app

    def renew(self) -> None:
        if self._app is not None:
            self._app.close()
            self._app = None


@contextmanager
def copies(installation: Installation, folder: Path) -> Iterator[Copies]:
    made = Copies(installation, folder)
    try:
        yield made
    finally:
        made.renew()


def served_document(installation: Installation, folder: Path) -> tuple[Any, bytes]:
    """The OpenAPI document of a copy in `folder`, and its bytes."""
    with copies(installation, folder) as used:
        body = used.app.request("GET", "/openapi.json", {}).body
        return json.loads(body), body


def _unreachable(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("goldens have no network", request=request)


def found(folder: Path) -> Installation:
    """The demo with an organisation besides, a key, a search, and a request for an exception."""
    folder.mkdir(parents=True)
    made = Installation(folder)
    made.ask("demo", "--no-serve")
    made.ask("org", "add", "other", "--tier", "org")
    made.ask(
        "member",
        "add",
        MEMBERS["stranger"][1],
        "--org",
        "other",
        "--role",
        "owner",
        "--idp",
        "github",
    )
    feed = folder / "feed.zip"
    feed.write_bytes(osv_zip([osv_record("MAL-1")]).getvalue())
    made.ask("blocklist", "import", str(feed))
    for name, (slug, email) in MEMBERS.items():
        CLOCK.advance()
        issued = made.ask("session", "issue", "--cookie", "--org", slug, "--member", email)
        made.cookies[name] = issued["cookie"]
    CLOCK.advance()
    scopes = [word for scope in SCOPES for word in ("--scope", scope)]
    key = made.ask("apikey", "issue", "--org", "acme", "--name", "goldens", *scopes)
    owner = ("--member", MEMBERS["owner"][1])
    machine = made.ask("machine", "issue", "--org", "acme", "--name", "goldens", *owner)
    made.ids.update(key_id=key["id"], secret=key["secret"], machine_token_id=machine["id"])
    _use(made)
    CLOCK.advance()
    made.ids.update(_ids_of(made))
    made.ask("audit", "seal")
    made.ask("evidence", "sign")
    CLOCK.advance()
    return made


def _use(made: Installation) -> None:
    """Do what only the API can do."""
    app = App(made)
    try:
        for name, path, form in (
            ("search_id", "audit/searches", {"name": "Blocked", "query": "decision=BLOCKED"}),
            (
                "stream_id",
                "streams",
                {"name": "SIEM", "kind": "webhook", "url": "https://127.0.0.1:1/rows"},
            ),
            (
                "alert_rule_id",
                "alerts/rules",
                {"name": "Exception asked for", "query": "event=policy_exception_requested"},
            ),
            (
                "exception_id",
                "policy/exceptions",
                {"ecosystem": "pypi", "package": "requests==2.32.3", "reason": "needed today"},
            ),
        ):
            CLOCK.advance()
            headers = made.session("owner") | {"content-type": "application/json"}
            answer = app.request("POST", f"{API}/{path}", headers, json.dumps(form).encode())
            if answer.status != 201:
                raise RuntimeError(f"{path}: {answer}")
            made.ids[name] = json.loads(answer.body)["id"]
        made.ids["alert_id"] = app.fire()
        form = {"content-type": "application/x-www-form-urlencoded"}
        answer = app.request("POST", "/api/v1/device/code", form, b"client_id=countersign-cli")
        made.ids["user_code"] = json.loads(answer.body)["user_code"]
        # So that uses of the key and sessions are not new, which is written down at some time.
        for headers in made.credentials().values():
            app.request("GET", API + "/audit?limit=1", headers)
    finally:
        app.close()


def _ids_of(made: Installation) -> dict[str, str]:
    """Something of each kind, by the names of path parameters."""

    def first(member: str, *words: str, is_such: Callable[[Any], bool] = bool) -> Any:
        return next(entry for entry in made.ask(*words, "--org", "acme")[member] if is_such(entry))

    binding = first("bindings", "bindings", "list", "--state", "active")
    member = first(
        "members", "member", "list", is_such=lambda entry: entry["email"] == MEMBERS["member"][1]
    )
    team = first("teams", "team", "list")
    install = first(
        "entries",
        "audit",
        "list",
        "--event",
        "install_allowed",
        is_such=lambda entry: entry["run_id"] is not None,
    )
    return {
        "slug": "acme",
        "binding_id": binding["id"],
        "export_id": first("exports", "audit", "exports", "list")["id"],
        "audit_id": first("entries", "audit", "list", "--limit", "1", "--event", "blocklist_hit")[
            "id"
        ],
        "install_id": install["id"],
        "rule_id": "MAL-1",
        "run_id": install["run_id"],
        "member_id": member["id"],
        "team_id": team["id"],
        "role": "auditor",
        "level": "1",
        "number": "0",
        "provider_name": "github",
    }
