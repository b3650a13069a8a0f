"""Claim: the install proxy answers and installs as fast as proxies that decide and record nothing.

One registry on loopback, which sends bytes that it has ready, is asked directly and through each
proxy in turn. A peer that is not installed (`benchmarks/setup_proxies.sh`) is named and left out.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.proxies.figures import NPM, PYPI, of_documents, of_installs
from benchmarks.proxies.peers import PROXIES, NotInstalled, Opens, Proxy
from benchmarks.proxies.registry import Upstream, upstream
from benchmarks.results import record

ESTIMATED = {
    "small PyPI page, requests/s": 2000.0,
    "1 MB PyPI page p50, ms": 5.0,
    "20 MB PyPI page cold: longest pause, ms": 20.0,
    "20 MB npm document cold: longest pause, ms": 20.0,
    "memory after 1,000 packages of PyPI, MB": 250.0,
    "memory after 1,000 packages of npm, MB": 250.0,
    "uv install, warm, × direct": 1.2,
}
"""What our own proxy should reach."""


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-installs", action="store_true", help="documents alone")
    parser.add_argument("--only", choices=[each.__name__ for each in PROXIES], help="one proxy")
    parser.add_argument("--rough", action="store_true", help="print, and record nothing")
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    wanted = [each for each in PROXIES if options.only in {None, each.__name__}]
    with upstream() as registry:
        for kind in (PYPI, NPM):
            for open_proxy in wanted:
                # Each alone on the machine, and with nothing in its memory.
                with _running(registry, [open_proxy]) as proxies:
                    for proxy in proxies:
                        if kind.url(proxy):
                            for name, figure in of_documents(proxy, kind, registry).items():
                                print(f"{proxy.name}: {name}: {figure:.4g}", flush=True)
                                figures.setdefault(name, {})[proxy.name] = figure
        if not options.without_installs:
            with _running(registry, PROXIES) as proxies:
                figures |= of_installs(proxies, registry)
    for name, by_proxy in figures.items():
        print(f"{name}: " + ", ".join(f"{who} {value:.4g}" for who, value in by_proxy.items()))
    if not options.rough:
        record("proxy", figures, estimated=ESTIMATED)


@contextmanager
def _running(registry: Upstream, wanted: Sequence[Opens]) -> Iterator[list[Proxy]]:
    """The proxies that are installed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxies = []
        for open_proxy in wanted:
            try:
                proxies.append(stack.enter_context(open_proxy(registry, folder)))
            except NotInstalled as missing:
                print(f"{missing} is not installed: left out")
        yield proxies


if __name__ == "__main__":
    main()
