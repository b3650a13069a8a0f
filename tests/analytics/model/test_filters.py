"""Filters: what query parameters mean."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.envelopes import EVENTS
from analytics.model.events import Decision
from analytics.model.filters import (
    FILTER_COLUMNS,
    PREFIX_PARAMETERS,
    VALUES_MAX,
    Condition,
    InvalidQuery,
    Order,
    Query,
    Term,
    literal,
    parse_query,
    parse_term,
    where,
)
from analytics.model.rows import VerdictSource

EIGHT = datetime(2026, 1, 31, 8, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)
NEXT_MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
BOUNDS = (
    MIDNIGHT - MICROSECOND,
    MIDNIGHT,
    EIGHT,
    NEXT_MIDNIGHT - MICROSECOND,
    NEXT_MIDNIGHT,
    NEXT_MIDNIGHT + MICROSECOND,
)
"""Instants about the day of EIGHT: its first and its last one, and those next to it."""


SAME_NAMES = (
    "event version decision actor actor_source subject oidc_binding_id verdict_source request_id"
    " source_ip ecosystem repository_id run_id token_id file_name file_sha256 client"
)
CLOSED = {
    "event": "blocklist_hit",
    "decision": "BLOCKED",
    "actor_source": "api_key",
    "verdict_source": "proxy",
    "ecosystem": "npm",
    "file_sha256": "0a" * 32,
}
"""The parameters that refuse some values, each with one that they accept."""


def test_no_parameters_mean_every_row_newest_first():
    assert parse_query({}) == Query()
    assert Query().order is Order.NEWEST_FIRST
    assert where(Query()) == ("true", {})


@pytest.mark.parametrize(
    ("parameter", "column"),
    [("package", "package_name"), *((name, name) for name in SAME_NAMES.split())],
)
def test_each_parameter_filters_its_column(parameter, column):
    assert set(FILTER_COLUMNS) == {"package", *SAME_NAMES.split()}
    assert FILTER_COLUMNS[parameter] == column
    value = CLOSED.get(parameter, "x")
    assert parse_query({parameter: [value]}).conditions == (
        Condition(column, (Term(value, is_prefix=False, is_negated=False),)),
    )


@pytest.mark.parametrize(
    ("value", "text", "is_prefix", "is_negated"),
    [
        ("left-pad", "left-pad", False, False),
        ("LEFT-pad", "LEFT-pad", False, False),
        (" left ", " left ", False, False),
        ("left*", "left", True, False),
        ("*", "", True, False),
        ("!left", "left", False, True),
        ("!left*", "left", True, True),
        ("!*", "", True, True),
        ("!!left", "!left", False, True),
        ("a!b", "a!b", False, False),
        ("a*b", "a*b", False, False),
        ("*a", "*a", False, False),
        ("a**", "a*", True, False),
        (r"\!left", "!left", False, False),
        (r"!\!left", "!left", False, True),
        (r"left\*", "left*", False, False),
        (r"left\**", "left*", True, False),
        (r"left\\", "left\\", False, False),
        (r"left\\*", "left\\", True, False),
        (r"left\\\*", "left\\*", False, False),
        (r"le\ft", r"le\ft", False, False),
        ("left\\", "left\\", False, False),
        ("%", "%", False, False),
        ("_", "_", False, False),
        ("a,b", "a,b", False, False),
        ("' OR 1=1 --", "' OR 1=1 --", False, False),
        ("é漢😀", "é漢😀", False, False),
        ("a\x00b", "a\x00b", False, False),
    ],
)
@pytest.mark.parametrize("parameter", sorted(PREFIX_PARAMETERS))
def test_a_value_means_exactly_this(parameter, value, text, is_prefix, is_negated):
    assert parse_term(parameter, value) == Term(text, is_prefix, is_negated)


@pytest.mark.parametrize("parameter", sorted(FILTER_COLUMNS.keys() - PREFIX_PARAMETERS))
def test_a_star_is_a_star_where_prefixes_make_no_sense(parameter):
    of_people = {"package", "actor", "subject", "actor_source"}
    assert {*of_people, "file_name", "file_sha256", "client"} == PREFIX_PARAMETERS
    assert parse_term(parameter, "BLOCK*") == Term("BLOCK*", is_prefix=False, is_negated=False)
    assert parse_term(parameter, "!x*") == Term("x*", is_prefix=False, is_negated=True)


@given(st.text(min_size=1), st.booleans(), st.booleans())
def test_every_text_can_be_asked_for_by_escaping_it(text, is_prefix, is_negated):
    escaped = text.replace("\\", "\\\\").replace("!", "\\!").replace("*", "\\*")
    value = f"{'!' if is_negated else ''}{escaped}{'*' if is_prefix else ''}"

    assert parse_term("package", value) == Term(text, is_prefix, is_negated)


@pytest.mark.parametrize(
    "name", ["pakage", "Package", "limit", "cursor", "format", "tenant_id", ""]
)
def test_an_unknown_parameter_is_refused_by_name(name):
    """A typo must not widen what is shown."""
    with pytest.raises(InvalidQuery, match=f"unknown query parameter: {name}"):
        parse_query({name: ["x"]})


@pytest.mark.parametrize("name", [*FILTER_COLUMNS, "since", "until", "order"])
def test_an_empty_value_is_refused_by_name(name):
    """An unset variable in a script must not turn into "everything"."""
    for value in [""] if name in {"since", "until", "order"} else ["", "!"]:
        with pytest.raises(InvalidQuery, match=f"{name} must not be empty"):
            parse_query({name: [value]})


@pytest.mark.parametrize(
    ("parameter", "value", "text"),
    [
        ("decision", "BLOKED", "one of ALLOWED, BLOCKED, not 'BLOKED'"),
        ("decision", "!BLOKED", "one of ALLOWED, BLOCKED, not '!BLOKED'"),
        ("decision", "BLOCK*", "one of ALLOWED, BLOCKED, not 'BLOCK*'"),
        ("decision", "null", "one of ALLOWED, BLOCKED, not 'null'"),
        ("decision", "blocked", "not 'blocked' (case matters: BLOCKED)"),
        ("decision", "!Blocked", "not '!Blocked' (case matters: BLOCKED)"),
        ("event", "blokclist_hit", "one of oss_first_party, install_allowed, blocklist_hit, "),
        ("event", "Blocklist_Hit", "not 'Blocklist_Hit' (case matters: blocklist_hit)"),
        ("verdict_source", "api", "one of proxy, admin_api, dashboard, cli, system, not 'api'"),
        ("verdict_source", " proxy", "not ' proxy'"),
        (
            "actor_source",
            "apikey",
            "machine_token, session, system, oidc_<provider>, not 'apikey'",
        ),
        ("actor_source", "oidc_", "not 'oidc_'"),
        ("actor_source", "oidc_git-hub", "not 'oidc_git-hub'"),
        ("actor_source", "OIDC_github", "not 'OIDC_github' (case matters: oidc_github)"),
        ("actor_source", "!OIDC_*", "not '!OIDC_*' (case matters: oidc_)"),
        ("actor_source", "oicd_*", "not 'oicd_*'"),
        ("actor_source", "api_key_*", "not 'api_key_*'"),
        ("actor_source", r"oidc_\*", r"not 'oidc_\*'"),
    ],
)
def test_a_value_that_no_row_can_have_is_refused_with_those_that_there_are(parameter, value, text):
    """A misspelt value would give an empty page, as if nothing had happened."""
    good = [CLOSED[parameter]]

    for values in ([value], [*good, value], [value, *good]):
        with pytest.raises(InvalidQuery) as refused:
            parse_query({parameter: values})
        assert str(refused.value).startswith(f"{parameter} must be one of ")
        assert text in str(refused.value)


@pytest.mark.parametrize("value", ["a*", "oidc_*", "o*", "oidc_git*", "oidc_new_one", "system*"])
@pytest.mark.parametrize("form", ["{}", "!{}"])
def test_an_actor_source_that_a_row_can_have_is_taken(value, form):
    assert parse_query({"actor_source": [form.format(value)]}).conditions
    assert parse_query({"actor_source": ["*"]}).conditions


@pytest.mark.parametrize(
    ("parameter", "known"),
    [("event", EVENTS), ("decision", Decision), ("verdict_source", VerdictSource)],
)
def test_every_known_value_can_be_asked_for(parameter, known):
    assert parse_query({parameter: [*known]}).conditions
    assert parse_query({parameter: [f"!{value}" for value in known]}).conditions


def test_an_error_does_not_repeat_what_is_endless():
    with pytest.raises(InvalidQuery) as refused:
        parse_query({"decision": ["x" * 5_000]})

    assert str(refused.value).endswith("x…'")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("name", ["since", "until", "order"])
def test_a_bound_is_given_once(name):
    values = ["asc", "desc"] if name == "order" else ["2026-01-30", "2026-01-31"]

    with pytest.raises(InvalidQuery, match=f"{name} may be given only once"):
        parse_query({name: values})


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize("value", ["yesterday", "2026-13-01", "2026-01-31T08:00:60Z", "1769846400"])
def test_a_bound_that_is_no_instant_is_refused_by_name(name, value):
    with pytest.raises(InvalidQuery, match=f"{name} must be an RFC 3339 instant"):
        parse_query({name: [value]})


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00Z"),
        ("2026-01-31T08:00:00.000001Z", "2026-01-31T08:00:00Z"),
        ("2026-01-31T08:00:00Z", "2026-01-31T09:00:00+01:00"),
        ("2026-02-01", "2026-01-31"),
        ("2026-02-01", "2026-01-30"),
    ],
)
def test_since_lies_before_until(since, until):
    with pytest.raises(InvalidQuery, match="since must be before until"):
        parse_query({"since": [since], "until": [until]})


@pytest.mark.parametrize(
    ("since", "until"),
    [
        *itertools.combinations(BOUNDS, 2),
        *((bound, None) for bound in BOUNDS),
        *((None, bound) for bound in BOUNDS),
    ],
)
def test_a_query_covers_or_touches_a_day_as_its_instants_say(since, until):
    query = Query(since=since, until=until)
    instants = [bound for bound in BOUNDS if bound.date() == EIGHT.date()]

    within = [
        (since is None or since <= instant) and (until is None or instant < until)
        for instant in instants
    ]

    assert query.covers(EIGHT.date()) == all(within)
    assert query.touches(EIGHT.date()) == any(within)


@pytest.mark.parametrize("value", ["ASC", "newest", "1", "asc "])
def test_an_order_is_asc_or_desc(value):
    with pytest.raises(InvalidQuery, match="order must be 'asc' or 'desc'"):
        parse_query({"order": [value]})


def test_a_query_names_a_bounded_number_of_values():
    """Each costs a comparison per row."""
    packages = [f"p{n}" for n in range(VALUES_MAX - 1)]

    assert parse_query({"package": packages, "version": ["x"]})
    with pytest.raises(InvalidQuery, match="at most 100 filter values"):
        parse_query({"package": packages, "version": ["x", "y"]})


def test_what_was_given_is_remembered_in_one_order():
    one = parse_query({"package": ["b", "a"], "actor": ["x"]})
    other = parse_query({"actor": ["x"], "package": ["a", "b"]})

    assert one.given == other.given == {"actor": ["x"], "package": ["a", "b"]}


@pytest.mark.parametrize(
    ("since", "floor", "expected"),
    [
        (None, None, None),
        (None, EIGHT, EIGHT),
        (EIGHT, None, EIGHT),
        (EIGHT, EIGHT.replace(hour=7), EIGHT),
        (EIGHT, EIGHT.replace(hour=9), EIGHT.replace(hour=9)),
    ],
)
def test_a_floor_only_ever_narrows_a_query(since, floor, expected):
    assert Query(since=since).not_before(floor).since == expected


HOSTILE = ["' OR true --", "x'; DROP TABLE journal; --", "$f0", "$watermark", "?", '"actor"']


@pytest.mark.parametrize("parameter", FILTER_COLUMNS)
def test_no_text_of_the_caller_stands_in_the_sql(parameter):
    for value, form in itertools.product(HOSTILE, ["{}", "!{}", "{}*"]):
        asked = {parameter: [form.format(value)]}
        if parameter in CLOSED:
            with pytest.raises(InvalidQuery, match=f"{parameter} must be "):
                parse_query(asked)
            continue
        harmless_sql, _ = where(parse_query({parameter: [form.format("harmless")]}))
        sql, bound = where(parse_query(asked))

        assert sql == harmless_sql, asked
        assert any(value in str(text) for text in bound.values()), asked


def test_bounds_are_bound_too():
    sql, bound = where(parse_query({"since": ["2026-01-31T08:00:00Z"], "until": ["2026-02-01"]}))

    assert sql == "true AND created_at >= $f0::TIMESTAMPTZ AND created_at < $f1::TIMESTAMPTZ"
    assert bound == {"f0": EIGHT, "f1": datetime(2026, 2, 2, tzinfo=UTC)}


@pytest.mark.parametrize(
    "value", ["left-pad", "!", "*", "left*", "!left-pad", "\\", "\\!", "a\\*b\\", "a\\\\*", "a*b!c"]
)
@pytest.mark.parametrize("name", ["package", "event"])
def test_a_literal_means_the_value_it_was_made_of(name: str, value: str) -> None:
    """A link to rows with one value must not find others."""
    assert parse_term(name, literal(value)) == Term(value, is_prefix=False, is_negated=False)
    assert parse_term(name, f"!{literal(value)}") == Term(value, is_prefix=False, is_negated=True)
