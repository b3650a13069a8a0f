"""`countersign evidence`: proofs that rows are in the log, and their verification."""

from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from service.cli.commands import CommandPlace, declare
from service.cli.output import CommandResult
from service.cli.root import root
from service.core.errors import Invalid, Refusal
from service.core.exit_codes import ExitCode, WrongUsage

if TYPE_CHECKING:
    from analytics.evidence.notes import Checkpoint, Note, VerifierKey
    from analytics.evidence.verification import Verification

NO_CRYPTOGRAPHY: Final = Refusal.of(
    "signatures are verified with the package cryptography: install `countersign-client[evidence]`",
    status=503,
)
_Command = TypeVar("_Command", bound=Callable[..., Any])
KEY_NEEDED: Final = WrongUsage.of("a receipt brings no key: give --key or --policy")
NO_KEY: Final = WrongUsage.of("--key is empty: give a key, or a file with keys")


def key_option(*, is_required: bool) -> Callable[[_Command], _Command]:
    """The option with the keys that signatures are verified with, see `log_keys`."""
    return click.option(
        "--key",
        "keys",
        metavar="VKEY|FILE",
        multiple=True,
        required=is_required,
        help="A key of the log that you trust, or a file with such keys.",
    )


@root.group("evidence")
def evidence() -> None:
    """Evidence: proofs that the log has rows as they are."""


@declare(evidence, "verify", place=CommandPlace.LOCAL)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@key_option(is_required=False)
@click.option(
    "--policy",
    "policy_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The logs and witnesses that you trust (c2sp.org/tlog-policy).",
)
@click.option(
    "--complete",
    "is_complete",
    is_flag=True,
    help="Rows left out between the first and the last one of a bundle are a fault.",
)
def verify(
    path: Path, keys: tuple[str, ...], policy_path: Path | None, is_complete: bool
) -> CommandResult:
    """Verify a bundle, or a signed receipt with its export beside it, offline.

    Needs no server and no data dir. Without --key and --policy the keys that a bundle brings are
    used: compare them with those that the operator gave you. Exit code 0 means that all is as it
    was signed, 1 that something is not: what it is, is listed.
    """
    if keys and policy_path is not None:
        raise click.UsageError("--key and --policy exclude each other")
    logs = log_keys(keys)
    from analytics.evidence.bundle import verify_bundle
    from analytics.evidence.policies import InvalidPolicy, Policy
    from analytics.evidence.receipts import is_receipt, verify_receipt_file

    try:
        policy = None if policy_path is None else Policy.parse(policy_path.read_bytes())
    except InvalidPolicy as error:
        raise Invalid(f"{policy_path}: {error}") from error
    if not is_receipt(path):
        with path.open("rb") as file:
            return _told(path, verify_bundle(file, policy, logs, is_complete=is_complete))
    if policy is None and not logs:
        raise KEY_NEEDED
    return _told(path, verify_receipt_file(path, policy or Policy(logs)))


def log_keys(given: tuple[str, ...]) -> "tuple[VerifierKey, ...]":
    """The keys that are given, or are in files that are: some, if any are given.

    Raises Invalid, NO_KEY, NO_CRYPTOGRAPHY.
    """
    if find_spec("cryptography") is None:
        raise NO_CRYPTOGRAPHY
    from analytics.evidence.policies import InvalidPolicy, Policy

    texts = (Path(each).read_text() if Path(each).is_file() else each for each in given)
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    if given and not lines:  # such as an unset variable: without any the bundle's own would do
        raise NO_KEY
    # One by one: a policy may not have one key under the names of several logs.
    try:
        policies = [Policy.parse(f"log {line}\nquorum none\n".encode()) for line in lines]
    except InvalidPolicy as error:
        raise Invalid(f"--key: {error}") from error
    return tuple(key for policy in policies for key in policy.logs)


def read_checkpoint(path: Path) -> "tuple[Note, Checkpoint]":
    """The checkpoint in the file. Raises Invalid."""
    from analytics.evidence.notes import Checkpoint, Note

    try:
        note = Note.parse(path.read_text())
        return note, Checkpoint.parse(note.text)
    except ValueError as error:
        raise Invalid(f"{path} is not a checkpoint: {error}") from error


def _told(path: Path, result: "Verification") -> CommandResult:
    """The result for people and scripts; exit code 1 if anything is wrong."""
    is_verified = not result.findings
    lines = [f"{path} is {'verified' if is_verified else 'NOT as it was signed'}."]
    for heading, sentences in (
        ("Wrong", result.findings),
        ("Proved", result.proved),
        ("Not proved", result.not_proved),
    ):
        lines += [f"{heading}:", *(f"  {sentence}" for sentence in sentences)] if sentences else []
    data = {"path": str(path), "is_verified": is_verified, **asdict(result)}
    return CommandResult(data, lines, code=ExitCode.DONE if is_verified else ExitCode.FAILED)
