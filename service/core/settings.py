"""Every setting: its name, default and unit. The only module that reads the environment."""

import os
import re
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from analytics.storage.bucket_place import InvalidPlace, parse_place
from service.core.origins import InvalidOrigin, Registry, is_loopback, parse_origin, parse_registry

ADMIN_TOKENS_MAX: Final = 2
SECRET_CHARS_MIN: Final = 16
REPOSITORY: Final = Path(__file__).resolve().parents[2]
PREFIX: Final = "COUNTERSIGN_"
CLIENT_VARIABLES: Final = frozenset({"server", "token", "org", "api_key", "id_token"})
"""Variables with our prefix that are for the command line, and no settings of the service."""

_AWS_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""What libraries read where COUNTERSIGN_SEGMENTS_ENDPOINT is not set."""

_OWN_PORTS: Final = {"http": ":80", "https": ":443"}
_UNSPECIFIED: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to recognise, not to bind

Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
OptionalSeconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
# Runs further apart than the clock guard's 48 hours would all be rejected.
UpToADay = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
InstallSeconds = Annotated[float, msgspec.Meta(ge=60, le=6 * 3600)]
MachineSeconds = Annotated[float, msgspec.Meta(ge=1800, le=7 * 24 * 3600)]
Hours = Annotated[float, msgspec.Meta(gt=0, le=24 * 366)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
KeyDays = Annotated[int, msgspec.Meta(ge=0, le=3650)]
PositiveInt = Annotated[int, msgspec.Meta(gt=0)]
SqlMemory = Annotated[int, msgspec.Meta(ge=512, le=2**20)]
NotNegative = Annotated[int, msgspec.Meta(ge=0, le=64)]
Workers = Annotated[int, msgspec.Meta(ge=1, le=64)]
ProxyConnections = Annotated[int, msgspec.Meta(ge=8, le=4096)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]

IdentityProviderName = Literal["github", "google", "microsoft"]
"""What users sign in with; `service/access/sign_in/providers.py` makes each of its settings."""


class InvalidSetting(Exception):
    """A setting that cannot be used; the text names the variable."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's configuration. `data_dir` is set by COUNTERSIGN_DATA_DIR, others likewise.

    `docs/settings.md` has a line for each, which a test checks.
    """

    data_dir: Path = REPOSITORY / "data" / "local"
    database_url: str = ""
    host: str = "127.0.0.1"
    port: Port = 8080
    workers: Workers = 1
    base_url: str = ""
    admin_token: str = ""
    admin_token_file: Path | None = None
    secret_key: str = ""
    audience: str = "countersign"
    issuers_file: Path = REPOSITORY / "data" / "issuers.toml"
    oauth_google_client_id: str = ""
    oauth_google_client_secret: str = ""
    oauth_google_issuer: str = "https://accounts.google.com"
    oauth_github_client_id: str = ""
    oauth_github_client_secret: str = ""
    oauth_github_url: str = "https://github.com"
    oauth_microsoft_client_id: str = ""
    oauth_microsoft_client_secret: str = ""
    oauth_microsoft_tenant: str = ""
    oauth_microsoft_url: str = "https://login.microsoftonline.com"
    binding_slot: Literal["global", "tenant"] = "global"
    platform_tenant_id: str = "org_platform"
    trusted_proxies: tuple[str, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    body_bytes_max: PositiveInt = 64 * 1024
    ingest_bytes_max: PositiveInt = 5 * 1024 * 1024
    ingest_journal_rows_max: PositiveInt = 1_000_000
    ingest_processes: NotNegative = 1
    database_wait_s: Seconds = 10.0
    session_idle_s: Seconds = 12 * 3600.0
    session_absolute_s: Seconds = 7 * 24 * 3600.0
    recent_sign_in_s: Seconds = 600.0
    api_key_days_max: KeyDays = 0
    install_token_s: InstallSeconds = 3600.0
    machine_token_s: MachineSeconds = 12 * 3600.0
    seal_rows: PositiveInt = 50_000
    seal_age_s: Seconds = 15 * 60.0
    seal_interval_s: Seconds = 5.0
    compact_quiet_s: Seconds = 3600.0
    sweep_interval_s: Seconds = 300.0
    prune_interval_s: UpToADay = 3600.0
    scrub_interval_s: Seconds = 7 * 24 * 3600.0
    scrub_mb_per_s: Rate = 10.0
    checkpoint_interval_s: UpToADay = 60.0
    record_reads: bool = True
    stream_networks: tuple[str, ...] = ()
    smtp_url: str = ""
    mail_domains: tuple[str, ...] = ()
    lease_s: Seconds = 60.0
    orphan_grace_s: Seconds = 3600.0
    export_max_s: Seconds = 6 * 3600.0
    import_max_s: Seconds = 6 * 3600.0
    import_rows_max: PositiveInt = 100_000_000
    exports_per_org_max: PositiveInt = 4
    exports_per_actor_max: PositiveInt = 2
    exports_max: PositiveInt = 32
    metrics_token: str = ""
    metrics_open: bool = False
    metrics_max_age_s: OptionalSeconds = 5.0
    components_page: bool = False
    lake_formats: tuple[Literal["iceberg", "delta"], ...] = ()
    lake_per_tenant: bool = False
    lake_publish_interval_s: UpToADay = 300.0
    lake_snapshot_hours: Hours = 24.0
    engine_memory_mb: PositiveInt = 2048
    engine_temp_mb: PositiveInt = 8192
    engine_threads: PositiveInt = 2
    decoded_memory_mb: PositiveInt = 256
    segments_url: str = ""
    segments_endpoint: str = ""
    segments_wait_s: Seconds = 10.0
    segment_cache_mb: PositiveInt = 10_240
    object_lock: Literal["off", "governance", "compliance"] = "off"
    query_max_s: Seconds = 30.0
    query_wait_max_s: Seconds = 30.0
    long_queries_per_org_max: PositiveInt = 1
    queries_per_caller_max: PositiveInt = 32
    queries_waiting_per_org_max: PositiveInt = 64
    queries_waiting_max: PositiveInt = 512
    sql_max_s: Seconds = 30.0
    sql_memory_mb: SqlMemory = 1024
    sql_at_once: PositiveInt = 2
    shutdown_grace_s: Seconds = 20.0
    stall_s: OptionalSeconds = 30.0
    keep_alive_s: Seconds = 75.0
    send_timeout_s: Seconds = 60.0
    head_timeout_s: Seconds = 20.0
    connections_max: PositiveInt = 4096
    connections_per_address_max: PositiveInt = 1024
    proxy_pypi_upstream: str = ""
    proxy_pypi_file_origins: tuple[str, ...] = ()
    proxy_npm_upstream: str = ""
    proxy_npm_file_origins: tuple[str, ...] = ()
    proxy_cache_bytes_max: PositiveInt = 10 * 2**30
    proxy_connections_max: ProxyConnections = 128
    proxy_requests_per_s: Rate = 100.0
    proxy_answers_per_org_max: PositiveInt = 2048
    proxy_answers_per_key_max: PositiveInt = 1024
    proxy_index_max_age_s: UpToADay = 60.0
    proxy_stale_max_s: Seconds = 86_400.0
    blocklist_stale_s: Seconds = 7 * 24 * 3600.0
    proxy_registries_file: Path | None = None

    @property
    def admin_tokens(self) -> tuple[str, ...]:
        """The admin tokens that the environment sets: the current one, then perhaps the previous.

        None of them is there if a file has them, see `admin_tokens_file`.
        """
        return tuple(part.strip() for part in self.admin_token.split(",") if part.strip())

    @property
    def admin_tokens_file(self) -> Path | None:
        """The file with the admin tokens, read again when it changes.

        None: they are in the environment.
        """
        if self.admin_tokens:
            return None
        return self.admin_token_file or self.data_dir / "admin_token"

    @property
    def audit_dir(self) -> Path:
        """Folder of the segments, the only one that the query engine may read.

        With `segments_url` it has copies of those that were read.
        """
        return self.data_dir / "audit"

    @property
    def temp_dir(self) -> Path:
        """Folder that the query engine may spill to."""
        return self.data_dir / "tmp"

    @property
    def lake_dir(self) -> Path:
        """Folder of the metadata of open tables."""
        return self.data_dir / "lake"

    @property
    def package_cache_dir(self) -> Path:
        """Folder of what the install proxy got from its upstreams; it may be deleted."""
        return self.data_dir / "package-cache"

    def package_registry(self, ecosystem: str) -> Registry | None:
        """The upstream of the install proxy for an ecosystem; None: it serves none."""
        upstream: str = getattr(self, f"proxy_{ecosystem}_upstream")
        file_origins: tuple[str, ...] = getattr(self, f"proxy_{ecosystem}_file_origins")
        return parse_registry(upstream, file_origins) if upstream else None

    @property
    def retired_grace_s(self) -> float:
        """How long a retired file is kept: longer than any export or query that uses it may run."""
        return self.export_max_s + self.query_max_s

    @property
    def database(self) -> str:
        """The SQLAlchemy URL of the transactional store."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir / 'countersign.db'}"

    @property
    def public_url(self) -> str:
        """Address of this service for people and scripts, without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.base_url.rstrip("/") or f"http://{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port of `public_url`: the `Origin` of this service's own pages.

        As browsers write it: lower case, without the scheme's own port (RFC 6454, 6.1).
        """
        parts = urlsplit(self.public_url.lower())
        return f"{parts.scheme}://{parts.netloc.removesuffix(_OWN_PORTS[parts.scheme])}"

    @property
    def has_secure_cookies(self) -> bool:
        """False only for plain http on loopback, where browsers would drop a Secure cookie."""
        parts = urlsplit(self.public_url)
        return not (parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"})


_ECOSYSTEMS: Final = tuple(
    name.removeprefix("proxy_").removesuffix("_upstream")
    for name in Settings.__struct_fields__
    if name.endswith("_upstream")
)
_LISTS: Final = frozenset(
    {
        "trusted_proxies",
        "lake_formats",
        "stream_networks",
        "mail_domains",
        *(f"proxy_{name}_file_origins" for name in _ECOSYSTEMS),
    }
)
"""Settings that are written as a list with commas."""

_SMTP_URL: Final = re.compile(
    r"smtp://([^\s:@/]+:[^\s:@/]+@)?[a-zA-Z0-9.-]+(:[0-9]{1,5})?\?from=[^\s@&]+@[^\s@&]+"
)


def load_settings(
    environment: Mapping[str, str] = os.environ, **overrides: str | int | None
) -> Settings:
    """The settings in `environment`, with defaults for the rest. Raises InvalidSetting.

    `overrides` by setting name, such as a command line's options, take precedence.
    """
    given = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX)
        and value != ""
        and name.removeprefix(PREFIX).lower() not in CLIENT_VARIABLES
    } | {name: str(value) for name, value in overrides.items() if value is not None}
    unknown = sorted(given.keys() - set(Settings.__struct_fields__))
    if unknown:
        names = ", ".join(PREFIX + name.upper() for name in unknown)
        raise InvalidSetting(f"unknown setting: {names} (see docs/settings.md)")
    values: dict[str, Any] = dict(given)
    for name in _LISTS & given.keys():
        values[name] = [part.strip() for part in given[name].split(",")]
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise InvalidSetting(_readable(error)) from error
    _check_tokens(settings)
    _check_registries(settings)
    _check_segments(settings, environment)
    if not _is_plain(settings.public_url):
        raise InvalidSetting(f"{PREFIX}BASE_URL must be http:// or https://, a host, and no path")
    if not settings.base_url and settings.host in _UNSPECIFIED:
        raise InvalidSetting(
            f"{PREFIX}BASE_URL is required when listening on {settings.host}: browsers use"
            " another host name, and forms from an unknown origin are rejected"
        )
    if settings.smtp_url and not _SMTP_URL.fullmatch(settings.smtp_url):
        raise InvalidSetting(
            f"{PREFIX}SMTP_URL must be smtp://USER:PASSWORD@HOST:PORT?from=ADDRESS, where a user"
            " and a port may be missing"
        )
    for name in ("trusted_proxies", "stream_networks"):
        try:
            for network in getattr(settings, name):
                ip_network(network, strict=False)
        except ValueError as error:
            raise InvalidSetting(f"{PREFIX}{name.upper()}: {error}") from error
    return settings


