"""What a command works on: a server, or the data dir of this machine."""

import os
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from service.cli.logins import Credential, credential_of, load_logins
from service.core.errors import Invalid, Refusal
from service.core.exit_codes import WrongUsage
from service.core.origins import is_loopback
from service.core.settings import load_settings

SERVER_VARIABLE: Final = "COUNTERSIGN_SERVER"
TOKEN_VARIABLE: Final = "COUNTERSIGN_TOKEN"  # noqa: S105 - a variable's name
ORG_VARIABLE: Final = "COUNTERSIGN_ORG"
DATA_DIR_VARIABLE: Final = "COUNTERSIGN_DATA_DIR"
_HOST_MARKS: Final = frozenset("-._:%")
"""Allowed besides letters and digits. Errors put hosts into commands to paste, so none of them may
be special to a shell."""

_PORTS: Final = {"http": 80, "https": 443}


NOT_SIGNED_IN: Final = Refusal.of(
    "not signed in to {value}: run `countersign login {value}`, or set COUNTERSIGN_TOKEN",
    status=401,
)


@dataclass(frozen=True, slots=True)
class Remote:
    """A server and the credential for it. `why` says what chose it."""

    server: str
    credential: Credential
    why: str
    org: str | None = None
    is_stored: bool = False
    """Whether the credential is that of the stored login."""

    @property
    def place(self) -> str:
        """The server."""
        return self.server


@dataclass(frozen=True, slots=True)
class Local:
    """The data dir of this machine. `why` says what chose it."""

    why: str

    @property
    def place(self) -> str:
        """The data dir, by its path."""
        return f"data dir {load_settings().data_dir}"


Target = Remote | Local


class _NamedServer(NamedTuple):
    """A server that is named, and what names it."""

    server: str
    why: str
    is_stored: bool = False


def choose_target(
    server: str | None,
    *,
    is_local: bool,
    is_insecure: bool = False,
) -> Target:
    """What a command with these options works on.

    In this order: --local; --server; COUNTERSIGN_SERVER; COUNTERSIGN_DATA_DIR; the stored login in
    use; the default data dir. Raises NOT_SIGNED_IN, Invalid, WrongUsage, LoginsUnusable.
    """
    chosen = _choose(server, is_local=is_local)
    if isinstance(chosen, Local):
        return chosen
    logins = load_logins()
    if chosen.is_stored:
        login = logins.by_server[chosen.server]
        return Remote(login.server, login.credential, chosen.why, login.org, is_stored=True)
    known = logins.by_server.get(parse_server(chosen.server, is_insecure=True))
    may_be_plain = is_insecure or (known is not None and known.is_insecure)
    named = parse_server(chosen.server, is_insecure=may_be_plain)
    if token := os.environ.get(TOKEN_VARIABLE):
        return Remote(named, credential_of(token), f"{chosen.why}, with {TOKEN_VARIABLE}")
    if known is None:
        raise NOT_SIGNED_IN(value=named)
    why = f"{chosen.why}, with the stored login"
    return Remote(named, known.credential, why, known.org, is_stored=True)


def data_dir_target(command: str, *, is_local: bool) -> Local:
    """The data dir, for a command that works on nothing else.

    Raises WrongUsage if a server is set, unless `is_local`: the command could be meant for it.
    """
    chosen = _choose(None, is_local=is_local)
    if isinstance(chosen, Local):
        return chosen
    raise WrongUsage(
        f"`{command}` works on a data dir only, and {chosen.why} names {chosen.server}: add --local"
        f" to work on the data dir {load_settings().data_dir} of this machine"
    )


def _choose(server: str | None, *, is_local: bool) -> Local | _NamedServer:
    """The place that is named first, in the order of `choose_target`."""
    if is_local:
        if server is not None:
            raise WrongUsage("give either --server or --local")
        return Local("--local")
    for given, why in ((server, "--server"), (os.environ.get(SERVER_VARIABLE), SERVER_VARIABLE)):
        if given:
            return _NamedServer(given, why)
    if os.environ.get(DATA_DIR_VARIABLE):
        return Local(DATA_DIR_VARIABLE)
    if os.environ.get(TOKEN_VARIABLE):
        raise Invalid(
            f"{TOKEN_VARIABLE} is set, and no server that it is for: set {SERVER_VARIABLE}, or add"
            " --server"
        )
    login = load_logins().in_use
    if login is None:
        return Local("no login, and no server is named")
    return _NamedServer(login.server, "the stored login", is_stored=True)


def parse_server(text: str, *, is_insecure: bool = False) -> str:
    """The origin of a server from its address; https if no scheme is given. Raises Invalid.

    http is accepted only for this machine, unless `is_insecure`.
    """
    fault = f"{text} is not the address of a server, such as https://audit.example"
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(fault) from error
    if parts.scheme not in _PORTS or not host or parts.username or parts.query or parts.fragment:
        raise Invalid(fault)
    if not all(c.isalnum() or c in _HOST_MARKS for c in host):
        raise Invalid(fault)
    if parts.path not in {"", "/"}:
        raise Invalid(f"{fault}: without {parts.path}")
    if parts.scheme == "http" and not (is_insecure or is_loopback(host)):
        raise Invalid(
            f"http:// would send the credential unprotected to {host}: use https://, or --insecure"
        )
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + ("" if port in {None, _PORTS[parts.scheme]} else f":{port}")
