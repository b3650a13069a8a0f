"""`make goldens OUT=folder`: write down what the service answers, for comparison by `diff -r`.

Endpoints, pages and commands are found in the app and the command line themselves. What differs
from run to run is replaced, so that two runs of one commit are equal to the byte.
"""

import argparse
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.goldens.api import Endpoint, Recorder, is_api, samples_of, usual_headers
from tests.goldens.commands import Bench, shown_commands
from tests.goldens.contract import update
from tests.goldens.documents import shown_document, shown_help
from tests.goldens.fixed import make_repeatable
from tests.goldens.pages import file_name, page_rules, shown_forms, shown_pages, visit
from tests.goldens.world import Installation, copies, found, served_document

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a file system where a sync costs nothing


class Output:
    """The folder that goldens are written to: those whose path `only` matches."""

    def __init__(self, folder: Path, only: str) -> None:
        self._folder, self._only = folder, re.compile(only)

    def wants(self, path: str) -> bool:
        return self._only.search(path) is not None

    def write(self, path: str, text: str) -> None:
        if self.wants(path):
            file = self._folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def write_all(output: Output, folder: Path) -> None:
    """Write all goldens that are wanted, with installations in `folder`."""
    for words, text in shown_help():
        output.write(f"help/{words.replace(' ', '-')}.txt", text)
    made = found(folder / "original")
    document, text = served_document(made, folder / "document")
    output.write("openapi.json", shown_document(text))
    for path, text in _api(made, folder / "api", document, output):
        output.write(path, text)
    for path, text in _pages(made, folder / "pages", document, output):
        output.write(path, text)
    with closing(Bench(made, folder / "commands")) as bench:
        for name, text in shown_commands(bench, lambda name: output.wants(f"json/{name}.txt")):
            output.write(f"json/{name}.txt", text)


def _api(
    made: Installation, folder: Path, document: Any, output: Output
) -> Iterator[tuple[str, str]]:
    normalised = Installation(folder).normalised
    with copies(made, folder) as used:
        recorder = Recorder(used, usual_headers(used.app))
        for method, rule in list(used.app.rules()):
            path = f"api/{method}_{file_name(rule)}.txt"
            if is_api(rule, document) and output.wants(path):
                samples = samples_of(Endpoint(method, rule, document, made.ids), recorder)
                yield path, "\n".join(map(normalised, samples))


def _pages(
    made: Installation, folder: Path, document: Any, output: Output
) -> Iterator[tuple[str, str]]:
    if not output.wants("pages/"):
        return
    normalised = Installation(folder).normalised
    with copies(made, folder) as used:
        usual, visited = usual_headers(used.app), visit(used, document)
        for caller, name, text in shown_pages(used.app, visited, usual):
            yield f"pages/{caller}/{name}.html", normalised(text)
        rules = [
            rule
            for rule in page_rules(used.app, document, "POST")
            if output.wants(f"pages/forms/{file_name(rule)}.txt")
        ]
        for rule, text in shown_forms(used, visited, rules, usual):
            yield f"pages/forms/{file_name(rule)}.txt", normalised(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="a new folder")
    parser.add_argument("--only", default="", help="a pattern: only goldens whose path it matches")
    parser.add_argument("--update", action="store_true", help="rewrite the files of the contract")
    asked = parser.parse_args()
    if asked.update:
        update()
    if asked.folder is None:
        return
    asked.folder.mkdir(parents=True)
    make_repeatable(1)
    place = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="goldens-", dir=place) as folder:
        write_all(Output(asked.folder, asked.only), Path(folder))


if __name__ == "__main__":
    main()