def _check_tokens(settings: Settings) -> None:
    for name in ("admin_token", "metrics_token"):
        token = getattr(settings, name)
        if not (token.isascii() and token.isprintable()):  # a header could not carry it
            raise InvalidSetting(f"{PREFIX}{name.upper()} must be printable ASCII")
    if len(settings.admin_tokens) > ADMIN_TOKENS_MAX:
        raise InvalidSetting(
            f"{PREFIX}ADMIN_TOKEN must be one token, or two with a comma while one replaces the"
            " other: remove the oldest"
        )
    is_pair = len(settings.admin_tokens) > 1
    if is_pair and any(len(token) < SECRET_CHARS_MIN for token in settings.admin_tokens):
        # One token with a comma, from before it separated two, would be two that can be guessed.
        raise InvalidSetting(
            f"{PREFIX}ADMIN_TOKEN: each of two tokens must have {SECRET_CHARS_MIN} characters or"
            " more, and one token has no comma"
        )
    if settings.admin_tokens and settings.admin_token_file is not None:
        raise InvalidSetting(f"set either {PREFIX}ADMIN_TOKEN or {PREFIX}ADMIN_TOKEN_FILE")
    if settings.metrics_open and settings.metrics_token:
        raise InvalidSetting(
            f"{PREFIX}METRICS_OPEN opens /metrics to all: set it or {PREFIX}METRICS_TOKEN, not both"
        )


