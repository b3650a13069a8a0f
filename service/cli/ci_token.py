"""The OIDC token of the CI job that runs this command, from where its provider puts it."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx2

from service.ci.providers import KNOWN
from service.core.errors import Refusal
from service.core.origins import is_loopback

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


@dataclass(frozen=True, slots=True)
class CiToken:
    """A job's token, and the variable that it was in; None if it was requested."""

    token: str = field(repr=False)
    variable: str | None


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


def get_ci_token(environment: Mapping[str, str], variable: str | None, audience: str) -> CiToken:
    """The job's token for `audience`. Raises NoCiToken."""
    source = token_source(environment, variable)
    if source == GITHUB_URL:
        return CiToken(_of_github(environment, audience), None)
    return CiToken(_checked(environment[source], source), source)


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
