"""The search: text as people type and paste it, read as filters, in `q` of a request.

A search is words: `event-stream@3.3.6`, `storefront-ci`, `run:14077220290`, `-decision:blocked`.
Each names its field or is recognised by its form; what a page shows can be typed back. A word that
may mean several things means the first of them that rows have.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Final, Self

from msgspec import Meta, Struct

from analytics.model.filters import (
    BOUND_PARAMETERS,
    FILTER_COLUMNS,
    VALUES_MAX,
    InvalidQuery,
    Term,
    literal,
    only,
    parse_query,
    parse_term,
)
from analytics.model.labels import EVENT_LABELS
from analytics.model.schema import FILTER_PARAMETERS, parse_audit_id
from service.access.callers import Caller
from service.audit.actor_names import ActorNames, actors_by_name
from service.audit.readings import VERSION, FilterValues, Reading, Searcher, distinct
from service.audit.search_forms import (
    PARAMETERS,
    People,
    filter_value,
    readings_by_form,
    repositories,
)
from service.audit.services import AuditServices
from service.audit.tenant_log import TenantLog, open_log
from service.ci.providers import job_subjects, named_form, with_ids_begins
from service.core.durations import parse_duration
from service.store.tables import Organisation

WINDOW: Final = "last"
"""The parameter of pages and saved searches that names a window."""


def window_length(text: str) -> timedelta | None:
    """The length of a window such as `24h`; None if `text` is no such length."""
    return None if text.startswith("0") else parse_duration(text, "mhdw", digits_max=5)


def check_window(text: str | None) -> None:
    """Raise InvalidQuery if `text` is given and is no length of time."""
    if text is not None and window_length(text) is None:
        raise InvalidQuery(
            "last must be a number of minutes, hours, days or weeks, such as 90m, 24h or 7d",
            field=WINDOW,
        )


SEARCH_CHARS_MAX: Final = 4 * 1024
TIME_FIELDS: Final = ("last", *BOUND_PARAMETERS)

LOOK_UPS_MAX: Final = 60
"""How many queries the words of one search may cost.

Names beyond them are read as typed, and a range, of which that would find nothing, is refused.
"""

LOOK_UP_MAX_S: Final = 1.0
VALUES_READ_MAX: Final = 500
"""How many versions a range is compared with, or subjects a repository: the most frequent ones.

