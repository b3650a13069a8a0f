"""What is frozen word for word: the OpenAPI document, and the help of every command."""

import json
from collections.abc import Iterator
from typing import Final

from service.core.version import service_version
from tests.processes.command_line import invoke
from tests.processes.command_tree import every_command

WIDTH: Final = {"COLUMNS": "80"}


def shown_document(body: bytes) -> str:
    """The OpenAPI document with a line for each member, in the order in which it is served.

    Without the version of the service, which differs from commit to commit.
    """
    text = json.dumps(json.loads(body), indent=1, ensure_ascii=False) + "\n"
    return text.replace(service_version(), "{version}")


def shown_help() -> Iterator[tuple[str, str]]:
    for words in [(), *every_command()]:
        ran = invoke((*words, "--help"), WIDTH)
        yield " ".join(("countersign", *words)), ran.out + ran.err


def all_help() -> str:
    return "".join(f"=== {words} --help\n{text}\n" for words, text in shown_help())
