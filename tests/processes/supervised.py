"""What processes that tests start run; they import no more than that.

A module of tests would take each of them a second.
"""

import os
import signal
from pathlib import Path

from service.app.watchdog import Serving
from tests.polling import eventually


def end_at_once(number: int, serving: Serving) -> None:
    """A process that serves nothing."""
    raise SystemExit(3)


def end_after_serving(number: int, serving: Serving) -> None:
    """A process that dies of a signal as soon as it serves."""
    serving()
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_the_first_start(folder: Path, number: int, serving: Serving) -> None:
    """A process that is killed before it serves, as on a machine without memory; then it serves."""
    if not (folder / "started").exists():
        (folder / "started").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    serving()
    (folder / "serves").touch()
    signal.pause()


def fail_beside_one_that_serves(folder: Path, number: int, serving: Serving) -> None:
    """The first serves; the second fails each time, once the first serves."""
    if number == 0:
        serving()
        (folder / "serves").touch()
        signal.pause()
    eventually((folder / "serves").exists, "the first serves")
    with (folder / "failed").open("a") as file:
        file.write("x")
    raise SystemExit(3)


def hold_the_loop(folder: Path, number: int, serving: Serving) -> None:
    """A process whose loop turns once and is then held; the next one is well."""
    serving()
    serving.turns._count.value += 1
    if (folder / "held").exists():
        (folder / "replaced").touch()
        signal.pause()
    (folder / "held").touch()
    hold()


def hold() -> None:
    """The function that the stacks must name. SIGTERM does not end it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def serve_until_ended(folder: Path, number: int, serving: Serving) -> None:
    serving()
    (folder / "serves").touch()
    signal.pause()


def note_and_end(folder: Path, code: int, is_overdue: bool, serving: Serving) -> None:
    """A process in the background that ends early, but for the third time."""
    with (folder / "starts").open("a") as file:
        file.write("overdue\n" if is_overdue else "idle\n")
    if len((folder / "starts").read_text().splitlines()) < 3:
        raise SystemExit(code)
    (folder / "third").touch()
    signal.pause()


def die_in_a_process_of_its_own(server: int) -> None:
    """As a parser that crashes: it must not run in the server."""
    assert os.getpid() != server, "computed in the server"
    os._exit(1)
