"""What an alert rule is: filters of the audit log, and what it takes for them to fire."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args
from urllib.parse import parse_qs, urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Meta

from analytics.model.filters import (
    FILTER_COLUMNS,
    VALUES_MAX,
    Condition,
    Query,
    Term,
    among,
    literal,
    parse_query,
)
from analytics.model.instants import format_us
from analytics.query.buckets import Bucket
from service.audit.saved_searches import QUERY_CHARS_MAX, parse_saved_query
from service.core.durations import parse_duration
from service.core.errors import Invalid
from service.core.text_rules import NAME_MAX, check_name
from service.store.tables import AlertRuleEntry
from service.web.models import Request

WINDOW_MAX: Final = timedelta(days=7)
SIGMA_CHARS_MAX: Final = 16 * 1024
CONDITIONS_MAX: Final = 10
FILTERS_MAX: Final = VALUES_MAX - 3
"""Addresses of its rows name a value of `per` and two instants besides."""

REVOKED: Final = "@revoked"
"""In place of a repository id: the repositories of which every binding is revoked."""

FIRED: Final = "alert_fired"
"""The event of a rule that fired; no rule counts such rows, or it would fire by itself."""

SIGMA_NOT_READ: Final = Invalid.of(
    "this server reads no Sigma rules: its operator has to run"
    " `pip install --no-deps --require-hashes -r requirements/sigma.txt`",
    field="sigma",
)

Kind = Literal["count", "silence", "rejected", "integrity", "clock", "seal"]
KINDS: Final = get_args(Kind)
COUNTING: Final[Sequence[Kind]] = ("count", "silence", "rejected")
CHECKS: Final = ("integrity", "clock", "seal")

_CONDITION: Final = re.compile(
    r"(?P<name>\w{1,64}(\|\w{1,64})?)(?P<op>>=|<=|!=|=)(?P<value>.{1,256})"
)
_HOURS: Final = re.compile(
    r"(?P<first>\w{3})-(?P<last>\w{3}) (?P<begin>\d\d:\d\d)-(?P<end>\d\d:\d\d) (?P<zone>\S{1,64})"
)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_NUMBERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
}


class Hours(NamedTuple):
    """Working hours: days of the week (0 is Monday) and times, in a time zone."""

    days: range
    begin: time
    end: time
    zone: ZoneInfo

    def include(self, at: datetime) -> bool:
        """Whether `at` is within them."""
        local = at.astimezone(self.zone)
        return local.weekday() in self.days and self.begin <= local.time() < self.end


class Member(NamedTuple):
    """A condition on a member of a row's payload; of two names, `a|b`, the first one it has."""

    name: str
    op: str
    value: str

    def is_met(self, payload: Mapping[str, Any]) -> bool:
        """Whether `payload` meets it; one without the member meets `!=` alone."""
        found = next((payload[name] for name in self.name.split("|") if name in payload), None)
        if compare := _NUMBERS.get(self.op):
            return isinstance(found, int | float) and compare(found, float(self.value))
        text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
        return (text == self.value) is (self.op == "=")