A range of a package with more versions is refused: what it means may be among the others.
"""

_BEGINNING: Final = re.compile(r"@?[^@=<>~^]*\*")
_FIELD: Final = re.compile(r"[A-Za-z_]+:")
_FIELDS: Final = {
    name: parameter
    for parameter in FILTER_PARAMETERS
    for name in (parameter.name, *parameter.aliases)
}
_EVENTS: Final = {label.casefold(): event for event, label in EVENT_LABELS.items()}
_WORD: Final = re.compile(r'\s*(?P<raw>-?(?:[A-Za-z_]+:)?(?:"(?P<quoted>[^"]*)"|[^\s"]\S*))')
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_LINK: Final = re.compile(r"<(?P<target>https?://[^|>\s]+)(?:\|[^>]*)?>")
_PHRASE_WORDS_MAX: Final = 10
_MARKS: Final = " \t\r\n`'\"<>[](){},;\u2018\u2019\u201c\u201d"
_OWN_WORDS: Final = frozenset({"decision", "event"})
"""Filters whose values people read and type as words: another spelling of them is no news."""

FilterTexts = dict[str, list[str]]
"""Query parameters with their values, in the syntax of `parse_query`."""


class ReadWord(Struct, frozen=True, kw_only=True):
    """A part of a search as it was typed, and the filters that it was read as."""

    text: str
    filters: FilterTexts
    as_typed: Annotated[
        bool, Meta(description="False if the filters have something else than the text.")
    ]
    exact: Annotated[str, Meta(description="The search for a package with exactly this name.")]
    all_versions: Annotated[
        FilterTexts | None,
        Meta(description="If it means a range of versions, the filters of all versions."),
    ]

    @classmethod
    def of(
        cls,
        text: str,
        reading: Reading,
        *,
        is_negated: bool,
        as_typed: bool = True,
        all_versions: FilterTexts | None = None,
    ) -> Self:
        """`text`, which means the rows of `reading`, or all others."""
        return cls(
            text=text,
            filters=_texts(reading.filters, "!" if is_negated else ""),
            as_typed=as_typed,
            exact=f'package:"{text.replace(chr(34), "")}"',
            all_versions=all_versions,
        )


@dataclass(frozen=True, slots=True)
class Search:
    """What a search asks for: one row by its id, or the rows of these query parameters."""

    parameters: FilterTexts
    row_id: str | None = None
    words: tuple[ReadWord, ...] = ()


Read = Callable[[str], Awaitable[Sequence[Reading]]]


@dataclass(frozen=True, slots=True)
class _Word:
    """One word: `text` without its sign, its field and its quotation marks."""

    text: str
    field: str | None
    is_negated: bool
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class SearchReader:
    """Reads searches: `people` are those of the organisation, `read` asks the rooms above."""

    people: People
    read: Read
    rows: "RowsOfLog"

    async def search(self, text: str) -> Search:
        """What `text` asks for. Raises InvalidQuery, with the field `q`; QueryTooSlow."""
        if len(text) > SEARCH_CHARS_MAX:
            raise _invalid(f"the search must be at most {SEARCH_CHARS_MAX} characters")
        text = _LINK.sub(r"\g<target>", _INVISIBLE.sub("", text)).strip()
        if (row_id := _row_id(text)) is not None:
            return Search({}, row_id=row_id)
        words = await self._words(text, list(_split(text)))
        parameters: FilterTexts = {}
        for word in words:
            for name, values in word.filters.items():
                known = parameters.setdefault(name, [])
                known += [value for value in values if value not in known]
        for name in TIME_FIELDS:
            if len(parameters.get(name, ())) > 1:
                raise _invalid(f"{name} may be given only once")
        _check_releases(words)
        return Search(parameters, words=tuple(words))

    async def _words(self, text: str, spans: Sequence[tuple[int, int]]) -> list[ReadWord]:
        if len(spans) > VALUES_MAX:
            raise _invalid(f"at most {VALUES_MAX} words in one search")
        words, position = [], 0
        while position < len(spans):
            start = spans[position][0]
            for length in range(min(_PHRASE_WORDS_MAX, len(spans) - position), 0, -1):
                raw = text[start : spans[position + length - 1][1]]
                word = await self._word(raw, is_phrase=length > 1)
                if word is not None:
                    break
            if word is None:
                raise _invalid(f"{raw[:64]} is not understood")
            words.append(word)
            position += length
            await asyncio.sleep(0)  # a hundred words take 40 ms
        return words

    async def _word(self, raw: str, *, is_phrase: bool) -> ReadWord | None:
        """What `raw` was read as; None for a phrase that is no single thing."""
        is_negated = raw.startswith("-") and len(raw) > 1
        if named := _named(raw[is_negated:], self.people.actors):
            return ReadWord.of(raw, await self._with_id_forms(named), is_negated=is_negated)
        word = _word(raw)
        if is_phrase:
            first = _word(raw.split(maxsplit=1)[0])
            if first.field is not None or self._is_own(first.text):
                return None
            readings = await self._read(raw[is_negated:])
            readings = readings or self.people.readings(raw[is_negated:])
            return await self._chosen(raw, readings, word) if readings else None
        if word.field is not None:
            reading = _of_field(word, word.field, self.people.actors)
            return ReadWord.of(raw, reading, is_negated=word.is_negated)
        return await self._of_form(raw, word)

    def _is_own(self, text: str) -> bool:
        """Whether a word has a meaning of its own, and begins no phrase of another kind."""
        return bool(_named(text, self.people.actors) or readings_by_form(text))

    async def _of_form(self, raw: str, word: _Word) -> ReadWord:
        """A word without a field, by its form."""
        text = word.text if word.is_quoted else _bare(word.text)
        if not text:
            raise _invalid('"" means nothing: write a word between the quotation marks')
        if named := _named(text, self.people.actors):
            reading = await self._with_id_forms(named)
            return ReadWord.of(raw, reading, is_negated=word.is_negated)
        readings = readings_by_form(text, is_quoted=word.is_quoted)
        if not readings and _BEGINNING.fullmatch(text) and not word.is_quoted:
            value = filter_value(PARAMETERS["package"], text, is_quoted=False)
            readings = [Reading({"package": (each,)}) for each in (value, value.lower())]
        readings = readings or await self._named_things(text, word.text)
        if not readings and "://" in text:
            raise _invalid("this is no address of a package, repository, run or advisory")
        if not readings and _FIELD.match(text) and not word.is_quoted:
            raise _unknown_field(text.partition(":")[0])
        return await self._chosen(raw, readings or [Reading({"package": (literal(text),)})], word)

    async def _named_things(self, text: str, raw: str) -> list[Reading]:
        """The repositories, packages and people that `text`, which was typed as `raw`, may name."""
        persons = self.people.readings(text)
        first = persons if persons and self.people.has_whole_name(text) else []
        return [*first, *repositories(text), *await self._read(raw), *persons]

    async def _read(self, raw: str) -> list[Reading]:
        """What the rooms above read: without the marks around it, or else with them."""
        bare = _bare(raw)
        return [*(await self.read(bare) or (await self.read(raw) if bare != raw else ()))]

    async def _chosen(self, raw: str, readings: Sequence[Reading], word: _Word) -> ReadWord:
        both_forms = [await self._with_id_forms(each) for each in distinct(readings)]
        reading = await self._trimmed(await self._first_with_rows(both_forms))
        if word.is_negated and len(reading.filters) > 1:
            raise _cannot_be_excluded(word.text, reading)
        whole = reading.identity if reading.includes else reading.all_versions
        return ReadWord.of(
            raw,
            reading,
            is_negated=word.is_negated,
            as_typed=_is_in(reading, raw),
            all_versions=None if whole is None else _texts(whole),
        )

    async def _first_with_rows(self, readings: Sequence[Reading]) -> Reading:
        """The first reading that rows have; or of whose package, or else the first of all."""
        if len(readings) == 1 and readings[0].includes is None:
            return readings[0]
        for reading in readings:
            if reading.includes is not None:
                found = await self._in_range(reading)
                if found is not None:
                    return found
            elif await self.rows.has(reading.filters):
                return reading
        for reading in distinct([replace(each, filters=each.identity) for each in readings]):
            if VERSION in readings[0].filters and await self.rows.has(reading.filters):
                return next(each for each in readings if each.identity == reading.filters)
        return readings[0]

    async def _in_range(self, reading: Reading) -> Reading | None:
        """`reading` with the versions that rows have of its range; None if they have none.

        Without versions if another one of several packages has one that is not in the range:
        filters would find its rows, too.
        """
        identity, includes = reading.identity, reading.includes
        included, others = dict[tuple[str, str], None](), set[tuple[str, str]]()
        for package in identity["package"]:
            of_package = {**identity, "package": (package,)}
            known = await self.rows.values(VERSION, of_package)
            if len(known) > VALUES_READ_MAX:
                raise _too_many_versions(package, identity["package"])
            for version in known:
                if includes is not None and includes(package, version):
                    included[package, version] = None
                else:
                    others.add((package, version))
        if not included:
            return None
        packages, versions = (tuple(dict.fromkeys(each)) for each in zip(*included, strict=True))
        filters = {**identity, "package": packages}
        if any((package, version) in others for package in packages for version in versions):
            return Reading(filters)
        if len(versions) > VALUES_MAX // 2:
            raise _invalid("rows have too many versions of this range: search for one of them")
        return Reading({**filters, VERSION: tuple(map(literal, versions))}, all_versions=identity)

    async def _trimmed(self, reading: Reading) -> Reading:
        """`reading` without the alternatives among its subjects that no row has, if others do."""
        subjects = reading.filters.get("subject", ())
        if len(subjects) < 2:
            return reading
        having = [each for each in subjects if await self.rows.has({"subject": (each,)})]
        return Reading({**reading.filters, "subject": tuple(having) or subjects[:1]})

    async def _with_id_forms(self, reading: Reading) -> Reading:
        """`reading` with the subjects of the same jobs that have GitHub's ids in them."""
        subjects = reading.filters.get("subject", ())
        found = dict.fromkeys(subjects)
        for term in (parse_term("subject", each) for each in subjects):
            beginning = with_ids_begins(term.text)
            if beginning is None or term.is_negated:
                continue
            begins = {"subject": (f"{literal(beginning)}*",)}
            for subject in await self.rows.values("subject", begins):
                if term.is_met(named_form(subject)):
                    found[_like(term, subject)] = None
        if len(found) == len(subjects):
            return reading
        return replace(reading, filters={**reading.filters, "subject": tuple(found)})


