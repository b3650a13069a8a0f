"""The search box: every shown name can be typed back, and what is not understood is refused."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.envelopes import EVENTS
from analytics.model.filters import InvalidQuery, parse_query, parse_term
from analytics.model.labels import EVENT_LABELS
from service.audit.actor_names import ActorNames
from service.audit.readings import FilterValues, Reading
from service.audit.search import SEARCH_CHARS_MAX, Search, SearchReader
from service.audit.search_forms import People
from service.packages.search_words import package_readings

ACTORS = {
    "storefront-ci": ["key_1"],
    "ada@acme.example": ["github:mem_1"],
    "build key": ["key_2", "key_3"],
}

JTI = "6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11"


@dataclass(frozen=True)
class Log:
    """Rows with one package each, and versions of it; and rows with one subject each."""

    packages: Mapping[str, Sequence[str]]
    subjects: Sequence[str] = ()

    async def has(self, filters: Mapping[str, FilterValues]) -> bool:
        if "subject" in filters:
            terms = [parse_term("subject", value) for value in filters["subject"]]
            return any(term.is_met(subject) for term in terms for subject in self.subjects)
        (package,) = filters.get("package", ("",))
        versions = self.packages.get(package)
        (version,) = filters.get("version", ("",))
        return versions is not None and (not version or version in versions)

    async def values(self, name: str, filters: Mapping[str, FilterValues]) -> list[str]:
        if name == "subject":
            term = parse_term("subject", *filters["subject"])
            return [subject for subject in self.subjects if term.is_met(subject)]
        (package,) = filters["package"]
        return [*self.packages.get(package, ())]


EMPTY = Log({})


async def read(text: str) -> list[Reading]:
    return package_readings(text)


def read_search(text: str, actors: ActorNames = ACTORS, log: Log = EMPTY) -> Search:
    return asyncio.run(SearchReader(People(actors), read, log).search(text))


NAMED = "repo:acme/app:ref:refs/heads/main"
WITH_IDS = "repo:acme@77/app@123:ref:refs/heads/main"
OTHERS = ("repo:acme@77/apple@124:ref:refs/heads/main", "repo:acme@77/app@123:environment:prod")


@pytest.mark.parametrize(
    ("text", "subjects"),
    [
        ("acme/app", ["repo:acme/app:*", "repo:acme@77/app@123:*"]),
        ("https://github.com/acme/app", ["repo:acme/app:*", "repo:acme@77/app@123:*"]),
        ("acme/app@main", [NAMED, WITH_IDS]),
        (NAMED, [NAMED, WITH_IDS]),
        (WITH_IDS, [WITH_IDS]),
    ],
)
def test_a_repository_is_found_under_subjects_with_ids_too(text, subjects):
    """GitHub puts ids behind the names since July 2026: it is the same repository."""
    log = Log({}, (NAMED, WITH_IDS, *OTHERS))

    assert read_search(text, log=log).parameters == {"subject": subjects}


def test_a_job_as_rows_show_it_has_both_subjects():
    read = read_search("acme/app \N{MIDDLE DOT} main", log=Log({}, (NAMED, WITH_IDS, *OTHERS)))

    assert {NAMED, WITH_IDS} <= set(read.parameters["subject"])
    assert not set(OTHERS) & set(read.parameters["subject"])


def test_a_repository_with_ids_alone_is_found():
    assert read_search("acme/app", log=Log({}, (WITH_IDS,))).parameters == {
        "subject": ["repo:acme@77/app@123:*"]
    }


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("event-stream@3.3.6", {"package": ["event-stream"], "version": ["3.3.6"]}),
        ("@babel/core", {"package": ["@babel/core"]}),
        ("@babel/core@7.0.0", {"package": ["@babel/core"], "version": ["7.0.0"]}),
        ("left-*", {"package": ["left-*"]}),
        ('"left-*"', {"package": ["left-\\*"]}),
        ("-package:left-pad", {"package": ["!left-pad"]}),
        ("!odd", {"package": ["\\!odd"]}),
        ("pkg:npm/%40a/b@1", {"ecosystem": ["npm"], "package": ["@a/b"], "version": ["1"]}),
        ("blocked", {"decision": ["BLOCKED"]}),
        ("decision:allowed", {"decision": ["ALLOWED"]}),
        ("-Install allowed left-pad", {"event": ["!install_allowed"], "package": ["left-pad"]}),
        ('event:"Blocked: too new"', {"event": ["cooldown_active"]}),
        ("storefront-ci", {"actor": ["key_1"]}),
        ("Ada@Acme.example", {"actor": ["github:mem_1"]}),
        ("-build key", {"actor": ["!key_2", "!key_3"]}),
        ("key:storefront-ci", {"actor": ["key_1"]}),
        ("actor:key_9", {"actor": ["key_9"]}),
        ("system:cli", {"actor": ["system:cli"]}),
        ("run:77 repo:123", {"run_id": ["77"], "repository_id": ["123"]}),
        ("14077220290", {"run_id": ["14077220290"]}),
        ("12" * 32, {"file_sha256": ["12" * 32]}),
        ("AB" * 32, {"file_sha256": ["ab" * 32]}),
        ("-sha256:ab*", {"file_sha256": ["!ab*"]}),
        ("file:left-pad-1.* client:npm/*", {"file_name": ["left-pad-1.*"], "client": ["npm/*"]}),
        ("repo:acme/app", {"subject": ["repo:acme/app:*"]}),
        ("repo:acme/app:pull_request", {"subject": ["repo:acme/app:pull_request"]}),
        (
            "obind_1 req_2 key_3",
            {"oidc_binding_id": ["obind_1"], "request_id": ["req_2"], "actor": ["key_3"]},
        ),
        ("192.0.2.4 ::1", {"source_ip": ["192.0.2.4", "::1"]}),
        ("acme/app", {"subject": ["repo:acme/app:*"]}),
        ("https://github.com/acme/app/pull/7", {"subject": ["repo:acme/app:*"]}),
        (
            "https://gitlab.com/acme/web/app/-/pipelines/77",
            {"run_id": ["77"], "subject": ["project_path:acme/web/app:*"]},
        ),
        (
            "https://files.pythonhosted.org/packages/64/c2/PyYAML-5.3.1.tar.gz",
            {"ecosystem": ["pypi"], "package": ["pyyaml"], "version": ["5.3.1"]},
        ),
        ("build-ci", {"package": ["build-ci"]}),
        ("6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11 x", {"token_id": [JTI], "package": ["x"]}),
        ("event-stream; lodash", {"package": ["event-stream", "lodash"]}),
        ("mem_2", {"subject": ["mem_2"]}),
        ("mem_1", {"actor": ["github:mem_1"]}),
        ("last:24h x x", {"last": ["24h"], "package": ["x"]}),
        ("", {}),
    ],
)
def test_words_are_read_by_field_or_by_form(text, parameters):
    assert read_search(text).parameters == parameters


def test_every_event_can_be_typed_as_it_is_shown():
    for event in EVENTS:
        for name in (EVENT_LABELS[event], EVENT_LABELS[event].replace("’", "'").upper()):
            assert read_search(name, {}).parameters == {"event": [event]}, name
            assert read_search(f"-{name} x", {}).parameters["event"] == [f"!{event}"], name


def test_the_id_of_a_row_asks_for_that_row():
    assert read_search("aud_0000000000000000012").row_id == "aud_0000000000000000012"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("foo:bar", "unknown field foo"),
        ("pakage:x", "did you mean package:"),
        ('"open', "not closed"),
        ('""', "means nothing"),
        ("package:", "write a value after package:"),
        ("-left-pad@1", "cannot be excluded"),
        ("pkg:cargo/serde", "pkg:npm/<name>"),
        ("pkg:npm/" + "%40" * 10, "the name in this package URL is not valid"),
        ("pkg:npm/" + "%40" * 1_000, "the name in this package URL is not valid"),
        ("since:2026-01-01 since:2026-01-02", "only once"),
        ("-since:2026-01-01", "write since: and a time"),
        ("x" * (SEARCH_CHARS_MAX + 1), "at most"),
        ("x " * 101, "at most 100 words"),
        ("left-pad@1.3.0 lodash@4.17.21", "one of them at a time"),
        ("team_0123456789abcdef", "no filter takes ids"),
        ("2026-01-31", "write since:2026-01-31"),
        ("10.0.0.0/8", "range of addresses"),
        ("bob@acme.example", "no member has the address"),
        ("https://example.com/x", "no address of a package"),
        ("https://app.circleci.com/pipelines/github/acme/app/482", "open the workflow"),
        ("https://app.circleci.com/pipelines/gh/acme/app?branch=main", "open the workflow"),
        ("https://circleci.com/gh/acme/app/77", "open the workflow"),
    ],
)
def test_what_is_not_understood_is_refused(text, part):
    """An ignored word would widen the search without a sign of it."""
    with pytest.raises(InvalidQuery, match=part) as refusal:
        read_search(text)
    assert refusal.value.field == "q"


OLD = Log({"JSONStream": ["1.3.5"], "pyyaml": ["5.3.1", "6.0.2", "dev"], "jsonstream": ["1.0.3"]})


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("JSONStream", {"package": ["JSONStream"]}),
        ("JsonStream", {"package": ["jsonstream"]}),
        ("-JsonStream", {"package": ["!jsonstream"]}),
        ("JsonStream@1.0.3", {"package": ["jsonstream"], "version": ["1.0.3"]}),
        ("JsonStream@9", {"package": ["jsonstream"], "version": ["9"]}),
        ("PyYAML 5.3.1.0", {"package": ["pyyaml"], "version": ["5.3.1"]}),
        ("PyYAML>=5,<7", {"package": ["pyyaml"], "version": ["5.3.1", "6.0.2"]}),
        ("PyYAML<5", {"package": ["pyyaml"], "version": ["<5"]}),
        ('package:"PyYAML"', {"package": ["PyYAML"]}),
        ("package:PyYAML", {"package": ["PyYAML"]}),
    ],
)
def test_what_may_mean_several_things_means_what_rows_have(text, parameters):
    """A name in capitals may be an old package of npm, or a careless spelling."""
    assert read_search(text, log=OLD).parameters == parameters


@pytest.mark.parametrize(
    ("affected", "filters"),
    [
        ({"pyyaml": "5.3.1", "requests": "2.0"}, {"package": ["pyyaml"], "version": ["5.3.1"]}),
        (
            {"pyyaml": "5.3.1 6.0.2", "JSONStream": "1.3.5"},
            {"package": ["JSONStream", "pyyaml"], "version": ["1.3.5", "5.3.1", "6.0.2"]},
        ),
        ({"jsonstream": "1.0.3", "more": "2.0.0"}, {"package": ["jsonstream", "more"]}),
        ({"more": "9"}, {"package": ["more"], "version": ["affected by X"]}),
    ],
)
async def test_versions_of_several_packages_are_filters_if_these_mean_the_same(affected, filters):
    """Filters find each of the versions of each package: others, too, if one of these has it."""
    log = Log({**OLD.packages, "more": ["1.0.3", "2.0.0"], "JSONStream": ["1.3.5", "2.0.0"]})
    reading = Reading(
        {"package": tuple(sorted(affected)), "version": ("affected by X",)},
        lambda package, version: version in affected[package].split(" "),
    )

    async def advisory(_: str) -> list[Reading]:
        return [reading]

    (word,) = (await SearchReader(People({}), advisory, log).search("X-1")).words

    assert word.filters == filters
    assert word.all_versions == ({"package": sorted(affected)} if "version" in filters else None)


@pytest.mark.parametrize(
    ("text", "is_as_typed"),
    [
        ("pyyaml 6.0.2", True),
        ("PyYAML", False),
        ("PyYAML==5.3.1", False),
        ("blocked", True),
        ("https://pypi.org/project/pyyaml/", False),
    ],
)
def test_a_word_that_was_read_as_something_else_says_so(text, is_as_typed):
    (word,) = read_search(text, log=OLD).words
    assert (word.text, word.as_typed) == (text, is_as_typed)


@given(
    st.sampled_from(["gh", "github", "bb", "circleci"]),
    st.from_regex(r"[A-Za-z0-9][\w.-]{0,20}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9][\w.-]{0,20}", fullmatch=True),
    st.integers(1, 99_999),
    st.uuids().map(str),
    st.sampled_from(["", "/", "/jobs/39", "/jobs/39/parallel-runs/0/steps/0-101?x=1#L2"]),
)
def test_a_page_of_circleci_means_its_workflow(vcs, owner, name, number, workflow, end):
    """The workflow is what tokens name; a job and a pipeline have numbers of their own there."""
    project = f"https://app.circleci.com/pipelines/{vcs}/{owner}/{name}"
    for page in (
        f"{project}/{number}/workflows/{workflow}{end}",
        f"https://app.circleci.com/pipelines/workflows/{workflow}{end}",
        f"circleci.example.com/pipelines/{vcs}/{owner}/{name}/{number}/workflows/{workflow}{end}",
        f"https://circleci.com/api/v2/workflow/{workflow}/job",
        f"<https://circleci.com/workflow-run/{workflow}|the run>",
    ):
        (word,) = read_search(page).words
        assert word.filters == {"run_id": [workflow]}, page
        assert word.as_typed is ("://" not in page)
    with pytest.raises(InvalidQuery, match="open the workflow"):
        read_search(f"{project}/{number}")


async def test_what_only_one_of_its_fields_has_is_found_there():
    """The id of a pipeline at CircleCI has the form of a token's; a repository's that of a run."""

    class Runs(Log):
        async def has(self, filters: Mapping[str, FilterValues]) -> bool:
            return filters in ({"run_id": (JTI,)}, {"repository_id": ("412803377",)})

    reader = SearchReader(People(ACTORS), read, Runs({}))
    found = await reader.search(f"{JTI} 412803377")
    assert found.parameters == {"run_id": [JTI], "repository_id": ["412803377"]}


async def test_a_part_of_names_means_all_who_have_it():
    people = {"ada@acme.example": ["github:mem_2"], "adam@acme.example": ["github:mem_1"]}

    class Adas(Log):
        async def has(self, filters: Mapping[str, FilterValues]) -> bool:
            return "actor" in filters

    found = await SearchReader(People(people), read, Adas({})).search("ada@acme")
    assert found.parameters == {"actor": ["github:mem_2"]}
    found = await SearchReader(People(people), read, Adas({})).search("adam ada")
    assert found.parameters == {"actor": ["github:mem_1"]}
    found = await SearchReader(People(people), read, Adas({})).search("acme.example")
    assert found.parameters == {"actor": ["github:mem_1", "github:mem_2"]}


def test_a_secret_is_refused_without_being_repeated():
    with pytest.raises(InvalidQuery, match="looks like a secret") as refusal:
        read_search("cs_0123456789abcdefghij")
    assert "0123456789" not in str(refusal.value)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"'), min_size=1))
def test_a_quoted_value_means_exactly_itself(text):
    parameters = read_search(f'package:"{text}"', {}).parameters
    (term,) = parse_query(parameters).conditions[0].terms
    assert (term.text, term.is_prefix, term.is_negated) == (text, False, False)