class AlertRule(Request):
    """An alert rule, as it is written and stored."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_MAX})]
    kind: Annotated[
        Kind,
        Meta(
            description="`count`: at least so many rows in a window. `silence`: far fewer than is"
            " usual on this weekday. `rejected`: the token of a CI job is rejected. `integrity`,"
            " `clock`, `seal`: that check of the service fails."
        ),
    ] = "count"
    query: Annotated[
        str,
        Meta(
            description="Filters as in an address of the audit page, without a time.",
            extra_json_schema={"maxLength": QUERY_CHARS_MAX},
        ),
    ] = ""
    at_least: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Of a silence: so many rows are usual.")
    ] = 1
    window: Annotated[str, Meta(description="Minutes, hours or days, such as `5m`.")] = "5m"
    per: Annotated[
        str | None, Meta(description="A filter, such as `actor`: each value counts by itself.")
    ] = None
    where: Annotated[
        tuple[str, ...],
        Meta(
            max_length=CONDITIONS_MAX,
            description="Conditions on members of the payload: `role=owner`, `rows>=10000`.",
        ),
    ] = ()
    outside: Annotated[
        str | None,
        Meta(
            description="Only rows outside of these hours.",
            examples=["Mon-Fri 08:00-18:00 Europe/Berlin"],
        ),
    ] = None
    percent: Annotated[
        int, Meta(ge=0, le=99, description="Of a silence: at most so much of what is usual.")
    ] = 0
    is_on: bool = True
    sigma: Annotated[
        str | None,
        Meta(
            description="A Sigma rule, in place of `query`, `at_least`, `window` and `per`.",
            extra_json_schema={"maxLength": SIGMA_CHARS_MAX},
        ),
    ] = None

    @property
    def length(self) -> timedelta:
        """How long a window is. Raises Invalid."""
        least = timedelta(hours=1) if self.kind == "silence" else timedelta(minutes=1)
        length = parse_duration(self.window, "mhd", digits_max=5)
        if length is None or not least <= length <= WINDOW_MAX or length % least:
            unit = "hours or days, such as 6h" if self.kind == "silence" else "minutes, such as 5m"
            raise Invalid(f"window must be whole {unit}, and at most 7 days", field="window")
        return length

    @property
    def bucket(self) -> Bucket:
        """In what rows are counted."""
        return Bucket.HOUR if self.kind == "silence" else Bucket.MINUTE

    @property
    def column(self) -> str | None:
        """The column of `per`."""
        return None if self.per is None else FILTER_COLUMNS[self.per]

    @property
    def reads_rows(self) -> bool:
        """Whether rows are looked at one by one: counts do not tell."""
        return bool(self.where or self.outside)

    @property
    def is_of_revoked(self) -> bool:
        """Whether its rows are those of REVOKED."""
        return REVOKED in parse_qs(self.query).get("repository_id", ())

    def rows(self, since: datetime, until: datetime, revoked: Sequence[str]) -> Query:
        """Its rows between these instants, with the `revoked` repositories in place of REVOKED."""
        filters = parse_qs(self.query, keep_blank_values=True)
        if self.is_of_revoked:
            del filters["repository_id"]
        query = parse_query(filters, has_order=False)
        # Terms of ours are none of the caller's, who may have given as many as a query may have.
        terms = {each.column: each.terms for each in query.conditions}
        terms["event"] = *terms.get("event", ()), Term(FIRED, is_prefix=False, is_negated=True)
        if self.is_of_revoked:  # no repository has the id 0
            terms["repository_id"] = among("repository_id", revoked or ["0"]).terms
        conditions = tuple(Condition(*each) for each in terms.items())
        return replace(query, since=since, until=until, conditions=conditions)

    def address(self, key: str, since: datetime, until: datetime) -> str:
        """The parameters of the audit page for its rows of `key` between these instants."""
        filters = parse_qs(self.query, keep_blank_values=True)
        if self.is_of_revoked:  # which means others by then
            del filters["repository_id"]
        if self.per is not None and key:
            filters[self.per] = [literal(key)]
        between = {"since": format_us(since), "until": format_us(until)}
        return urlencode({**filters, **between}, doseq=True)

    def includes(self, created_at: datetime, payload: str) -> bool:
        """Whether a row of its filters meets its other conditions."""
        if self.outside is not None and parse_hours(self.outside).include(created_at):
            return False
        members = msgspec.json.decode(payload) if self.where else {}
        return all(parse_condition(text).is_met(members) for text in self.where)


def parse_rule(given: dict[str, Any]) -> AlertRule:
    """The rule in a request's body, with what a Sigma rule says in its place. Raises Invalid."""
    rule = AlertRule.parse(given)
    check_name(rule.name)
    if rule.sigma is not None:
        if len(rule.sigma) > SIGMA_CHARS_MAX:
            raise Invalid(f"sigma must be at most {SIGMA_CHARS_MAX} characters", field="sigma")
        if rule.query or rule.kind != "count":
            raise Invalid("sigma excludes query and kind: give one of them", field="sigma")
        rule = AlertRule.parse(given | _sigma(rule.sigma) | {"sigma": None})
    _ = rule.length
    if rule.per is not None and rule.per not in FILTER_COLUMNS:
        raise Invalid(f"per must be a filter: {', '.join(FILTER_COLUMNS)}", field="per")
    for text in rule.where:
        parse_condition(text)
    if rule.outside is not None:
        parse_hours(rule.outside)
    return msgspec.structs.replace(rule, query=_parse_filters(rule))


def rule_of(entry: AlertRuleEntry) -> AlertRule:
    """A rule that is stored."""
    return msgspec.json.decode(entry.definition, type=AlertRule)


def _sigma(text: str) -> dict[str, Any]:
    """What the Sigma rule in `text` says. Raises Invalid."""
    try:
        from service.audit.alerts.sigma_rules import parse_sigma
    except ImportError as error:
        raise SIGMA_NOT_READ from error
    return parse_sigma(text)


def _parse_filters(rule: AlertRule) -> str:
    if rule.kind not in {"count", "silence"}:
        if rule.query or rule.per or rule.where or rule.outside:
            raise Invalid(
                f"query, per, where and outside must be empty: kind {rule.kind} has no filters",
                field="query",
            )
        if rule.at_least > 1:
            raise Invalid(f"at_least must be 1: kind {rule.kind} counts no rows", field="at_least")
        return ""
    query = parse_saved_query(rule.query)
    filters = parse_qs(query)
    if sum(map(len, filters.values())) > FILTERS_MAX:
        raise Invalid(f"query must have at most {FILTERS_MAX} filter values", field="query")
    repositories = filters.get("repository_id", [])
    if len(repositories) > 1 and REVOKED in repositories:
        raise Invalid(f"query must have no repository_id beside {REVOKED}", field="query")
    if not filters.keys() <= FILTER_COLUMNS.keys():
        raise Invalid(
            "query must be filters without a time, such as event=blocklist_hit", field="query"
        )
    return urlencode(filters, doseq=True)


def parse_condition(text: str) -> Member:
    """The condition in `text`. Raises Invalid."""
    match = _CONDITION.fullmatch(text)
    is_number = match is not None and re.fullmatch(r"-?\d{1,18}(\.\d{1,9})?", match["value"])
    if match is None or (match["op"] in _NUMBERS and not is_number):
        raise Invalid("where must be conditions such as role=owner or rows>=10000", field="where")
    return Member(match["name"], match["op"], match["value"])


def parse_hours(text: str) -> Hours:
    """The working hours in `text`. Raises Invalid."""
    match = _HOURS.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        first, last = _DAYS.index(match["first"]), _DAYS.index(match["last"])
        begin, end = time.fromisoformat(match["begin"]), time.fromisoformat(match["end"])
        if first > last or begin >= end:
            raise ValueError(text)
        return Hours(range(first, last + 1), begin, end, ZoneInfo(match["zone"]))
    except (ValueError, ZoneInfoNotFoundError, OSError) as error:
        raise Invalid(
            "outside must be days, hours and a time zone, such as"
            " Mon-Fri 08:00-18:00 Europe/Berlin",
            field="outside",
        ) from error
