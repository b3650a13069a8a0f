"""Claim: the load of one organisation leaves the newest page of another quick.

While organisation A attacks, organisation B requests its newest page, or installs a small package;
alternating with B alone on the same server. Served as documented, over HTTP; with `--beside` also
by another checkout, which has a virtual environment of its own, in the same rounds.
"""

import argparse
import json
import multiprocessing
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.attacks import (
    ALLY,
    API,
    ATTACKS,
    Attack,
    Attacker,
    RegistryBusy,
    file_path,
    installing,
    items,
)
from benchmarks.client import Client, Times, timed
from benchmarks.lake import SETS, VERSION, tenant_id
from benchmarks.results import record
from benchmarks.served import SLUG
from benchmarks.server import ADMIN, running_server
from benchmarks.slow_registry import SLOW_S, slow_registry

ROOT = Path(__file__).parents[1]
B = tenant_id(1).replace("_", "-")
PAGE = f"/api/v1/admin/orgs/{B}/audit?limit=50"
SPAWN = multiprocessing.get_context("spawn")
RAMP_S = 1.5
"""How long an attack runs before B's pages are timed."""

PAUSE_S = 0.02
"""Between two pages of B: it is one person or script, and no load of its own."""

INSTALL_MAX_S = 10.0
"""What an install counts as that has not succeeded by then."""

_SET_UP = """
import asyncio, sys
from pathlib import Path
from benchmarks.lake import all_segments, tenant_id
from benchmarks.served import found
folder, rows, data_dir = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
both = {tenant_id(0), tenant_id(1)}
segments = [each for each in all_segments(folder, rows) if each.tenant_id in both]
asyncio.run(found(segments, folder / "audit", data_dir))
"""


@dataclass
class Side:
    """One checkout's server, and B's times of each attack, with it and without, by round."""

    port: int
    key_of_b: str
    keys_of_attack: tuple[str, str]
    alone_ms: dict[str, list[float]] = field(default_factory=dict)
    under_ms: dict[str, list[float]] = field(default_factory=dict)

    def b_ms(self, attack: Attack, seconds: float) -> float:
        """The median time of what B does: its newest page, or an install; one at least."""
        work = _install if attack.is_at_registries else _page
        headers = installing(self.key_of_b) if attack.is_at_registries else ADMIN
        with Client(self.port, headers, timeout_s=120.0) as client:
            times = _for_seconds(lambda: work(client), seconds)
        return times.percentile(50)

    def round(self, attack: Attack, seconds: float) -> None:
        """B alone, then under `attack`."""
        self.alone_ms.setdefault(attack.name, []).append(self.b_ms(attack, seconds))
        before = len(self.under_ms.get(attack.name, []))
        with attacking(attack, self.port, self.keys_of_attack, before):
            self.under_ms.setdefault(attack.name, []).append(self.b_ms(attack, seconds))
        if attack.is_at_registries:
            time.sleep(SLOW_S)  # what A requested goes on without it
            self.b_ms(attack, 0)

    def check(self, attack: Attack) -> None:
        """Fail if a part of `attack` never happened, of which B's times then say nothing."""
        if attack.missed is not None:
            with Client(self.port, ADMIN, timeout_s=120.0) as client:
                missed = attack.missed(client)
            assert not missed, f"{attack.name}: these never ran: {missed}"

    def ratios(self, attack: Attack) -> list[float]:
        """By round, B under `attack` beside B alone."""
        pairs = zip(self.under_ms[attack.name], self.alone_ms[attack.name], strict=True)
        return sorted(under / alone for under, alone in pairs)


def _page(client: Client) -> None:
    answer = client.get(PAGE)
    assert answer.status == 200, answer.body


def _install(client: Client) -> None:
    """The page and the file of a package that is not in the cache, as soon as there are both."""
    name, gives_up_at = f"small-{secrets.token_hex(8)}", time.monotonic() + INSTALL_MAX_S
    while time.monotonic() < gives_up_at:
        with suppress(RegistryBusy):
            if client.get(file_path(client, B, name)).status == 200:
                return
        time.sleep(0.1)


def _for_seconds(work: Callable[[], object], seconds: float) -> Times:
    ends_at, times = time.monotonic() + seconds, list[float]()
    while not times or time.monotonic() < ends_at:
        times += timed(work, 1).sorted_ms
        time.sleep(PAUSE_S)
    return Times(tuple(sorted(times)))


@contextmanager
def attacking(attack: Attack, port: int, keys: tuple[str, str], before: int) -> Iterator[None]:
    """In the block `attack` runs, in a process of its own, after so many rounds `before`."""
    begun, over = SPAWN.Event(), SPAWN.Event()
    process = SPAWN.Process(target=attack_with, args=(attack, port, keys, before, begun, over))
    process.start()
    begun.wait()
    time.sleep(RAMP_S)
    try:
        yield
    finally:
        over.set()
        process.join(5)
        process.kill()  # what waits for an answer would outlast the attack
        process.join()
        time.sleep(RAMP_S)