def _like(term: Term, subject: str) -> str:
    """The value for `subject`: as far as `term` goes if that is the beginning of subjects."""
    if not term.is_prefix:
        return literal(subject)
    ids = len(subject) - len(named_form(subject))
    return f"{literal(subject[: len(term.text) + ids])}*"


def _row_id(text: str) -> str | None:
    """The row whose id, or page, `text` is."""
    row_id = re.sub(r"https?://\S+/audit/", "", text).rstrip("/")
    return row_id if parse_audit_id(row_id) is not None else None


def _split(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of `text` are: quotation marks keep spaces in a word."""
    position = 0
    while position < len(text):
        word = _WORD.match(text, position)
        if word is None:
            raise _invalid('a quotation mark is not closed: write "two words"')
        yield word.span("raw")
        position = word.end()


def _bare(text: str) -> str:
    """`text` without the marks that surround it in chats, prose and files."""
    return text.strip(_MARKS).rstrip(f"{_MARKS}.:")


def _check_releases(words: Sequence[ReadWord]) -> None:
    """Raise InvalidQuery for releases of several packages: filters would match other versions."""
    named = [word.filters for word in words if "package" in word.filters]
    packages = {tuple(each["package"]) for each in named}
    versions = {tuple(each.get(VERSION, ())) for each in named}
    if len(packages) > 1 and len(versions) > 1:
        raise _invalid("releases of several packages: search for one of them at a time")


def _is_in(reading: Reading, raw: str) -> bool:
    """Whether the values of `reading` are the text as it was typed: an address has more in it."""
    return "://" not in raw and all(
        name in _OWN_WORDS or parse_term(name, value).text in raw
        for name, values in reading.filters.items()
        for value in values
    )


def _too_many_versions(package: str, packages: FilterValues) -> InvalidQuery:
    words = " ".join(f"package:{each}" for each in packages)
    return _invalid(
        f"rows have more than {VALUES_READ_MAX} versions of {package}, too many to compare with a"
        f" range: search for all versions, with {words}, or for one of them"
    )


def _cannot_be_excluded(text: str, reading: Reading) -> InvalidQuery:
    ways = " or ".join(
        f"-{name}:{value}" for name, values in reading.filters.items() for value in values
    )
    return _invalid(f"{text[:64]} cannot be excluded: exclude one of its filters, with {ways}")


def _texts(filters: Mapping[str, FilterValues], sign: str = "") -> FilterTexts:
    return {name: [f"{sign}{value}" for value in values] for name, values in filters.items()}


def _named(name: str, actors: ActorNames) -> Reading | None:
    """The shown name of an event, actor or CI job; None if it is none of them."""
    folded = _folded(name)
    if folded in _EVENTS:
        return Reading({"event": (_EVENTS[folded],)})
    if folded in actors:
        return Reading({"actor": tuple(map(literal, actors[folded]))})
    subjects = tuple(map(literal, job_subjects(name)))
    return Reading({"subject": subjects}) if subjects else None


def _word(raw: str) -> _Word:
    is_negated = raw.startswith("-") and len(raw) > 1
    rest = raw.removeprefix("-") if is_negated else raw
    head, colon, tail = rest.partition(":")
    field = head.lower() if colon and _is_field(head.lower(), tail) else None
    text = rest if field is None else tail
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return _Word(text[1:-1] if is_quoted else text, field, is_negated, is_quoted)


def _is_field(name: str, value: str) -> bool:
    """Whether `name:value` is a field and its value: `repo:acme/app` is how subjects begin."""
    if name == "repo":
        return not value or value.strip('"').isdigit()
    return name in _FIELDS or name in TIME_FIELDS


def _of_field(word: _Word, field: str, actors: ActorNames) -> Reading:
    """What a word that names its field means: exactly what it says."""
    if field in TIME_FIELDS:
        if word.is_negated or not word.text:
            raise _invalid(f"write {field}: and a time, such as {field}:2026-01-31")
        return Reading({field: (word.text,)})
    if not word.text:
        raise _invalid(f"write a value after {field}:")
    parameter = _FIELDS[field]
    named = _named(word.text, actors)
    if named is not None and parameter.name in named.filters:
        return named
    value = filter_value(parameter, word.text, is_quoted=word.is_quoted)
    return Reading({parameter.name: (value,)})


def _folded(name: str) -> str:
    """`name` for comparison: keyboards have a straight apostrophe only."""
    return name.strip('"').replace("'", "\N{RIGHT SINGLE QUOTATION MARK}").casefold()


def _unknown_field(name: str) -> InvalidQuery:
    nearest = get_close_matches(name.lower(), [*_FIELDS, *TIME_FIELDS], 1)
    hint = f"did you mean {nearest[0]}:? " if nearest else ""
    fields = ", ".join(sorted({*_FIELDS, *TIME_FIELDS}))
    return _invalid(
        f"unknown field {name[:64]}: {hint}Fields are {fields}. Put the word in quotation marks to"
        " search for a package of this name"
    )


def _invalid(text: str) -> InvalidQuery:
    return InvalidQuery(text, field="q")


SEARCH: Final = "q"


def reader_for(services: AuditServices, org: Organisation, caller: Caller) -> Read:
    """Reads words as all rooms do, for a search of `caller` in the log of `org`."""
    searcher = Searcher(services.store, org, caller)

    async def read(text: str) -> list[Reading]:
        asked = [await reader(searcher, text) for reader in services.readers]
        return [reading for readings in asked for reading in readings]

    return read


async def read_search(
    services: AuditServices, org: Organisation, caller: Caller, text: str
) -> Search:
    """What `text` asks for in the log of `org`. Raises InvalidQuery, QueryTooSlow, StoreFault."""
    read = reader_for(services, org, caller)
    actors = await services.store.fetch(actors_by_name, org.id)
    return await SearchReader(People(actors), read, RowsOfLog(services, org)).search(text)


@dataclass(slots=True)
class RowsOfLog:
    """The log of `org`, opened once a word may mean several things."""

    services: AuditServices
    org: Organisation
    log: TenantLog | None = None
    look_ups: int = 0

    async def has(self, filters: Mapping[str, FilterValues]) -> bool:
        """Whether any row within the retention meets `filters`."""
        if (log := await self._log()) is None:
            return False
        query = parse_query(filters)
        return bool((await log.page(query, 1, time_max_s=LOOK_UP_MAX_S)).num_rows)

    async def values(self, name: str, filters: Mapping[str, FilterValues]) -> list[str]:
        """The most frequent values of the filter `name` in these rows. Raises InvalidQuery.

        One more than VALUES_READ_MAX says that there are others.
        """
        if (log := await self._log()) is None:
            raise _invalid("the search has too many ranges and repositories: search for fewer")
        column = FILTER_COLUMNS[name]
        query = parse_query(filters)
        values = await log.values(query, column, VALUES_READ_MAX + 1, LOOK_UP_MAX_S)
        return [value for value, _ in values]

    async def _log(self) -> TenantLog | None:
        """None once the search has had its share of look-ups."""
        self.look_ups += 1
        services = self.services
        if self.log is None:
            self.log = await open_log(services.store, services.lake, self.org, services.clock())
        return self.log if self.look_ups <= LOOK_UPS_MAX else None


async def with_search(
    services: AuditServices,
    org: Organisation,
    caller: Caller,
    parameters: Mapping[str, Sequence[str]],
) -> dict[str, list[str]]:
    """`parameters` with the filters of `q` instead of it.

    Raises InvalidQuery, whose text names `q`: beside a form's field it would say so twice.
    """
    text = only(parameters, SEARCH)  # which names the parameter itself
    filters = {name: list(values) for name, values in parameters.items() if name != SEARCH}
    if text is None:
        return filters
    try:
        search = await read_search(services, org, caller, text)
    except InvalidQuery as error:
        raise InvalidQuery(f"{SEARCH}: {error}", field=SEARCH) from error
    if search.row_id is not None:
        raise InvalidQuery(
            f"{SEARCH}: a row is read at …/audit/{search.row_id}, not searched", field=SEARCH
        )
    if "last" in search.parameters:
        raise InvalidQuery(
            f"{SEARCH}: last: is for the page; give the parameter since, which pages of rows can"
            " share",
            field=SEARCH,
        )
    return merged(filters, search)


def merged(filters: Mapping[str, Sequence[str]], search: Search) -> dict[str, list[str]]:
    """`filters` and those of `search`: a time in the search takes the place of the other one."""
    result = {name: list(values) for name, values in filters.items()}
    if search.parameters.keys() & {"last", "since", "until"}:
        for name in ("last", "since", "until"):
            result.pop(name, None)
    for name, values in search.parameters.items():
        known = result.setdefault(name, [])
        known += [value for value in values if value not in known]
    return result
