"""COUNTERSIGN_DATABASE_URL for the driver and for pg_dump: the same server, or one line."""

import pytest
from sqlalchemy import make_url

from service.settings import InvalidSetting
from service.store.postgres.connection_url import driver_options, program_environment

ADA = "postgresql+asyncpg://ada:secret@"


@pytest.mark.parametrize(
    ("url", "variables"),
    [
        (f"{ADA}db:5433/x?ssl=verify-full", "PGHOST=db PGPORT=5433 PGSSLMODE=verify-full"),
        (f"{ADA}/x?host=a:1&host=b:2", "PGHOST=a,b PGPORT=1,2"),
        (f"{ADA}/x?host=a,b&port=1,2", "PGHOST=a,b PGPORT=1,2"),
        (f"{ADA}/x?host=a&port=1", "PGHOST=a PGPORT=1"),
        (f"{ADA}/x?host=/run/postgresql", "PGHOST=/run/postgresql"),
        (
            f"{ADA}/x?host=a:1&host=b:2&target_session_attrs=read-write",
            "PGHOST=a,b PGPORT=1,2 PGTARGETSESSIONATTRS=read-write",
        ),
        (f"{ADA}/x?gsslib=gssapi&passfile=/etc/p", "PGGSSLIB=gssapi PGPASSFILE=/etc/p"),
    ],
)
def test_programs_connect_to_the_hosts_of_the_url(url: str, variables: str):
    """All of them, in their order, and with the options that the driver is given."""
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
    """Certificates are named by variables alone; what the URL says comes first."""
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
    """With those that there are, and without any value."""
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
    """It has a `?` that is not encoded; the error says how to."""
    with pytest.raises(InvalidSetting, match="in a password write \\? as %3F") as refused:
        driver_options(make_url(url))

    assert "secret" not in str(refused.value)
