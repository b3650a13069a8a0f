"""`countersign ci exec`: a job's command, with every package manager pointed at the proxy."""

import asyncio
import base64
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final

import click

from service.cli.ci_token import WAITS_S, CiToken, get_ci_token, token_source
from service.cli.client import Client, ServerRefusal, install_tokens_path
from service.cli.commands import ORG_MISSING, CommandPlace, declare
from service.cli.logins import Credential, credential_of
from service.cli.output import CommandResult
from service.cli.root import root
from service.cli.target import ORG_VARIABLE, SERVER_VARIABLE, parse_server
from service.core.errors import Invalid, Refusal
from service.core.exit_codes import ExitCode
from service.core.header_names import CI_TOKEN_HEADER
from service.packages.clients import USER, ProxyAddress
from service.packages.ecosystems import all_variables
from service.packages.npm.clients import npmrc

KEY_VARIABLE: Final = "COUNTERSIGN_API_KEY"
_UNAUTHORIZED: Final = 401


class KeyNotAccepted(Refusal):
    """The server does not accept the API key."""

    status = 401


@dataclass(frozen=True, slots=True)
class CiExchange:
    """What a job exchanges, and where."""

    address: ProxyAddress
    key: Credential
    audience: str
    token_variable: str | None
    environment: Mapping[str, str] = field(repr=False)


@root.group("ci")
def ci() -> None:
    """CI jobs: install through the proxy, in the name of the job."""


