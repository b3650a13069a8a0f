"""COUNTERSIGN_DATABASE_URL for the driver and for pg_dump: the same server, or one line."""

import pytest
from sqlalchemy import make_url

from service.core.settings import InvalidSetting
from service.store.postgres.connection_url import driver_options, program_environment

ADA = "postgresql+asyncpg://ada:secret@"
VERIFIED = "PGSSLMODE=verify-full"


@pytest.mark.parametrize(
    ("url", "variables"),
    [
        (f"{ADA}db:5433/x?ssl=verify-full", "PGHOST=db PGPORT=5433 PGSSLMODE=verify-full"),
        (f"{ADA}/x?host=a:1&host=b:2", f"PGHOST=a,b PGPORT=1,2 {VERIFIED}"),
        (f"{ADA}/x?host=a,b&port=1,2", f"PGHOST=a,b PGPORT=1,2 {VERIFIED}"),
        (f"{ADA}/x?host=a&port=1", f"PGHOST=a PGPORT=1 {VERIFIED}"),
        (f"{ADA}/x?host=/run/postgresql", "PGHOST=/run/postgresql"),
        (
            f"{ADA}/x?host=a:1&host=b:2&target_session_attrs=read-write",
            f"PGHOST=a,b PGPORT=1,2 PGTARGETSESSIONATTRS=read-write {VERIFIED}",
        ),
        (f"{ADA}/x?gsslib=gssapi&passfile=/etc/p", "PGGSSLIB=gssapi PGPASSFILE=/etc/p"),
    ],
)
def test_programs_connect_to_the_hosts_of_the_url(url: str, variables: str):
    expected = dict(variable.split("=", 1) for variable in variables.split())

    environment = program_environment(make_url(url), {})

    assert environment == {
        "PGUSER": "ada",
        "PGPASSWORD": "secret",
        "PGDATABASE": "x",
        **expected,
        "PGAPPNAME": "countersign",
    }


def test_programs_have_the_variables_that_the_driver_reads():
    own = {"PGSSLROOTCERT": "/ca.pem", "PGHOST": "other", "COUNTERSIGN_SECRET_KEY": "k"}
    own |= dict.fromkeys(("PGSERVICE", "PGSERVICEFILE", "PGHOSTADDR", "PGOPTIONS"), "other")

    environment = program_environment(make_url(f"{ADA}db/x"), own)

    assert (environment["PGSSLROOTCERT"], environment["PGHOST"]) == ("/ca.pem", "db")
    assert "other" not in environment.values()  # a dump would be of another server
    assert "COUNTERSIGN_SECRET_KEY" not in environment


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("sslmode=require", "unknown option sslmode after `?`: there are host, port,"),
        ("password=secret", "unknown option password"),
        ("service=secret", "unknown option service"),
        ("statement_cache_size=0", "unknown option statement_cache_size"),
        ("ssl=secret", "the option ssl must be one of disable, allow, prefer, require"),
        ("target_session_attrs=secret", "the option target_session_attrs must be one of any,"),
        ("ssl=require&ssl=secret", "the option ssl is there twice"),
    ],
)
def test_an_option_that_there_is_not_is_named(query: str, reason: str):
    with pytest.raises(InvalidSetting) as refused:
        driver_options(make_url(f"{ADA}db/x?{query}"))

    assert str(refused.value).startswith(f"COUNTERSIGN_DATABASE_URL: {reason}")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://ada:se@cr?secret=1@db/x",
        "postgresql+asyncpg://ada:se@cr/et?secret=x@db/x",
    ],
)
def test_a_password_that_looks_like_an_option_is_not_repeated(url: str):
    with pytest.raises(InvalidSetting, match="in a password write \\? as %3F") as refused:
        driver_options(make_url(url))

    assert "secret" not in str(refused.value)


LOCAL = ("localhost", "127.0.0.1", "127.9.9.9", "[::1]", "", "/x?host=/run/postgresql")
ELSEWHERE = ("db.example", "10.0.0.5", "[fd00::1]", "/x?host=localhost:1&host=db.example:2")


def url_of(place: str, ssl: str | None = None) -> str:
    url = f"{ADA}{place}" if place.startswith("/") else f"{ADA}{place}/x"
    return url if ssl is None else f"{url}{'&' if '?' in url else '?'}ssl={ssl}"


@pytest.mark.parametrize("place", ELSEWHERE)
@pytest.mark.parametrize("ssl", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_a_server_on_another_machine_is_always_verified(place: str, ssl: str):
    """Less than that is refused, whether the URL asks for it or a variable of libpq."""
    with pytest.raises(InvalidSetting, match="the option ssl must be verify-full"):
        driver_options(make_url(url_of(place, ssl)), {})
    with pytest.raises(InvalidSetting, match="PGSSLMODE must be verify-full") as refused:
        driver_options(make_url(url_of(place)), {"PGSSLMODE": ssl})

    assert "PGSSLROOTCERT" in str(refused.value)
    assert driver_options(make_url(url_of(place)), {})["ssl"] == "verify-full"


@pytest.mark.parametrize("place", LOCAL)
@pytest.mark.parametrize("ssl", [None, "disable", "require"])
def test_this_machine_needs_no_tls(place: str, ssl: str | None):
    assert driver_options(make_url(url_of(place, ssl)), {}).get("ssl") == ssl


@pytest.mark.parametrize("variables", [{"PGHOST": "db.example"}, {"PGSERVICE": "x"}])
def test_a_host_of_the_variables_is_on_another_machine(variables: dict[str, str]):
    """The driver reads them where the URL names no host."""
    assert driver_options(make_url(url_of("")), variables)["ssl"] == "verify-full"
    with pytest.raises(InvalidSetting):
        driver_options(make_url(url_of("", "require")), variables)
