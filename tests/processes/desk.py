"""`countersign`, one command after the other in one process: a line of JSON in, a line out.

A fresh interpreter takes a second before it does anything; a test that needs thirty commands
starts one of these instead. Each command runs to its exit code as it would on its own.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import TextIO

from service.cli.main import main


def obey(orders: TextIO, answers: TextIO) -> None:
    """Run every `{"words": …, "environment": …}` of `orders`."""
    for line in orders:
        order = json.loads(line)
        os.environ.clear()
        os.environ.update(order["environment"])
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = _run(order["words"])
        print(json.dumps([code, out.getvalue(), err.getvalue()]), file=answers, flush=True)


def _run(words: list[str]) -> object:
    try:
        main(words, prog_name="countersign")
    except SystemExit as end:
        return end.code
    return None


if __name__ == "__main__":
    obey(sys.stdin, sys.stdout)