@declare(
    ci,
    "exec",
    place=CommandPlace.SERVER,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--url",
    "--server",
    "url",
    metavar="URL",
    envvar=SERVER_VARIABLE,
    help="The server; default: COUNTERSIGN_SERVER.",
)
@click.option(
    "--org",
    "slug",
    metavar="SLUG",
    envvar=ORG_VARIABLE,
    help="The organisation; default: COUNTERSIGN_ORG.",
)
@click.option(
    "--token-env",
    "token_variable",
    metavar="NAME",
    help="The variable with the job's OIDC token; default: COUNTERSIGN_ID_TOKEN, or requested from"
    " GitHub.",
)
@click.option(
    "--audience",
    default="countersign",
    show_default=True,
    help="The audience of a token requested from GitHub.",
)
@click.option("--insecure", "is_insecure", is_flag=True, help="Allow http:// to another machine.")
@click.option(
    "--print-env", "prints", is_flag=True, help="First show what is set, with the token hidden."
)
@click.option(
    "--dry-run", "is_dry", is_flag=True, help="Show what would be set and run; ask for no token."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(
    url: str | None,
    slug: str | None,
    token_variable: str | None,
    audience: str,
    command: tuple[str, ...],
    *,
    is_insecure: bool,
    prints: bool,
    is_dry: bool,
) -> CommandResult:
    """Run COMMAND with every package manager pointed at the proxy.

    Exchanges the API key in COUNTERSIGN_API_KEY and the job's OIDC token for an install token,
    which works for an hour, and sets it in the environment of COMMAND alone. The API key is left
    out of that environment. Ends with the exit code of COMMAND.

    Example: countersign ci exec --url https://audit.example --org acme -- npm ci
    """
    job = _job(url, slug, token_variable, audience, is_insecure=is_insecure)
    if is_dry:
        return _plan(job, command)
    if prints:
        for line in _assignments(job.address):
            click.echo(line, err=True)
    sys.exit(_run(job, command))


def _job(
    url: str | None,
    slug: str | None,
    token_variable: str | None,
    audience: str,
    *,
    is_insecure: bool,
) -> CiExchange:
    """The job as its options and environment have it. Raises Invalid."""
    if not url:
        raise Invalid(f"name the server: --url URL, or {SERVER_VARIABLE}")
    if not slug:
        raise Invalid(ORG_MISSING.text)
    server = parse_server(url, is_insecure=is_insecure)
    secret = os.environ.get(KEY_VARIABLE, "")
    if not secret:
        raise Invalid(
            f"{KEY_VARIABLE} is empty: issue a key with `countersign apikey issue --scope"
            " packages:install`, and store it as a secret of the CI provider"
        )
    key = credential_of(secret)
    if key.kind != "api_key":
        raise Invalid(f"{KEY_VARIABLE} is no API key (cs_…)")
    return CiExchange(ProxyAddress(server, slug), key, audience, token_variable, dict(os.environ))


def _plan(job: CiExchange, command: Sequence[str]) -> CommandResult:
    source = token_source(job.environment, job.token_variable)
    data: dict[str, Any] = {
        "server": job.address.server,
        "org": job.address.org,
        "token_from": source,
        "environment": display_variables(job.address),
        "left_out": list(_left_out(source)),
        "command": list(command),
    }
    lines = [
        f"Would exchange the token from {source} at {job.address.server}, and run with",
        *(f"  {line}" for line in _assignments(job.address)),
        f"  {shlex.join(command)}",
    ]
    return CommandResult(data, lines)


def _assignments(address: ProxyAddress) -> list[str]:
    return [f"{name}={value}" for name, value in display_variables(address).items()]


def _left_out(token_variable: str | None) -> tuple[str, ...]:
    return (KEY_VARIABLE, *(() if token_variable is None else (token_variable,)))


def _run(job: CiExchange, command: Sequence[str]) -> int:
    """The exit code of `command`, run with an install token. Raises Refusal."""
    ci_token = get_ci_token(job.environment, job.token_variable, job.audience)
    _mask(job.environment, ci_token.token)
    try:
        token = asyncio.run(_exchanged(job, ci_token))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    _mask(job.environment, token)
    for name in BYPASSES:
        if job.environment.get(name):
            click.echo(
                f"countersign: {name} is set: packages from there are neither checked nor recorded",
                err=True,
            )
    with install_environment(
        job.environment, job.address, token, command=command, secrets=_left_out(ci_token.variable)
    ) as environment:
        try:
            return Child().run(command, environment)
        except FileNotFoundError:
            click.echo(f"countersign: no command {command[0]}", err=True)
            return NOT_FOUND
        except OSError as error:
            click.echo(f"countersign: cannot run {command[0]}: {error.strerror}", err=True)
            return NOT_EXECUTABLE


async def _exchanged(job: CiExchange, ci_token: CiToken) -> str:
    """An install token for the API key and the job's token. Raises ServerRefusal, KeyNotAccepted.

    Tried again while the server asks for that: a build should not fail because it restarts.
    """
    path = install_tokens_path(job.address.org)
    headers = {CI_TOKEN_HEADER: ci_token.token}
    async with Client(job.address.server, job.key) as client:
        for wait_s in (*WAITS_S, None):
            try:
                answer = await client.post(path, b"", headers)
                return str(answer["token"])
            except ServerRefusal as refusal:
                if refusal.answered_status == _UNAUTHORIZED:
                    raise KeyNotAccepted(
                        f"{client.server} does not accept the API key in {KEY_VARIABLE}:"
                        f" {refusal.code}"
                    ) from refusal
                if wait_s is None or not refusal.is_temporary:
                    raise
                await asyncio.sleep(wait_s)
    raise AssertionError("the last try returns or raises")


def _mask(environment: Mapping[str, str], secret: str) -> None:
    """Have GitHub hide the secret wherever the job prints it, also as Basic authentication."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return
    basic = base64.b64encode(f"{USER}:{secret}".encode()).decode()
    for text in (secret, basic):
        # Its runner reads commands on standard error, too; standard output is COMMAND's alone.
        click.echo(f"::add-mask::{text}", err=True)


USERCONFIG: Final = "NPM_CONFIG_USERCONFIG"
HIDDEN: Final = "***"
BYPASSES: Final = ("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
"""Variables that make clients fetch packages from elsewhere, past the proxy."""

_NPM_BYTES_MAX: Final = 1 << 20
_REGISTRY: Final = re.compile(r"\s*registry\s*=", re.ASCII)
_WITHOUT_YARN: Final = frozenset({"npm", "npx", "pnpm", "pnpx"})


@contextmanager
def install_environment(
    environment: Mapping[str, str],
    address: ProxyAddress,
    token: str,
    *,
    command: Sequence[str],
    secrets: Sequence[str] = (),
) -> Iterator[dict[str, str]]:
    """`environment` with every client pointed at the proxy, while the block runs.

    The variables named in `secrets` are left out: install scripts must not get secrets that outlive
    the token. npm's file is readable only by this user, and is removed at the end of the block.
    """
    ours = all_variables(address, token)
    with TemporaryDirectory(prefix="countersign-") as folder:
        file = Path(folder) / "npmrc"
        ours[USERCONFIG] = str(file)
        is_for_yarn_1 = Path(command[0]).name not in _WITHOUT_YARN
        content = _without_registry(_former(environment)) + npmrc(
            address, token, is_for_yarn_1=is_for_yarn_1
        )
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as opened:
            opened.write(content)
        yield merged(environment, ours, secrets)


def merged(
    environment: Mapping[str, str], ours: Mapping[str, str], secrets: Sequence[str]
) -> dict[str, str]:
    """`environment` with `ours` in place of the same names, in any case: npm reads both."""
    names = {name.lower() for name in ours if "npm_config_" in name.lower()}
    kept = {
        name: value
        for name, value in environment.items()
        if name not in secrets and name.lower() not in names
    }
    return kept | dict(ours)


def display_variables(address: ProxyAddress) -> dict[str, str]:
    """The variables that are set, with the token hidden."""
    return all_variables(address, HIDDEN) | {USERCONFIG: "(a temporary file)"}


def _former(environment: Mapping[str, str]) -> str:
    """The user's own file, which ours replaces; empty if there is none."""
    named = environment.get(USERCONFIG) or environment.get(USERCONFIG.lower())
    path = Path(named) if named else Path(environment.get("HOME") or "/nonexistent") / ".npmrc"
    try:
        with path.open("rb") as file:
            raw = file.read(_NPM_BYTES_MAX)
    except OSError:
        return ""
    return raw.decode("utf-8", "surrogateescape")


def _without_registry(content: str) -> str:
    lines = [line for line in content.splitlines() if not _REGISTRY.match(line)]
    return "".join(f"{line}\n" for line in lines)


FORWARDED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""The exit codes of shells."""

_BY_SIGNAL: Final = 128


class Child:
    """The command to run. Signals that arrive before it has started are sent to it then."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run `command` to its end; its exit code, or 128 plus the number of the fatal signal.

        Raises OSError if it cannot be run.
        """
        with (
            self._forwarding(),
            # The user's own command, verbatim; no shell interprets it.
            subprocess.Popen(command, env=dict(environment)) as process,  # noqa: S603
        ):
            self._process = process
            # After `_process` is set: from then on signals are sent directly, and none is lost.
            for number in self._early:
                process.send_signal(number)
            code = process.wait()
        return code if code >= 0 else _BY_SIGNAL - code

    @contextlib.contextmanager
    def _forwarding(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread receives signals
            return
        before = {number: signal.getsignal(number) for number in FORWARDED}
        # What the caller ignores, such as Ctrl-C behind `nohup`, the command ignores, too.
        heard = [number for number in FORWARDED if before[number] != signal.SIG_IGN]
        for number in heard:
            signal.signal(number, self._forward)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, before[number])

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number in {signal.SIGINT, signal.SIGQUIT} and _is_in_foreground():
            return  # a terminal sends them to both of us
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp() if sys.__stdin__ else False
    except (OSError, ValueError):
        return False
