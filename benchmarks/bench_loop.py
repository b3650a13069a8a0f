"""Claim: no input holds the event loop for more than 20 ms.

Each input is sent to a server of its own, in which a heartbeat measures the longest pause of the
event loop. With `--beside PATH` the same inputs are sent to the service of another checkout, and
the two take turns.
"""

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks import hostile_inputs, large_org
from benchmarks.proxies.registry import Upstream, upstream
from benchmarks.results import record
from benchmarks.server import ADMIN_TOKEN, ServerClient, running_server

GOAL_MS: Final = 20.0
OURS: Final = "Countersign"
BESIDE: Final = "before"
ROUNDS: Final = 7
ORG: Final = "/api/v1/admin/orgs/acme"
UI: Final = "/admin/ui/orgs/acme"
PROXY: Final = "/proxy/acme"
_HERE: Final = Path(__file__).parents[1]
_MODULE: Final = "benchmarks.proxies.watched_server"


@dataclass(frozen=True)
class Input:
    """What is sent once the heartbeat beats, and what is made ready before."""

    name: str
    send: Callable[[ServerClient, str], object]
    prepare: Callable[[ServerClient, str], object] = lambda _, key: key
    is_large: bool = False
    """The organisation has 10,000 entries of each kind."""


def _key(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _audit(names: int) -> Callable[[ServerClient, str], object]:
    requires = {f"p{n}": "1" for n in range(1_000)}
    packages = {f"p{n}": {"version": "1", "requires": requires} for n in range(names // 1_001)}
    body = gzip.compress(json.dumps({"dependencies": packages}).encode(), 9)

    def send(client: ServerClient, key: str) -> object:
        headers = _key(key) | {"content-encoding": "gzip", "content-type": "application/json"}
        path = f"{PROXY}/npm/-/npm/v1/security/audits/quick"
        return client.post(path, headers=headers, content=body)

    return send


def _policy(ecosystem: str, package: str, rules: int = 290) -> dict[str, Any]:
    """As many ranges on one package as fit in a policy."""
    entry = {"ecosystem": ecosystem, "package": package}
    ranges = [f"<0.{n}" for n in range(20)]
    deny = [entry | {"versions": ranges, "id": f"r{n}"} for n in range(rules)]
    return {"deny": deny}


def _put(ecosystem: str, package: str) -> Callable[[ServerClient, str], object]:
    def put(client: ServerClient, _: str) -> object:
        document = _policy(ecosystem, package)
        return client.put(f"{ORG}/policy", headers={"if-match": "*"}, json=document)

    return put


def _installs(client: ServerClient, _: str) -> None:
    items = [
        {
            "event": "install_allowed",
            "packageName": f"@scope/package-{n}",
            "version": "1.0.0",
            "ecosystem": "npm",
        }
        for n in range(10_000)
    ]
    for start in range(0, len(items), 1_000):
        client.post(f"{ORG}/audit/events", json=items[start : start + 1_000])


def _preview(client: ServerClient, _: str) -> object:
    return client.post(f"{ORG}/policy/preview", json=_policy("npm", "*"))


def _page(path: str) -> Callable[[ServerClient, str], object]:
    return lambda client, key: client.get(f"{PROXY}/{path}", headers=_key(key))


def _ingest(client: ServerClient, key: str) -> object:
    items = [{"event": "install_allowed", "packageName": f"p{n}"} for n in range(10_000)]
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    body = gzip.compress(json.dumps(items).encode())
    return client.post(f"{ORG}/audit/events", headers=headers, content=body)


def _get(*paths: str, prepare: Callable[[ServerClient, str], object] | None = None) -> Input:
    """Paths of a large organisation."""

    def send(client: ServerClient, _: str) -> None:
        for path in paths:
            client.get(path, headers=large_org.SESSION, follow_redirects=True).raise_for_status()

    name = (
        f"large organisation: {' '.join(path.removeprefix(ORG).removeprefix(UI) for path in paths)}"
    )
    return Input(name, send, prepare or (lambda _, key: key), is_large=True)


def _explain(client: ServerClient, _: str) -> None:
    claims = {"iss": large_org.ISSUER, "aud": "countersign", "sub": "repo:acme/service-7"}
    client.post(f"{ORG}/oidc-bindings/explain", json={"claims": claims}).raise_for_status()


def _hostile_tokens(client: ServerClient, key: str) -> None:
    for token in hostile_inputs.tokens():
        headers = {"x-service-api-key": key, "x-service-ci-oidc": token}
        client.post("/api/v1/orgs/acme/install-tokens", headers=headers)
        client.post(f"{ORG}/oidc-bindings/explain", json={"token": token})


def _hostile_rows(client: ServerClient, _: str) -> None:
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    for body in hostile_inputs.ingest_bodies():
        client.post(f"{ORG}/audit/events", headers=headers, content=body)


def _hostile_bodies(client: ServerClient, _: str) -> None:
    for body in hostile_inputs.json_bodies():
        client.post(
            f"{ORG}/oidc-bindings/explain",
            headers={"content-type": "application/json"},
            content=body,
        )


def _hostile_forms(client: ServerClient, _: str) -> None:
    kinds = {
        "application/x-www-form-urlencoded": hostile_inputs.forms(),
        "multipart/form-data; boundary=b": hostile_inputs.multipart_forms(),
    }
    for kind, forms in kinds.items():
        for form in forms:
            headers = large_org.SESSION | {"content-type": kind}
            client.post(f"{UI}/bindings/explain", headers=headers, content=form)


def _hostile_documents(client: ServerClient, key: str, size: int = 62 << 20) -> None:
    for kind in hostile_inputs.VALUES:
        _page(f"npm/hostile-{kind}-{size}")(client, key)
    _page(f"pypi/simple/hostile-a-{size}/")(client, key)


def _metrics(client: ServerClient, _: str) -> object:
    return [client.get("/metrics", headers={"authorization": "Bearer scrape"}) for _ in range(5)]


def _warmed(client: ServerClient, key: str) -> None:
    """Start the worker process, and have the document parsed."""
    _page("npm/large-0")(client, key)
    time.sleep(5)


INPUTS: Final = (
    Input("npm audit with 610,610 names", _audit(610_610), _warmed),
    Input("npm audit with 150,000 names", _audit(150_000), _warmed),
    Input("policy with 5,800 ranges, saved", _put("npm", "*")),
    Input("policy with 5,800 ranges, preview of 10,000 releases", _preview, _installs),
    Input("page of 1,450 files under 5,800 ranges", _page("pypi/simple/large/"), _put("pypi", "*")),
    Input("npm document of 250 versions under 5,800 ranges", _page("npm/large"), _put("npm", "*")),
    Input("npm document of 1 MB", _page("npm/large-1"), _warmed),
    Input("npm document of 100 KB", _page("npm/usual-1"), _warmed),
    Input("10,000 rows in gzip", _ingest, _ingest),
    Input("scrapes of the metrics", _metrics),
    *(
        _get(f"{ORG}/{path}")
        for path in ("access-report", "access-report?format=csv", "api-keys", "oidc-bindings")
    ),
    *(
        _get(f"{UI}/{path}")
        for path in ("members", "teams", "projects", "keys", "bindings", "bindings/new")
    ),
    *(_get(f"{UI}/{path}") for path in ("reports/access", "audit", "audit?q=person-7")),
    _get("/admin/ui/profile", "/api/v1/session"),
    _get("/docs", "/openapi.json"),
    _get(f"{UI}/policy", f"{ORG}/policy", prepare=_put("npm", "*")),
    Input("token that nearly matches 10,000 bindings", _explain, is_large=True),
    Input("hostile CI tokens of 16 KiB", _hostile_tokens, is_large=True),
    Input("hostile rows of 5 MB", _hostile_rows),
    Input("hostile JSON of 64 KB", _hostile_bodies),
    Input("hostile forms of 64 KB", _hostile_forms, is_large=True),
    Input("hostile documents of 62 MB", _hostile_documents),
    Input("hostile documents of 256 KB", partial(_hostile_documents, size=255 << 10)),
    Input("hostile documents of 16 KB", partial(_hostile_documents, size=16_300)),
)


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="a checkout whose service is measured as well")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="only inputs whose name contains this")
    parser.add_argument("--rough", action="store_true", help="print, and record nothing")
    options = parser.parse_args()
    checkouts = {OURS: _HERE} | ({BESIDE: options.beside.resolve()} if options.beside else {})
    figures: dict[str, dict[str, float]] = {}
    with upstream() as registry, tempfile.TemporaryDirectory() as folder:
        ready = {name: _Ready(path, Path(folder) / name) for name, path in checkouts.items()}
        for each in (each for each in INPUTS if options.only in each.name):
            pauses: dict[str, list[float]] = {name: [] for name in checkouts}
            for _ in range(options.rounds):
                for name, checkout in ready.items():
                    pauses[name] += _longest_pause_ms(each, checkout, registry)
            for name, measured in filter(itemgetter(1), pauses.items()):
                figures.setdefault(f"{each.name}: median, ms", {})[name] = statistics.median(
                    measured
                )
                figures.setdefault(f"{each.name}: longest, ms", {})[name] = max(measured)
                print(f"{each.name}: {name}: {statistics.median(measured):.1f} ms", flush=True)
    if not options.rough:
        goals = {name: GOAL_MS for name in figures if "median" in name}
        record("loop", figures, estimated=goals)


class _Ready:
    """Data dirs of a checkout, of which each server gets a copy."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        """An organisation in `usual`, and in `large` with 10,000 entries of each kind."""
        self.checkout = checkout
        self._folder = folder
        self.key = _set_up(checkout, folder / "usual")
        shutil.copytree(folder / "usual", folder / "large")
        large_org.enlarge(folder / "large" / "countersign.db", "acme")

    @contextmanager
    def served(self, registry: Upstream, *, is_large: bool) -> Iterator[ServerClient]:
        """A client of a new server."""
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                "COUNTERSIGN_PROXY_PYPI_UPSTREAM": registry.pypi,
                "COUNTERSIGN_PROXY_NPM_UPSTREAM": registry.npm,
                "COUNTERSIGN_METRICS_TOKEN": "scrape",
            }
            data = Path(folder) / "data"
            shutil.copytree(self._folder / ("large" if is_large else "usual"), data)
            with running_server(data, settings, _MODULE, folder=self.checkout) as client:
                yield client


def _longest_pause_ms(each: Input, ready: _Ready, registry: Upstream) -> tuple[float, ...]:
    """The longest pause; nothing if the other checkout does not have what the input is sent to."""
    with ready.served(registry, is_large=each.is_large) as client:
        each.prepare(client, ready.key)
        client.get("/heartbeat")
        try:
            each.send(client, ready.key)
        except httpx2.ReadTimeout:  # the loop is held for longer than the client waits
            return (client.timeout.read * 1000 if client.timeout.read else 0.0,)
        except httpx2.HTTPStatusError as error:
            if ready.checkout == _HERE or error.response.status_code != 404:
                raise
            return ()
        return (float(client.get("/heartbeat").json()["longest_ms"]),)


def _set_up(checkout: Path, data: Path) -> str:
    """An organisation in a new data dir; the API key with which it installs."""
    environment = os.environ | {
        "COUNTERSIGN_DATA_DIR": str(data),
        "COUNTERSIGN_ADMIN_TOKEN": ADMIN_TOKEN,
    }

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "service.cli.main", *arguments]
        done = subprocess.run(
            command, cwd=checkout, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    run("init")
    run("org", "add", "acme", "--tier", "org")
    issue = ("apikey", "issue", "--org", "acme", "--name", "loop", "--scope", "packages:install")
    return str(json.loads(run(*issue, "--json"))["secret"])


if __name__ == "__main__":
    main()
