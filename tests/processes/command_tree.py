"""Every command of `countersign`, as the modules themselves add them to their groups."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import click

import service.cli
from service.cli.root import root
from service.core.settings import REPOSITORY

_FENCED = re.compile(r"^(?:\$ )?countersign (.+)$", re.MULTILINE)
_INLINE = re.compile(r"`countersign ([^`]+)`")
_NAME = re.compile(r"[a-z][a-z-]*")


def every_command() -> dict[tuple[str, ...], click.Command]:
    """Commands and groups by their words, with every module imported."""
    for module in pkgutil.iter_modules(service.cli.__path__):
        importlib.import_module(f"{service.cli.__name__}.{module.name}")
    return dict(_below(root))


def _below(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from _below(command, *words, name)


def documents() -> list[Path]:
    """README and the pages of docs."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def documented_words() -> set[tuple[str, ...]]:
    """The leading names of each `countersign …` in README and docs, arguments included."""
    found = set()
    for document in documents():
        text = document.read_text()
        for line in (*_FENCED.findall(text), *_INLINE.findall(text)):
            words: list[str] = []
            for word in line.split():
                if not _NAME.fullmatch(word):
                    break
                words.append(word)
            found.add(tuple(words))
    return {words for words in found if words}
