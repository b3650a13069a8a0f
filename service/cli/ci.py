"""`countersign ci exec`: a job's command, with every package manager pointed at the proxy."""

import asyncio
import base64
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import click
import httpx2

from service.ci.providers import KNOWN
from service.cli.client import Client, ServerRefusal, expected_answers, install_tokens_path
from service.cli.commands import ORG_MISSING, CommandPlace, declare
from service.cli.logins import Credential, credential_of
from service.cli.output import CommandResult
from service.cli.root import root
from service.cli.target import ORG_VARIABLE, SERVER_VARIABLE, parse_server
from service.cli.wrapped_command import assignments, display_variables, run_wrapped, token_of
from service.core.errors import Invalid, Refusal
from service.core.exit_codes import ExitCode
from service.core.header_names import CI_TOKEN_HEADER
from service.core.origins import is_loopback
from service.packages.clients import USER, ProxyAddress

TOKEN_VARIABLE: Final = "COUNTERSIGN_ID_TOKEN"  # noqa: S105 - a variable's name
GITHUB_URL: Final = "ACTIONS_ID_TOKEN_REQUEST_URL"
GITHUB_TOKEN: Final = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"  # noqa: S105 - a variable's name
TIMEOUT_S: Final = 15.0
WAITS_S: Final = (1.0, 3.0)
"""How long to wait before each further try: GitHub's endpoint fails now and then."""

_TOKEN_CHARS_MAX: Final = 16 * 1024
_COMPACT: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


class NoCiToken(Refusal):
    """The job's token cannot be had; the text says what to add to the job."""

    status = 401


def token_source(environment: Mapping[str, str], variable: str | None) -> str:
    """Where the job's token comes from, without getting it. Raises NoCiToken.

    `variable` if it is named, else COUNTERSIGN_ID_TOKEN, else GitHub's endpoint for tokens.
    """
    if variable is not None:
        if not environment.get(variable, "").strip():
            raise NoCiToken(f"{variable} (--token-env) is empty: does the job ask for the token?")
        return variable
    if environment.get(TOKEN_VARIABLE, "").strip():
        return TOKEN_VARIABLE
    if environment.get(GITHUB_URL) and environment.get(GITHUB_TOKEN):
        return GITHUB_URL
    raise NoCiToken(_advice(environment))


def get_ci_token(environment: Mapping[str, str], source: str, audience: str) -> str:
    """The job's token for `audience`, from its `token_source`. Raises NoCiToken."""
    if source == GITHUB_URL:
        return _of_github(environment, audience)
    return _checked(environment[source], source)


def _advice(environment: Mapping[str, str]) -> str:
    for provider in KNOWN:
        if provider.marker is not None:
            variable, value = provider.marker
            if environment.get(variable) == value:
                return provider.advice
    return (
        f"no CI token: name the variable that has it (--token-env NAME), or put it in"
        f" {TOKEN_VARIABLE}"
    )


def _of_github(environment: Mapping[str, str], audience: str) -> str:
    url = environment[GITHUB_URL]
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or is_loopback(parts.hostname or "")
    except ValueError:
        is_safe = False
    if not is_safe:
        raise NoCiToken(f"{GITHUB_URL} is not an https:// address")
    headers = {"authorization": f"bearer {environment[GITHUB_TOKEN]}"}
    for wait_s in (*WAITS_S, None):
        try:
            answer = httpx2.get(
                httpx2.URL(url).copy_merge_params({"audience": audience}),
                headers=headers,
                timeout=TIMEOUT_S,
                trust_env=not is_loopback(parts.hostname or ""),
            )
            fault = f"status {answer.status_code}"
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            answer, fault = None, type(error).__name__
        if answer is not None and answer.is_success:
            return _value(answer)
        is_final = answer is not None and answer.is_client_error
        if wait_s is None or is_final:
            break
        time.sleep(wait_s)
    raise NoCiToken(f"GitHub's endpoint for tokens failed ({fault}): run the job again")


def _value(answer: httpx2.Response) -> str:
    try:
        value = answer.json()["value"]
    except (ValueError, KeyError, TypeError):
        value = None
    if not isinstance(value, str):
        raise NoCiToken("GitHub's endpoint for tokens sent none: run the job again")
    return _checked(value, GITHUB_URL)


def _checked(text: str, source: str) -> str:
    """The token in `text`, which could be one. Raises NoCiToken."""
    token = text.strip()
    if not _COMPACT.fullmatch(token) or len(token) > _TOKEN_CHARS_MAX:
        raise NoCiToken(f"{source} has no OIDC token: it must be one line of three parts")
    return token


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
        for line in assignments(job.address):
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
        *(f"  {line}" for line in assignments(job.address)),
        f"  {shlex.join(command)}",
    ]
    return CommandResult(data, lines)


def _left_out(token_variable: str | None) -> tuple[str, ...]:
    return (KEY_VARIABLE, *(() if token_variable is None else (token_variable,)))


def _run(job: CiExchange, command: Sequence[str]) -> int:
    """The exit code of `command`, run with an install token. Raises Refusal."""
    source = token_source(job.environment, job.token_variable)
    ci_token = get_ci_token(job.environment, source, job.audience)
    _mask(job.environment, ci_token)
    try:
        with expected_answers(job.address.server):
            token = asyncio.run(_exchanged(job, ci_token))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    _mask(job.environment, token)
    secrets = _left_out(None if source == GITHUB_URL else source)
    return run_wrapped(job.environment, job.address, token, command, secrets=secrets)


async def _exchanged(job: CiExchange, ci_token: str) -> str:
    """An install token for the API key and the job's token. Raises ServerRefusal, KeyNotAccepted.

    Tried again while the server asks for that: a build should not fail because it restarts.
    """
    path = install_tokens_path(job.address.org)
    headers = {CI_TOKEN_HEADER: ci_token}
    async with Client(job.address.server, job.key) as client:
        for wait_s in (*WAITS_S, None):
            try:
                return token_of(await client.post(path, b"", headers))
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