def _check_registries(settings: Settings) -> None:
    for ecosystem in _ECOSYSTEMS:
        upstream, origins = f"proxy_{ecosystem}_upstream", f"proxy_{ecosystem}_file_origins"
        for name, parse, urls in (
            (upstream, parse_registry, filter(None, [getattr(settings, upstream)])),
            (origins, parse_origin, getattr(settings, origins)),
        ):
            try:
                for url in urls:
                    parse(url)
            except InvalidOrigin as error:
                raise InvalidSetting(f"{PREFIX}{name.upper()} {error}") from None


def _check_segments(settings: Settings, environment: Mapping[str, str]) -> None:
    try:
        if settings.segments_url:
            parse_place(settings.segments_url)
    except InvalidPlace as error:
        raise InvalidSetting(f"{PREFIX}SEGMENTS_URL {error}") from None
    if settings.segments_endpoint and not settings.segments_url:
        raise InvalidSetting(f"{PREFIX}SEGMENTS_ENDPOINT is for {PREFIX}SEGMENTS_URL: set both")
    if settings.segments_endpoint and not _is_plain(settings.segments_endpoint):
        raise InvalidSetting(
            f"{PREFIX}SEGMENTS_ENDPOINT must be http:// or https://, a host, and no path"
        )
    if settings.object_lock != "off" and not settings.segments_url:
        raise InvalidSetting(f"{PREFIX}OBJECT_LOCK is for {PREFIX}SEGMENTS_URL: set both")
    _check_endpoints(settings, environment)


