"""What is measured of each proxy; a figure's name ends with its unit."""

import json
import os
import statistics
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.client import Client, timed
from benchmarks.memory import line_mb
from benchmarks.proxies import packages
from benchmarks.proxies.holds import trickle
from benchmarks.proxies.installs import Installer, available, install_s
from benchmarks.proxies.peers import Proxy
from benchmarks.proxies.registry import Upstream

REQUESTS, LARGE_REQUESTS, COLD_REQUESTS, HUGE_REQUESTS = 4_000, 200, 7, 3
PACKAGES: Final = 1_000
COLD_INSTALLS, WARM_INSTALLS = 3, 7

Figures = dict[str, float]


@dataclass(frozen=True)
class Kind:
    """The documents of an ecosystem."""

    label: str
    accept: str
    url: Callable[[Proxy], str | None]
    ending: str


PYPI: Final = Kind("PyPI page", packages.SIMPLE, lambda proxy: proxy.pypi, "/")
NPM: Final = Kind("npm document", packages.FULL, lambda proxy: proxy.npm, "")


class Documents:
    """The documents of one kind that a proxy has."""

    def __init__(self, proxy: Proxy, kind: Kind, upstream: Upstream) -> None:
        self._proxy, self._kind = proxy, kind
        parts = urlsplit(str(kind.url(proxy)))
        self._path = parts.path
        self._client = Client(parts.port or 0, _headers(proxy, kind))
        # So that the registry has ready what it makes when it is first asked.
        own = urlsplit(upstream.pypi if kind is PYPI else upstream.npm)
        self._upstream, self._upstream_path = Client(own.port or 0, {}), own.path

    def get(self, name: str) -> bytes:
        """The document of a package."""
        answer = self._client.get(f"{self._path}{name}{self._kind.ending}")
        assert answer.status == 200, (self._proxy.name, name, answer.status)
        return answer.body

    def make(self, name: str) -> None:
        """Have the registry make the document."""
        self._upstream.get(f"{self._upstream_path}{name}{self._kind.ending}")

    @property
    def has_heartbeat(self) -> bool:
        """Whether its server says how long its event loop was blocked (`watched_server`)."""
        return self._proxy.heartbeat is not None

    def pause_ms(self) -> float:
        """The longest pause of the event loop since the call before, which began to watch it."""
        path = urlsplit(str(self._proxy.heartbeat)).path
        return float(json.loads(self._client.get(path).body)["longest_ms"])

    def trickle(self) -> str:
        """The URL of a tiny document that is there."""
        self.get("small")
        return f"{self._kind.url(self._proxy)}small{self._kind.ending}"


def of_documents(proxy: Proxy, kind: Kind, upstream: Upstream) -> Figures:
    """Warm and cold documents, pauses, and memory."""
    documents = Documents(proxy, kind, upstream)
    status = Path(f"/proc/{proxy.process_id}/status")
    before_mb = line_mb(status, "VmRSS")
    for name in ("small", "large"):
        documents.make(name)
        documents.get(name)
    figures = {
        f"small {kind.label}, requests/s": _per_core(proxy, lambda: documents.get("small")),
    }
    warm = timed(lambda: documents.get("large"), LARGE_REQUESTS)
    figures[f"1 MB {kind.label} p50, ms"] = warm.percentile(50)
    figures[f"1 MB {kind.label} p99, ms"] = warm.percentile(99)
    figures[f"1 MB {kind.label} cold, ms"] = statistics.median(
        _cold(documents, "large", COLD_REQUESTS)
    )
    if proxy.name == "direct":
        return figures
    for number in range(PACKAGES):
        documents.get(f"usual-{number}")
    after_mb = line_mb(status, "VmRSS")
    packages_of = f"{PACKAGES:,} packages of {kind.label.split()[0]}"
    figures[f"memory after {packages_of}, MB"] = after_mb
    figures[f"memory that {packages_of} add, MB"] = after_mb - before_mb
    return figures | _of_huge(proxy, kind, documents)


def _of_huge(proxy: Proxy, kind: Kind, documents: Documents) -> Figures:
    """The first request for documents of 20 MB, and what others wait meanwhile."""
    url, headers = documents.trickle(), _headers(proxy, kind)
    for number in range(HUGE_REQUESTS):
        documents.make(f"huge-{number}")
    if documents.has_heartbeat:
        documents.pause_ms()
    with trickle(url, headers) as seen:
        cold = list(_cold(documents, "huge", HUGE_REQUESTS))
    figures = {
        f"20 MB {kind.label} cold, ms": statistics.median(cold),
        f"20 MB {kind.label} cold: longest other request, ms": seen.longest_ms,
    }
    if documents.has_heartbeat:
        figures[f"20 MB {kind.label} cold: longest pause, ms"] = documents.pause_ms()
    return figures


def _cold(documents: Documents, size: str, count: int) -> Iterator[float]:
    """The times of the first requests for so many documents."""
    for number in range(count):
        name = f"{size}-{number}"
        documents.make(name)
        yield timed(lambda name=name: documents.get(name), 1).percentile(50)  # type: ignore[misc]


def of_installs(proxies: list[Proxy], upstream: Upstream) -> dict[str, dict[str, float]]:
    """Seconds of each package manager by figure and proxy; the proxies take turns."""
    figures: dict[str, dict[str, float]] = {}
    for installer in available():
        asked = [proxy for proxy in proxies if installer.url(proxy)]
        cold = [f"{installer.name}{number}" for number in range(COLD_INSTALLS)]
        for number in cold:
            install_s(installer, proxies[0], number)  # the registry makes its files
        for label, numbers in (("cold", cold), ("warm", [cold[0]] * WARM_INSTALLS)):
            times = _in_turns(installer, asked, numbers)
            name = f"{installer.name} install, {label}"
            figures[f"{name}, s"] = {proxy.name: min(times[proxy.name]) for proxy in asked}
            least_s = figures[f"{name}, s"][proxies[0].name]
            figures[f"{name}, × direct"] = {
                proxy.name: min(times[proxy.name]) / least_s for proxy in asked[1:]
            }
    return figures


def _in_turns(
    installer: Installer, proxies: list[Proxy], numbers: list[str]
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {proxy.name: [] for proxy in proxies}
    for number in numbers:
        for proxy in proxies:
            times[proxy.name].append(install_s(installer, proxy, number))
    return times


def _headers(proxy: Proxy, kind: Kind) -> dict[str, str]:
    if proxy.password is None:
        return {"accept": kind.accept}
    basic = b64encode(f"user:{proxy.password}".encode()).decode()
    return {"accept": kind.accept, "authorization": f"Basic {basic}"}


def _processor_s(process_id: int) -> float:
    """The processor time that a process has taken so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _per_core(proxy: Proxy, ask: Callable[[], object]) -> float:
    """Requests for each second of a core: other work on the machine does not count."""
    began_s = _processor_s(proxy.process_id)
    for _ in range(REQUESTS):
        ask()
    return REQUESTS / max(_processor_s(proxy.process_id) - began_s, 0.01)
