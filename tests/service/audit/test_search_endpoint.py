"""GET …/audit?q=: the search of the page for scripts, and values that no row has."""

from datetime import timedelta

import pytest

from service.audit.refusals import QueryTooSlow
from service.audit.search import LOOK_UPS_MAX, VALUES_READ_MAX
from service.audit.tenant_log import TenantLog
from service.audit.unknown_values import SIMILAR_CHARS_MAX
from service.orgs.api_keys import issue_api_key
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, START, refused
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import load


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A machine that is busy with other tests may take longer than people should wait."""
    monkeypatch.setattr("service.audit.search.LOOK_UP_MAX_S", 60.0)
    monkeypatch.setattr("service.audit.unknown_values.TIME_MAX_S", 60.0)
    monkeypatch.setattr("service.audit.unknown_values.ALL_MAX_S", 120.0)


@pytest.fixture
async def rows(audit):
    """Three installs by two keys, one of them sealed."""
    await audit.accept([sample_row(START, package_name="event-stream", version="3.3.6")])
    await audit.seal()
    await audit.accept(
        [
            sample_row(START, package_name="event-stream", version="4.0.0"),
            sample_row(START - timedelta(days=2), package_name="left-pad"),
        ]
    )
    return audit


async def test_a_search_finds_what_its_filters_find(rows):
    page = await rows.page(q="event-stream@3.3.6")
    assert [entry["version"] for entry in page["entries"]] == ["3.3.6"]
    both = await rows.page(q="event-stream", version="4.0.0")
    assert [entry["version"] for entry in both["entries"]] == ["4.0.0"]
    summary = await (await rows.get("/summary", q="event-stream")).get_json()
    assert summary["total"] == 2


async def test_a_key_is_found_by_its_name(rows):
    """The name is what people remember; rows have the id."""
    async with rows.services.store.write() as work:
        key, _ = await issue_api_key(
            work, rows.world.acme, "storefront-ci", None, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    await rows.accept([sample_row(START, actor=key.id)])
    page = await rows.page(q="storefront-ci")
    assert [entry["actor"] for entry in page["entries"]] == [key.id]


@pytest.mark.parametrize(
    ("search", "part"),
    [
        ("pakage:x", "did you mean package:"),
        ("last:24h", "since"),
        ("aud_0000000000000000001", "…/audit/aud_"),
    ],
)
async def test_a_search_that_means_nothing_here_is_refused(audit, search, part):
    response = await audit.get(q=search)
    assert response.status_code == 400
    assert part in (await response.get_json())["error"]


async def test_a_search_may_be_given_once(audit):
    response = await audit.get(q=["a", "b"])
    assert await refused(response) == (400, "q may be given only once")


async def test_values_that_no_row_has_are_named(rows):
    response = await rows.get(
        "/unknown-values", package=["event-strem", "left-pad"], run_id="123456789"
    )
    known = {"understood": True, "ecosystems": []}
    assert (await response.get_json())["unknown"] == [
        known
        | {"parameter": "package", "value": "event-strem", "nearest": "event-stream"}
        | {"also_in": []},
        known
        | {"parameter": "run_id", "value": "123456789", "nearest": None}
        | {"also_in": ["repository_id"]},
    ]


async def test_a_search_says_what_it_was_read_as(rows):
    """A script must be able to tell that it was given the rows of another spelling."""
    response = await rows.get("/reading", q="Event-Stream@v3.3.6 -blocked")
    assert await response.get_json() == {
        "org": "acme",
        "q": "Event-Stream@v3.3.6 -blocked",
        "row": None,
        "words": [
            {
                "text": "Event-Stream@v3.3.6",
                "filters": {"package": ["event-stream"], "version": ["3.3.6"]},
                "as_typed": False,
                "exact": 'package:"Event-Stream@v3.3.6"',
                "all_versions": None,
            },
            {
                "text": "-blocked",
                "filters": {"decision": ["!BLOCKED"]},
                "as_typed": True,
                "exact": 'package:"-blocked"',
                "all_versions": None,
            },
        ],
    }


async def test_what_a_search_was_read_as_finds_its_rows(rows):
    read = await (await rows.get("/reading", q="Event-Stream@v3.3.6")).get_json()
    filters = read["words"][0]["filters"]
    assert await rows.page(**filters) == await rows.page(q="Event-Stream@v3.3.6")
    exact = await (await rows.get("/reading", q=read["words"][0]["exact"])).get_json()
    assert exact["words"][0]["filters"] == {"package": ["Event-Stream@v3.3.6"]}


async def test_the_id_of_a_row_is_read_as_that_row(rows):
    read = await (await rows.get("/reading", q="aud_0000000000000000001")).get_json()
    assert (read["row"], read["words"]) == ("aud_0000000000000000001", [])


async def test_the_reading_of_no_search_is_refused(audit):
    status, text = await refused(await audit.get("/reading", q="pakage:x"))
    assert (status, "did you mean package:" in text) == (400, True)


async def test_a_search_of_many_words_asks_the_log_so_often(rows, monkeypatch):
    """Each look-up is a query, and clients choose the words."""
    asked = []
    page = TenantLog.page

    async def counted(self, *arguments, **named):
        asked.append(arguments)
        return await page(self, *arguments, **named)

    monkeypatch.setattr(TenantLog, "page", counted)
    text = " ".join(f"Name-{number}" for number in range(100))
    response = await rows.get("/reading", q=text)

    assert response.status_code == 200
    assert len(asked) <= LOOK_UPS_MAX


async def test_a_version_is_unknown_if_no_row_of_its_package_has_it(rows):
    """Another package may have it: that is no answer to whether this one was installed."""
    response = await rows.get("/unknown-values", q="left-pad 4.0.0")
    (unknown,) = (await response.get_json())["unknown"]
    assert (unknown["parameter"], unknown["value"], unknown["nearest"]) == (
        "version",
        "4.0.0",
        "1.3.0",
    )


async def test_a_package_of_another_ecosystem_is_another_package(rows):
    await rows.accept([sample_row(START, package_name="jinja2", ecosystem="npm")])
    response = await rows.get("/unknown-values", q="jinja2==2.10")
    unknown = (await response.get_json())["unknown"][0]
    assert (unknown["value"], unknown["ecosystems"]) == ("jinja2", ["npm"])


async def test_what_can_be_no_name_is_not_understood(rows):
    """To say that it occurs in no row would be believed."""
    response = await rows.get("/unknown-values", q="%left-pad%")
    (unknown,) = (await response.get_json())["unknown"]
    assert (unknown["understood"], unknown["nearest"]) == (False, "left-pad")


async def test_long_values_are_not_compared(audit):
    """Clients choose both texts: comparing 200 pairs of 1,000 characters took half a second."""
    long, short = "a" * SIMILAR_CHARS_MAX, "abcdefgh"
    await audit.accept([sample_row(START, package_name=name) for name in (f"{long}a", short)])

    response = await audit.get("/unknown-values", package=[long, f"{long}b", "abcdefg"])

    unknown = (await response.get_json())["unknown"]
    assert [each["nearest"] for each in unknown] == [None, None, short]


async def test_all_look_ups_together_are_bounded(rows, monkeypatch):
    """Each value needs several, and a query may name many."""
    monkeypatch.setattr("service.audit.unknown_values.ALL_MAX_S", 0)

    answer = await rows.get("/unknown-values", package="event-strem")

    assert await refused(answer) == (503, QueryTooSlow.text)


async def test_a_value_outside_the_window_is_known(rows):
    """It is the window that has none of its rows."""
    response = await rows.get("/unknown-values", q="left-pad", since="2026-03-04")
    assert (await response.get_json())["unknown"] == []


async def test_rows_are_counted_by_equal_values(rows):
    response = await rows.get("/groups", by=["package", "version"], q="event-stream")
    answer = await response.get_json()

    assert answer["by"] == ["package", "version"]
    assert answer["groups"] == [
        {
            "values": {"package": "event-stream", "version": version},
            "rows": 1,
            "blocked": 1,
            "first": "2026-03-04T12:00:00.123456Z",
            "last": "2026-03-04T12:00:00.123456Z",
        }
        for version in ("3.3.6", "4.0.0")
    ]


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ({}, "by must be 1 to 3"),
        ({"by": "payload"}, "by must be 1 to 3"),
        ({"by": ["event", "event"]}, "by must be 1 to 3"),
        ({"by": ["event", "package", "actor", "version"]}, "by must be 1 to 3"),
        ({"by": "event", "order": "asc"}, "unknown query parameter: order"),
        ({"by": "event", "limit": "1001"}, "limit must be"),
        ({"by": "event", "pakage": "x"}, "unknown query parameter"),
    ],
)
async def test_what_makes_no_group_is_refused(audit, query, part):
    status, text = await refused(await audit.get("/groups", **query))

    assert status == 400
    assert part in text


async def test_another_organisations_key_is_not_found_by_its_name(rows):
    """That would disclose that it exists; here it is a package like any other word."""
    async with rows.services.store.write() as work:
        key, _ = await issue_api_key(
            work, rows.world.other, "their-ci", None, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    await rows.accept([sample_row(START, actor=key.id)])

    assert (await rows.page(q="their-ci"))["entries"] == []


async def test_what_is_past_retention_is_in_no_group(rows):
    await rows.accept([sample_row(START - timedelta(days=400), package_name="bygone")])
    answer = await (await rows.get("/groups", by="package")).get_json()

    assert "bygone" not in {group["values"]["package"] for group in answer["groups"]}


async def test_an_advisory_finds_rows_of_the_versions_that_it_affects(audit):
    """All versions are the other choice, and that no row has an affected one is said."""
    fixed = {"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "1.3.0"}]}
    records = [
        osv_record("GHSA-aaaa-aaaa-aaaa", "left-pad", ranges=[fixed]),
        osv_record("GHSA-bbbb-bbbb-bbbb", "left-pad", ranges=[], versions=["9.9.9"]),
    ]
    await load(audit.services.store, osv_zip(records), ["*"])
    await audit.accept(
        [sample_row(START, package_name="left-pad", version=v) for v in ("1.1.0", "1.2.0", "1.3.0")]
    )

    page = await audit.page(q="GHSA-aaaa-aaaa-aaaa")
    (word,) = (await (await audit.get("/reading", q="GHSA-aaaa-aaaa-aaaa")).get_json())["words"]
    response = await audit.get("/unknown-values", q="GHSA-bbbb-bbbb-bbbb")

    assert {entry["version"] for entry in page["entries"]} == {"1.1.0", "1.2.0"}
    assert word["all_versions"] == {"ecosystem": ["npm"], "package": ["left-pad"]}
    assert len((await audit.page(**word["all_versions"]))["entries"]) == 3
    (unknown,) = (await response.get_json())["unknown"]
    assert unknown["value"] == "affected by GHSA-bbbb-bbbb-bbbb"
    assert (await audit.page(q="GHSA-bbbb-bbbb-bbbb"))["entries"] == []


async def test_a_range_that_cannot_be_looked_up_is_refused(rows):
    """To read it as typed would find no row, which would be believed."""
    text = " ".join(f"left-pad>={number}" for number in range(LOOK_UPS_MAX + 1))
    assert await refused(await rows.get("/reading", q=text)) == (
        400,
        "the search has too many ranges and repositories: search for fewer",
    )


async def test_a_range_of_a_package_with_very_many_versions_is_refused(audit):
    """The affected version may be a rare one: that no row has it would be believed."""
    range_ = {"type": "SEMVER", "events": [{"introduced": "2.0.0"}, {"fixed": "2.0.1"}]}
    record = osv_record("GHSA-aaaa-aaaa-aaaa", "nightly", ranges=[range_])
    await load(audit.services.store, osv_zip([record]), ["*"])
    frequent = [f"1.0.{number}" for number in range(VALUES_READ_MAX)] * 2
    rows = [sample_row(START, package_name="nightly", version=version) for version in frequent]
    await audit.accept(rows)
    before = [await audit.page(q=text) for text in ("GHSA-aaaa-aaaa-aaaa", "nightly@^2.0.0")]
    await audit.accept([sample_row(START, package_name="nightly", version="2.0.0")])

    answers = [await audit.get(q=text) for text in ("GHSA-aaaa-aaaa-aaaa", "nightly@^2.0.0")]

    assert [page["entries"] for page in before] == [[], []]
    text = (
        "q: rows have more than 500 versions of nightly, too many to compare with a range: search"
        " for all versions, with package:nightly, or for one of them"
    )
    assert [await refused(answer) for answer in answers] == [(400, text)] * 2
    summary = await (await audit.get("/summary", q="package:nightly")).get_json()
    assert summary["total"] == len(frequent) + 1
    assert len((await audit.page(q="nightly@2.0.0"))["entries"]) == 1