def _check_endpoints(settings: Settings, environment: Mapping[str, str]) -> None:
    """Raise InvalidSetting for a bucket to which rows and credentials would go unprotected."""
    if not settings.segments_url:
        return
    endpoints = {f"{PREFIX}SEGMENTS_ENDPOINT": settings.segments_endpoint}
    if not settings.segments_endpoint:
        endpoints = {name: environment.get(name, "") for name in _AWS_ENDPOINTS}
    for name, url in endpoints.items():
        parts = urlsplit(url)
        if parts.scheme.lower() == "http" and not is_loopback(parts.hostname or ""):
            raise InvalidSetting(
                f"{name} must be https:// for an object store on another machine: others could read"
                " the rows; name the certificate of its authority in SSL_CERT_FILE"
            )


def _is_plain(url: str) -> bool:
    """True for a scheme, a host and perhaps a port."""
    try:
        parts = urlsplit(url)
        is_plain = bool(parts.hostname) and parts.scheme in _OWN_PORTS
        return is_plain and not (parts.username or parts.query or parts.fragment or parts.path)
    except ValueError:
        return False


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        try:
            return Path(value).expanduser().resolve()
        except RuntimeError as error:  # `~name` of an unknown user
            raise ValueError(str(error)) from error
    raise NotImplementedError(kind)


def _readable(error: msgspec.ValidationError) -> str:
    """Msgspec's message with the variable's name in front, instead of `- at `$.port`` behind."""
    reason, _, place = str(error).partition(" - at `$.")
    return f"{PREFIX}{place.rstrip('`').upper()}: {reason}"


def how_to_install(extra: str) -> str:
    """What to do to get the extra `extra`, as the end of a sentence.

    With the pinned files; the name of the product is that of another project on the index.
    """
    files = f"requirements/{extra}.txt"
    return f"run `.venv/bin/pip install --no-deps --require-hashes -r {files}` in the checkout"
