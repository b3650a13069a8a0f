"""Credentials of servers, and a person's stored logins, in a file that only they can read."""

import contextlib
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from service.core.errors import Invalid, Refusal
from service.core.header_names import ADMIN_TOKEN_HEADER, API_KEY_HEADER

CredentialKind = Literal["session", "api_key", "admin_token"]

_KEY_PREFIX: Final = "cs_"
_SESSION_PREFIX: Final = "csess_"
_CHARS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret and its kind. Its text is not part of any message."""

    kind: CredentialKind
    token: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The header that carries it."""
        if self.kind == "session":
            return {"authorization": f"Bearer {self.token}"}
        name = API_KEY_HEADER if self.kind == "api_key" else ADMIN_TOKEN_HEADER
        return {name: self.token}


def session_credential(token: object) -> Credential:
    """The session that a server has started. Raises ValueError if `token` is no session's."""
    if not isinstance(token, str) or not token.startswith(_SESSION_PREFIX) or not _is_secret(token):
        raise ValueError("access_token")
    return Credential("session", token)


def credential_of(secret: str) -> Credential:
    """`secret` as a credential, whose kind its prefix tells. Raises Invalid.

    A secret without one of the prefixes is an admin token.
    """
    token = secret.strip()
    if not _is_secret(token):
        raise Invalid("the token must be one line of printable ASCII, such as an API key (cs_…)")
    if token.startswith(_KEY_PREFIX):
        return Credential("api_key", token)
    if token.startswith(_SESSION_PREFIX):
        return Credential("session", token)
    return Credential("admin_token", token)


def _is_secret(token: str) -> bool:
    """True if `token` may be the value of a header."""
    return 0 < len(token) <= _CHARS_MAX and token.isascii() and token.isprintable()


VERSION: Final = 1
_FILE: Final = "logins.json"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class LoginsUnusable(Refusal):
    """The file of logins cannot be used."""

    status = 503
    text = "{value}"


class NoHome(LoginsUnusable):
    """There is no folder for the file of logins."""

    text = "there is no home directory for logins: set HOME or XDG_CONFIG_HOME"


@dataclass(frozen=True, slots=True)
class MachineLogin:
    """A machine token that `countersign run` installs with in one organisation."""

    org: str
    id: str
    expires_at: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """A login to one server. `org` and `user` are for display, and `org` the default organisation.

    `is_insecure` permits http to another machine. `machine` is None before the first install.
    """

    server: str
    credential: Credential
    org: str | None = None
    user: str | None = None
    is_insecure: bool = False
    machine: MachineLogin | None = None


@dataclass(frozen=True, slots=True)
class Logins:
    """All logins by server. `current` is the one that commands use."""

    current: str | None = None
    by_server: Mapping[str, Login] = field(default_factory=dict)

    @property
    def in_use(self) -> Login | None:
        """The login that commands use, or None."""
        return None if self.current is None else self.by_server.get(self.current)

    def with_login(self, login: Login) -> "Logins":
        """The same with `login`, which becomes the one in use."""
        return Logins(login.server, {**self.by_server, login.server: login})

    def without(self, server: str) -> "Logins":
        """The same without the login to `server`; if it was in use, none is."""
        rest = {name: login for name, login in self.by_server.items() if name != server}
        return replace(self, current=self.current if self.current in rest else None, by_server=rest)


def config_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the file of logins: XDG_CONFIG_HOME/countersign, or ~/.config/countersign.

    Raises NoHome.
    """
    base = environment.get("XDG_CONFIG_HOME", "")
    # A relative path must be ignored (XDG Base Directory Specification).
    if base.startswith("/"):
        return Path(base) / "countersign"
    try:
        return Path.home() / ".config" / "countersign"
    except RuntimeError as error:  # no HOME, and a user id without an entry, as in containers
        raise NoHome from error


def logins_path() -> Path:
    """The file of logins."""
    return config_dir() / _FILE


def load_logins() -> Logins:
    """The stored logins; none if there is no file.

    Raises LoginsUnusable for a file that others can read, or that is not of this version.
    """
    try:
        path = logins_path()
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read()
    except (FileNotFoundError, NoHome):
        return Logins()
    if mode & _OTHERS:
        raise LoginsUnusable(
            f"{path} can be read by others: run `chmod 600 {path}`, then sign in again"
        )
    try:
        return _parse(json.loads(raw))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoginsUnusable(f"{path} is damaged: delete it, then sign in again") from error


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let one process at a time get a machine token: the next one uses what it has stored."""
    with _locked(".machine.lock"):
        yield


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    folder = config_dir()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def changed_logins() -> Iterator[list[Logins]]:
    """The stored logins in a list of one, whose item is stored at the block's end.

    One process changes them at a time. The file is replaced as a whole: a process that is killed
    leaves the former one.
    """
    # On a file of its own, because the file of logins is replaced by each change.
    with _locked(".lock"):
        held = [load_logins()]
        yield held
        _store(held[0])


def _store(logins: Logins) -> None:
    path = logins_path()
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    content = json.dumps(_document(logins), indent=2).encode() + b"\n"
    # Readable by the owner alone from its first byte.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _document(logins: Logins) -> dict[str, Any]:
    servers = {}
    for server, login in logins.by_server.items():
        entry = asdict(login)
        del entry["server"]
        if entry["machine"] is None:
            del entry["machine"]
        servers[server] = entry.pop("credential") | entry
    return {"version": VERSION, "current": logins.current, "servers": servers}


def _parse(form: Any) -> Logins:  # noqa: ANN401 - JSON of unknown origin
    if form["version"] != VERSION:
        raise ValueError(form["version"])
    by_server = {
        server: {**entry, "server": server, "credential": entry}
        for server, entry in form["servers"].items()
    }
    return msgspec.convert({"current": form["current"], "by_server": by_server}, Logins)