def attack_with(
    attack: Attack, port: int, keys: tuple[str, str], before: int, begun: Event, over: Event
) -> None:
    """The attacking process."""
    attackers = [Attacker(port, keys, number, over, before) for number in range(attack.threads)]
    threads = [
        threading.Thread(target=attack.run, args=(attacker,), daemon=True) for attacker in attackers
    ]
    for thread in threads:
        thread.start()
    begun.set()
    over.wait()


@contextmanager
def side(
    checkout: Path, name: str, rows: int, workers: int, registry: dict[str, str]
) -> Iterator[Side]:
    """The server of `checkout`, over rows that its own code has written."""
    folder = SETS / f"fairness-{name}-{rows}-v{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    python = str(checkout / ".venv" / "bin" / "python")
    with tempfile.TemporaryDirectory(dir=folder) as data_dir:
        set_up = [python, "-c", _SET_UP, str(folder), str(rows), data_dir]
        subprocess.run(set_up, cwd=checkout, check=True)
        run = partial(_command, checkout, Path(data_dir))
        run("org", "add", ALLY, "--tier", "org")
        of_b, *of_attack = (_key(run, slug) for slug in (B, SLUG, ALLY))
        # Each of A's downloads that ends early would be a line of the log.
        quiet = {"COUNTERSIGN_WORKERS": str(workers), "COUNTERSIGN_LOG_LEVEL": "error"}
        settings = quiet | registry
        with running_server(Path(data_dir), settings, python=python, folder=checkout) as client:
            port = client.base_url.port
            assert port is not None
            for _ in range(20):  # what a preview looks at: installs of the last 30 days
                sent = client.post(f"{API}/audit/events", content=items(1_000), headers=_JSON)
                assert sent.status_code == 200, sent.text
            for _ in range(20):
                client.get(PAGE)
            yield Side(port, of_b, (of_attack[0], of_attack[1]))


def _command(checkout: Path, data_dir: Path, *arguments: str) -> dict[str, str]:
    """What a command of `checkout` tells."""
    python = str(checkout / ".venv" / "bin" / "python")
    command = [python, "-m", "service.cli.main", *arguments, "--json"]
    environment = os.environ | {"COUNTERSIGN_DATA_DIR": str(data_dir)}
    done = subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
    told: dict[str, str] = json.loads(done.stdout)
    return told


def _key(run: Callable[..., dict[str, str]], slug: str) -> str:
    """A new API key with which the organisation installs."""
    issue = ("apikey", "issue", "--org", slug, "--name", "ci", "--scope", "packages:install")
    return run(*issue)["secret"]


_JSON = {"content-type": "application/json"}


def figures(attack: Attack, sides: dict[str, Side], workers: int) -> dict[str, dict[str, float]]:
    """The lines of `attack` in the table of docs/benchmarks.md."""
    name = attack.name if workers == 1 else f"{attack.name}; {workers} workers"
    told: dict[str, dict[str, float]] = {}
    for column, own in sides.items():
        ratios = own.ratios(attack)
        under = own.under_ms[attack.name]
        alone = own.alone_ms[attack.name]
        told.setdefault(f"{name}: B alone p50, ms", {})[column] = statistics.median(alone)
        what = "install" if attack.is_at_registries else "page"
        told.setdefault(f"{name}: B's {what} p50, ms", {})[column] = statistics.median(under)
        told.setdefault(f"{name}: beside alone, ratio", {})[column] = statistics.median(ratios)
        told.setdefault(f"{name}: lowest, ratio", {})[column] = ratios[0]
        told.setdefault(f"{name}: highest, ratio", {})[column] = ratios[-1]
        print(
            f"{name:<34} {column:<12} alone {statistics.median(alone):6.1f} ms"
            f"   {what} {statistics.median(under):8.1f} ms"
            f"   beside alone {statistics.median(ratios):6.2f}"
            f" ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            f"   goal {attack.ratio_max:.0f}",
            flush=True,
        )
    return told


def main() -> None:
    """Try every attack, and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--workers", type=int, action="append", help="1 and 2 by default")
    parser.add_argument("--beside", type=Path, help="another checkout with its own .venv")
    parser.add_argument("--only", action="append", help="a part of the name of an attack")
    given = parser.parse_args()
    wanted = [a for a in ATTACKS if not given.only or any(part in a.name for part in given.only)]
    told: dict[str, dict[str, float]] = {}
    goals: dict[str, float] = {}
    for workers in given.workers or [1, 2]:
        with ExitStack() as stack:
            registry = stack.enter_context(slow_registry())
            checkouts = {"Countersign": ROOT} | ({"before": given.beside} if given.beside else {})
            sides = {
                column: stack.enter_context(
                    side(path.resolve(), column, given.rows, workers, registry)
                )
                for column, path in checkouts.items()
            }
            for attack in wanted:
                for _ in range(max(given.rounds, attack.rounds_min)):
                    for own in sides.values():
                        own.round(attack, given.seconds)
                for own in sides.values():
                    own.check(attack)
                lines = figures(attack, sides, workers)
                told |= lines
                goals |= {name: attack.ratio_max for name in lines if "beside alone" in name}
    if not given.only:
        record("fairness", told, estimated=goals)


if __name__ == "__main__":
    sys.exit(main())
