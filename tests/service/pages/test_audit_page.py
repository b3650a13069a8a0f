"""The audit page, as a browser without scripts receives it."""

import csv
import io
from urllib.parse import parse_qs, urlsplit

import pytest

from analytics.model.envelopes import BlocklistHit
from service.audit.tenant_log import TenantLog
from service.orgs.api_keys import issue_api_key
from service.orgs.organisations import set_tier
from service.store.store import Store
from tests.budgets import sample
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, binding_body
from tests.service.orgs.desk import answered
from tests.service.pages.page import (
    AUDIT,
    AUDIT_SCRIPTS,
    ORG,
    Page,
    add_install,
    open_details,
    open_page,
    open_row,
)

HOSTILE = """</code></td>"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"""
BLOCK = BlocklistHit(rule_id="MAL-1", source="osv")


def query_of(href):
    """What a link asks for."""
    return parse_qs(urlsplit(href).query)


async def answer(world, **query):
    """The page for the auditor, whatever its status."""
    response = await world.client.get(AUDIT, headers=world.session("auditor"), query_string=query)
    return response.status_code, Page(await response.get_data(as_text=True))


# A row


async def test_a_row_shows_what_happened_and_all_there_is_to_know(world):
    await world.create()
    (entry, *_) = await world.audit(event="oidc_binding_created")
    page = await open_page(world, "?event=oidc_binding_created")

    assert page.one("th", role="rowheader", scope="row").text == "Binding created"
    row = (await open_row(world, page)).one("main").text
    for column, value in entry.items():
        if isinstance(value, str) and column not in {
            "created_at",
            "received_at",
            "decision_reason",
        }:
            assert value in row, column
    assert '"sub_pattern": "' + binding_body()["sub_pattern"] + '"' in row


async def test_a_reason_is_shown_decoded(world):
    """JSON in a string is for machines."""
    await add_install(world, BLOCK)
    details = await open_details(world, await open_page(world, "?event=blocklist_hit"))

    assert "rule_id MAL-1" in details.one("div", **{"class": "inside"}).text
    assert "source osv" in details.one("div", **{"class": "inside"}).text


@pytest.mark.parametrize("reason", ["no JSON", "[1]", '"text"', "[" * 256])
async def test_a_reason_that_is_no_envelope_is_shown_as_it_is(world, reason):
    """Imported rows may say anything there."""
    await add_install(world, decision_reason=reason)

    details = await open_details(world, await open_page(world, "?event=install_allowed"))
    assert reason in details.one("div", **{"class": "inside"}).text


async def test_times_are_utc_and_say_so(world):
    """Two people in two places must read the same instant."""
    page = await open_page(world)
    (entry, *_) = await world.audit()

    assert page.all("th", scope="col", role="columnheader")[1].text == "Time (UTC)"
    assert page.one("th", scope="rowgroup").text == "Wednesday 4 March 2026"
    row = await open_row(world, page)
    times = [time.text for time in row.all("time", datetime=entry["created_at"])]
    assert "2026-03-04 12:00:00.123456" in times
    assert "2026-03-04 12:00:00.123456 UTC" in row.one("main").text


async def test_the_log_is_a_table_with_headers(world):
    """A screen reader reads each cell with its column and its row."""
    page = await open_page(world)

    assert page.all("caption")[-1].text.startswith("Audit rows of acme")
    assert len(page.all("th", scope="col", role="columnheader")) == 7
    assert len(page.all("th", scope="row", role="rowheader")) == len(await world.audit())


async def test_a_block_is_told_by_word_and_sign_not_by_colour_alone(world):
    """Some readers do not tell red from green."""
    await add_install(world, BLOCK, package_name="left-pad")
    await add_install(world, package_name="lodash")
    page = await open_page(world)

    blocked = page.one("tr", **{"class": "blocked"}).text
    assert "Blocked: denied, BLOCKED" in blocked
    assert "Install allowed, ALLOWED" in page.log.text
    icons = [one.attributes["href"] for one in page.all("use")]
    assert "#i-ban" in icons
    assert "#i-check" in icons


async def test_a_ci_job_is_told_from_a_person(world):
    subject = "repo:acme/app:ref:refs/heads/main"
    await add_install(world, actor_source="oidc_github", oidc_binding_id="obind_1", subject=subject)
    page = await open_page(world, "?actor_source=oidc_*")

    cell = page.one("td", **{"class": "c-job"}).text
    assert cell.split() == ["acme/app", "·", "main", "GitHub"]
    assert page.one("bdi", title=subject).text == "acme/app · main"


async def test_a_binding_is_a_link_for_those_who_may_look_at_it(world):
    binding = await world.bind()
    await add_install(world, actor_source="oidc_github", oidc_binding_id=binding)
    page = await open_page(world, "?actor_source=oidc_*")
    owner = await open_details(world, page, who="owner")
    auditor = await open_details(world, page)
    there = [one.attributes["href"] for one in owner.all("a") if one.text.startswith("obind")]

    assert there == [f"{ORG}/bindings/{binding}"]
    await open_page(world, there[0], **world.session("owner"))
    assert f"{ORG}/bindings/" not in auditor.html
    assert binding in auditor.one("div", **{"class": "inside"}).text


@pytest.mark.parametrize("name", ["../../../sign-out", "//evil.example", "obind_A", "obind_1/x"])
async def test_what_no_binding_is_called_is_no_link(world, name):
    """An imported row may name anything."""
    await add_install(world, actor_source="oidc_github", oidc_binding_id=name)
    page = await open_page(world, "?actor_source=oidc_*", **world.session("owner"))
    details = await open_details(world, page, who="owner")

    assert name in details.one("div", **{"class": "inside"}).text
    assert f"{ORG}/bindings/" not in details.html


@pytest.mark.parametrize("value", ["!", "*", "left*", "!left-pad", "a\\*b\\", "a b&c=d/é+%"])
async def test_a_row_links_to_the_rows_with_the_same_value(world, value):
    """Characters with a meaning in a filter are literal in such a link."""
    await add_install(world, package_name=value)
    await add_install(world, package_name="left-pad")
    await add_install(world, package_name="leftover")
    page = await open_page(world, "?event=install_allowed")
    names = [entry["packageName"] for entry in await world.audit(event="install_allowed")]
    details = await open_details(world, page, names.index(value))
    narrowed = await open_page(world, details.link("This package 1"))

    assert narrowed.chips == [f"Package is {value}"]
    assert len(narrowed.row_ids) == 1
    assert value in narrowed.log.text


async def test_rows_of_the_same_request_are_found_whatever_is_filtered_now(world):
    await add_install(world, BLOCK, request_id="req_1", package_name="bad")
    await add_install(world, request_id="req_1", package_name="good")
    details = await open_details(world, await open_page(world, "?decision=BLOCKED&last=24h"))
    found = await open_page(world, details.link("This request 2"))

    assert query_of(details.link("This request 2")) == {"request_id": ["req_1"]}
    assert "good" in found.log.text


@pytest.mark.parametrize(
    ("link", "column"),
    [
        ("This repository", "repository_id"),
        ("This run", "run_id"),
        ("This CI token", "token_id"),
        ("This file", "file_sha256"),
    ],
)
async def test_rows_of_the_same_ci_job_or_file_are_found(world, link, column):
    value = "7" * 64
    await add_install(world, **{column: value}, package_name="one")
    await add_install(world, **{column: value}, package_name="two")
    await add_install(world, package_name="of-another-job")
    details = await open_details(world, await open_page(world, "?package=one"))
    found = await open_page(world, details.link(f"{link} 2"))

    assert query_of(details.link(f"{link} 2")) == {column: [value]}
    assert "two" in found.log.text
    assert "of-another-job" not in found.log.text


# Hostile data


@sample(6)
@pytest.mark.parametrize(
    "column",
    [
        *("package_name", "version", "actor", "subject", "source_ip", "decision"),
        *("decision_reason", "ecosystem", "repository_id", "run_id", "token_id"),
        *("file_name", "file_sha256", "client"),
    ],
)
async def test_a_hostile_value_is_text(world, column):
    """Package names and subjects come from outside: they are shown, never obeyed."""
    await add_install(world, **{column: HOSTILE})
    page = await open_page(world)
    row = await open_row(world, page)
    details = await open_details(world, page)

    assert HOSTILE in row.one("main").text
    assert HOSTILE in details.one("div", **{"class": "inside"}).text
    assert page.scripts == AUDIT_SCRIPTS
    assert not [one for shown in (page, row, details) for one in shown.all("img")]


async def test_a_hostile_payload_is_text(world):
    """What is shown as JSON is escaped for HTML all the same."""
    await world.create(sub_pattern="repo:<script>alert('1')</script>")
    details = await open_details(world, await open_page(world))

    text = details.one("div", **{"class": "inside"}).text
    assert "\"repo:<script>alert('1')</script>\"" in text
    assert not details.all("script")


@pytest.mark.parametrize(
    ("name", "expected"), [("package", 200), ("subject", 200), ("version", 200), ("decision", 400)]
)
async def test_a_hostile_query_is_text(world, name, expected):
    """A link can put anything into the form; it stays a value, also where the page refuses it."""
    status, page = await answer(world, **{name: HOSTILE})

    assert status == expected
    assert HOSTILE in (
        page.values(name)[0] if status == 200 else page.one("div", role="alert").text
    )
    assert page.scripts == AUDIT_SCRIPTS


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://evil.example/", "//evil.example", "data:text/html,x"]
)
async def test_an_address_in_the_data_leads_nowhere(world, url):
    await add_install(
        world, BLOCK, package_name=url, version=url, actor=url, subject=url, request_id=url
    )
    await add_install(world, package_name="left-pad")
    for query in ("", f"?package={url}", f"?package=!{url}", f"?since={url}", f"?x={url}"):
        response = await world.client.get(AUDIT + query, headers=world.session("auditor"))
        page = Page(await response.get_data(as_text=True))
        for element in page.elements:
            for name in ("href", "src", "action"):
                assert element.attributes.get(name, "/")[:1] in {"/", "?", "#"}
                assert not element.attributes.get(name, "").startswith("//")


async def test_a_long_subject_is_cut_in_the_middle_and_whole_in_the_details(world):
    """Both of its ends tell something; a 1,024-character word would displace everything else."""
    subject = "repo:acme/" + "x" * 1000 + ":ref:main"
    await add_install(world, subject=subject)
    page = await open_page(world, "?event=install_allowed")
    cell = page.one("td", **{"class": "c-job"}).text.strip()

    assert len(cell) == 64
    assert cell.startswith("acme/")
    assert cell.endswith("· ref:main")
    details = await open_details(world, page)
    assert subject in details.one("div", **{"class": "inside"}).text


# Filters


async def test_filters_go_along_with_the_form_and_with_exports(world):
    """What is shown, what the form sends again and what an export takes are one query."""
    given = {
        "since": "2026-03-01",
        "until": "2026-03-05T00:00:00Z",
        "event": "install_allowed",
        "package": "@acme/*",
        "actor": "!key_2",
        "subject": "repo:acme/a b&c=d",
        "decision": "BLOCKED",
        "actor_source": "oidc_*",
        "oidc_binding_id": "obind_1",
    }
    _, page = await answer(world, **given)

    bounds = {"since": "2026-03-01T00:00", "until": "2026-03-05T00:00"}  # as pickers have them
    assert {name: page.values(name)[0] for name in given} == given | bounds
    assert page.link("Clear") == AUDIT
    for label in ("CSV", "JSON", "NDJSON", "Parquet"):
        export = await world.client.get(page.link(label), headers=world.session("auditor"))
        assert export.status_code == 200
        await export.get_data()
    recorded = (await world.audit(event="audit_exported"))[0]["payload"]["filters"]
    assert recorded == {name: [value] for name, value in given.items()}


async def test_the_menu_says_that_csv_is_changed_and_offers_it_as_it_is(world):
    """A scoped name with an apostrophe cannot be joined with an SBOM."""
    await add_install(world, package_name="@babel/core")
    page = await open_page(world, "?package=@babel/core")
    (menu,) = [one for one in page.all("details") if "data-exports" in one.attributes]
    files = {}
    for label in ("CSV", "CSV, unguarded"):
        file = await world.client.get(page.link(label), headers=world.session("auditor"))
        files[label] = await file.get_data(as_text=True)

    assert "In CSV, 1 package name begins with @ or another sign of formulas" in menu.text
    assert "spreadsheets get an apostrophe in front" in menu.text
    assert ",'@babel/core," in files["CSV"]
    assert ",@babel/core," in files["CSV, unguarded"]
    assert "apostrophe" not in (await open_page(world, "?package=left-pad")).html  # none is changed


async def test_members_are_named_in_rows_facets_and_chips(world):
    """By their address, as the actor of a row and as what it is about; ids are for filters."""
    member = world.members["member"]
    page = await open_page(world, "?event=member_added")

    assert member.email in [one.text for one in page.all("a", **{"class": "what"})]
    assert "mem_" not in page.one("main").text
    only = await open_page(world, page.facet(member.email))
    assert only.chips == ["Event is Member added", f"Subject is {member.email}"]


async def test_a_member_s_machine_is_named(world):
    """The row of the issue is about the token, as are those of its installs."""
    for name in ("mara-laptop", "build-host"):
        await answered(world, "POST", "/machine-tokens", {"name": name})
    page = await open_page(world, "?event=machine_token_issued")

    assert "machine mara-laptop" in page.one("main").text
    assert "mtok_" not in page.one("main").text
    only = await open_page(world, page.facet("machine mara-laptop"))
    assert only.chips[1] == "Subject is machine mara-laptop"


async def test_each_filter_is_a_chip_in_words_that_takes_it_away(world):
    page = await open_page(
        world,
        "?last=7d&event=install_allowed&package=@acme/*&actor=!key_1&actor=!github:*&cursor=",
    )

    assert page.chips == [
        "Event is Install allowed",
        "Package begins with @acme/",
        "Actor is not key_1",
        "Actor does not begin with github:",
    ]
    assert "Last 7 d" in [one.text.strip() for one in page.all("summary")]
    links = page.all("a", **{"class": "chip"})
    assert query_of(links[2].attributes["href"]) == {
        "last": ["7d"],
        "event": ["install_allowed"],
        "package": ["@acme/*"],
        "actor": ["!github:*"],
    }


async def test_what_the_form_has_no_field_for_is_kept(world):
    """A form that forgets half of a query shows rows that were not asked for."""
    page = await open_page(world, "?event=org_created&event=team_created&order=asc&actor=system:*")

    assert page.values("event")[:2] == ["org_created", "team_created"]
    assert page.values("order") == ["asc"]
    assert "oldest first" in page.all("caption")[-1].text


async def test_empty_fields_filter_nothing(world):
    """A form sends its empty fields, too."""
    empty = "?since=&until=&event=&package=&decision=&actor=&subject="
    sent = await world.client.get(AUDIT + empty, headers=world.session("auditor"))
    page = await open_page(world, sent.headers["location"])

    assert sent.headers["location"] == f"{AUDIT}?"  # the address stays short
    assert page.log
    assert page.chips == []


async def test_a_window_up_to_now_moves_with_the_clock_and_its_exports_do_not(world):
    """A saved link means the last day whenever it is opened; what is taken is what was seen."""
    await add_install(world, package_name="old")
    world.clock.advance(hours=25)
    await add_install(world, package_name="new")
    page = await open_page(world, "?last=24h", **world.admin)

    assert "new" in page.log.text
    assert "old" not in [bdi.text for bdi in page.all("bdi")]
    assert query_of(page.link("CSV"))["since"] == ["2026-03-04T13:00:00Z"]


async def test_an_exact_bound_wins_over_a_window_up_to_now(world):
    """The form sends both when text is typed into it."""
    page = await open_page(world, "?last=1h&since=2026-03-01")

    assert page.chips == ["Time since 2026-03-01"]


async def test_no_window_is_offered_that_the_tier_does_not_keep(world):
    """It would show less than it says."""
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "free", BY_OPERATOR)
    page = await open_page(world)

    assert page.one("nav", **{"aria-label": "Time window"}).text.split() == (
        ["All", "1", "h", "24", "h", "7", "d"]
    )


async def test_fields_complete_to_what_is_there(world):
    """A binding's id is not memorable."""
    await add_install(world, package_name="left*", oidc_binding_id="obind_7", subject="repo:a")
    page = await open_page(world)
    lists = {one.attributes["id"] for one in page.all("datalist")}
    offered = {option.attributes.get("value") for option in page.all("option")}

    assert {field.attributes["list"] for field in page.all("input") if "list" in field.attributes}
    assert lists >= {
        field.attributes["list"] for field in page.all("input") if "list" in field.attributes
    }
    assert {"left\\*", "obind_7", "repo:a", "key_1", "oidc_*", "blocklist_hit"} <= offered


# Faults of a query


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ({"since": "yesterday"}, "since"),
        ({"until": "2026-02-30"}, "until"),
        ({"package": "!"}, "package"),
        ({"actor_source": "!"}, "actor_source"),
        ({"actor_source": "oicd_*"}, "actor_source"),
        ({"event": "!blokclist_hit"}, "event"),
        ({"since": "2026-03-04", "until": "2026-03-03"}, "since"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_fault_is_named_beside_its_field_and_nothing_is_lost(shared_world, query, name):
    """A slip of the finger must not cost the other filters."""
    status, page = await answer(shared_world, **query, actor="system:*", order="asc")
    (field,) = [one for one in page.all("input", name=name) if one.attributes["type"] != "hidden"]

    assert status == 400
    assert field.attributes["aria-invalid"] == "true"
    assert field.attributes["value"].removesuffix("T00:00") == query[name]
    assert page.one("p", id=f"hint-filter-{name}").text.startswith(name)
    assert page.values("actor")[0] == "system:*"
    corrected = query_of(page.link("show the rows without it"))
    assert corrected["actor"] == ["system:*"]
    assert name not in corrected
    await open_page(shared_world, page.link("show the rows without it"))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"pakage": "x"}, "unknown query parameter: pakage"),
        ({"last": "2y"}, "last must be a number of minutes, hours, days or weeks"),
        ({"limit": "0"}, "limit must be an integer from 1 to 1000"),
        ({"cursor": "x"}, "cursor is not valid for this query"),
        ({"verdict_source": "api"}, "verdict_source must be one of proxy, admin_api, "),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_fault_without_a_field_is_said_and_a_link_goes_on(shared_world, query, said):
    """Old links and typing in the address bar lead here."""
    status, page = await answer(shared_world, **query, actor="system:*")

    assert status == 400
    assert said in page.one("div", role="alert").text
    assert query_of(page.link("show the rows without it")) == {"actor": ["system:*"]}


async def test_a_decision_that_there_is_not_is_said_beside_its_choice(world):
    """A link of a script that spells it small: the choice is there to be made again."""
    status, page = await answer(world, decision="blocked", actor="system:*")
    (choice,) = page.all("select", name="decision")

    assert status == 400
    assert choice.attributes["aria-invalid"] == "true"
    assert page.one("p", id="hint-filter-decision").text == (
        "decision must be one of ALLOWED, BLOCKED, not 'blocked' (case matters: BLOCKED)"
    )
    assert query_of(page.link("show the rows without it")) == {"actor": ["system:*"]}


async def test_no_matching_row_says_what_to_do(world):
    """An empty answer must not be a dead end."""
    await add_install(world, package_name="left-pad")
    page = await open_page(world, "?package=left-pad&until=2020-01-01")

    assert not page.all("table")
    assert page.link("clear the filters") == AUDIT
    assert len((await open_page(world, page.link("search all time"))).row_ids) == 1


async def test_a_value_that_no_row_has_is_said_with_what_is_most_like_it(world):
    """A misspelt name must not look like an all-clear."""
    await add_install(world, package_name="event-stream", run_id="412803377")
    page = await open_page(world, "?package=event-strem")

    assert "No row of acme has this value." in page.one("main").text
    assert len((await open_page(world, page.link("event-stream"))).row_ids) == 1
    page = await open_page(world, "?repository_id=412803377")
    found = await open_page(world, page.link("show those rows"))
    assert found.chips == ["CI run is 412803377"]


async def test_a_reading_is_shown_above_the_rows_and_can_be_taken_back(world):
    await add_install(world, package_name="left-pad", version="1.3.0")
    sent = await world.client.get(
        f"{AUDIT}?q=Left-Pad@v1.3.0", headers=world.session("auditor"), follow_redirects=True
    )
    page = Page(await sent.get_data(as_text=True))
    reading = page.one("ul", **{"aria-label": "How the search was read"})

    assert "“Left-Pad@v1.3.0” was read as" in reading.text
    assert "Package is left-pad" in reading.text
    chips = [link for link in page.all("a", **{"class": "chip"}) if "left-pad" in link.text]
    exact = next(link for link in page.all("a") if link.text.startswith("Search for exactly"))
    assert query_of(chips[-1].attributes["href"]) == {"version": ["1.3.0"]}
    assert query_of(exact.attributes["href"]) == {"package": ["Left-Pad@v1.3.0"]}


async def test_a_range_is_shown_as_its_versions_and_as_all_of_them(world):
    for version in ("1.2.0", "1.3.0", "2.0.0"):
        await add_install(world, package_name="left-pad", version=version)
    sent = await world.client.get(
        f"{AUDIT}?q=left-pad@^1.2.0 blocked allowed",
        headers=world.session("auditor"),
        follow_redirects=True,
    )
    page = Page(await sent.get_data(as_text=True))

    assert len(page.row_ids) == 2
    whole = query_of(page.link("Show all versions"))
    assert whole == {"decision": ["BLOCKED", "ALLOWED"], "package": ["left-pad"]}


@pytest.mark.parametrize("searched", ["Left-Pad", "x" * 9_000, "pakage:x", HOSTILE])
async def test_a_reading_that_is_not_what_the_filters_say_is_not_shown(world, searched):
    """Anyone can write an address."""
    status, page = await answer(world, package="right-pad", searched=searched)

    assert status in {200, 400}
    assert page.all("ul", **{"aria-label": "How the search was read"}) == []
    assert "<script>alert" not in page.html


async def test_a_search_becomes_filters_in_the_address(world):
    await add_install(world, package_name="event-stream", version="3.3.6")
    response = await world.client.get(
        f"{AUDIT}?q=event-stream@3.3.6 last:7d&decision=ALLOWED&last=1h&columns=run",
        headers=world.session("auditor"),
    )

    assert response.status_code == 303
    target = response.headers["location"]
    assert query_of(target) == {
        "package": ["event-stream"],
        "version": ["3.3.6"],
        "last": ["7d"],
        "decision": ["ALLOWED"],
        "columns": ["run"],
    }
    assert len((await open_page(world, target)).row_ids) == 1


async def test_the_id_of_a_row_leads_to_its_page(world):
    """Copied from a ticket into the search."""
    (entry, *_) = await world.audit()
    response = await world.client.get(f"{AUDIT}?q={entry['id']}", headers=world.session("auditor"))

    assert response.headers["location"] == f"{AUDIT}/{entry['id']}"


async def test_a_search_that_is_not_understood_stays_in_its_field(world):
    status, page = await answer(world, q="pakage:left-pad", actor="key_1")

    assert status == 400
    assert page.one("input", name="q").attributes["value"] == "pakage:left-pad"
    assert "did you mean package:" in page.one("p", id="search-hint").text
    assert query_of(page.link("show the rows without it")) == {"actor": ["key_1"]}


async def test_columns_are_chosen_in_the_address(world):
    await add_install(world, source_ip="192.0.2.9", run_id="77")
    sent = await world.client.get(
        f"{AUDIT}?columns=run&columns=address&event=install_allowed",
        headers=world.session("auditor"),
    )
    assert query_of(sent.headers["location"]) == {
        "columns": ["run,address"],
        "event": ["install_allowed"],
    }
    page = await open_page(world, sent.headers["location"])
    heads = [one.text for one in page.all("th", scope="col", role="columnheader")]

    assert heads == ["Mark", "Time (UTC)", "Event", "CI run", "Address", "Details"]
    assert page.one("td", **{"data-label": "Address"}).text == "192.0.2.9"
    assert all("columns=run%2Caddress" in page.link(text) for text in ("7 d", "Hide chart"))


async def test_the_columns_that_are_shown_anyway_are_not_in_the_address(world):
    """A search sends them all."""
    sent = await world.client.get(
        f"{AUDIT}?q=left-pad&columns=package&columns=job&columns=actor",
        headers=world.session("auditor"),
    )

    assert query_of(sent.headers["location"]) == {"package": ["left-pad"]}


async def test_the_chart_is_put_away_in_the_address(world):
    """Without scripts, too, and for as long as one stays in the log."""
    await add_install(world, package_name="left-pad")
    page = await open_page(world, "?package=left-pad")
    without = await open_page(world, page.link("Hide chart"))
    later = await open_page(world, without.link("24 h"))

    assert page.all("svg", **{"class": "chart"})
    for shown in (without, later):
        assert not shown.all("svg", **{"class": "chart"})
        assert shown.one("div", **{"class": "legend"})
        assert len(shown.row_ids) == 1
    assert (await open_page(world, later.link("Show chart"))).chart
    assert page.all("table", **{"class": "rows log dense"})
    roomy = await open_page(world, without.link("Rows of 40 pixels"))
    assert query_of(roomy.link("7 d"))["view"] == ["no-chart,roomy"]
    assert roomy.all("table", **{"class": "rows log"})


async def test_a_picked_time_is_of_utc(world):
    page = await open_page(world, "?since=2026-03-04T11:30&until=2026-03-04T12:30:00.5Z")
    (since,) = page.all("input", name="since")
    (until,) = page.all("input", name="until")

    assert page.chips == ["Time since 2026-03-04 11:30:00", "Time until 2026-03-04 12:30:00.500000"]
    assert since.attributes["type"] == "datetime-local"
    assert since.attributes["value"] == "2026-03-04T11:30"
    assert until.attributes["type"] == "text"  # a picker would change it
    assert until.attributes["value"] == "2026-03-04T12:30:00.5Z"
    page = await open_page(world, "?since=2026-03-04T11:30:05&until=2026-03-04")
    assert page.one("input", name="since").attributes["value"] == "2026-03-04T11:30:05"
    assert page.one("input", name="since").attributes["step"] == "1"
    assert page.one("input", name="until").attributes["value"] == "2026-03-05T00:00"


async def test_what_is_routine_steps_back(world):
    """Allowed installs are grey, and so is what repeats the row above."""
    for name in ("one", "two"):
        await add_install(world, package_name=name, subject="repo:acme/app:ref:refs/heads/main")
    await add_install(world, BLOCK, package_name="bad", subject="repo:acme/app:ref:refs/heads/main")
    page = await open_page(world, "?package=!none&subject=repo:*")

    assert [one.attributes.get("class") for one in page.all("tr") if "id" in one.attributes] == [
        "blocked",
        "calm",
        "calm",
    ]
    jobs = [
        one.attributes["class"] for one in page.all("td", **{"data-label": "CI job or subject"})
    ]
    assert jobs == ["c-job", "c-job same", "c-job same"]


async def test_the_retention_is_said_once(world):
    for query in ("?", "?package=nowhere"):
        page = await open_page(world, query)
        assert page.html.count("past this organisation") == 1


async def test_a_key_is_shown_by_its_name_and_kept_in_the_details(world):
    async with world.services.store.write() as work:
        key, _ = await issue_api_key(
            work, world.acme, "storefront-ci", None, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    await add_install(world, actor=key.id)
    page = await open_page(world, f"?actor={key.id}")

    assert page.one("span", title=key.id).text == "storefront-ci"
    assert page.chips == ["Actor is storefront-ci"]
    details = await open_details(world, page)
    assert key.id in details.one("div", **{"class": "inside"}).text


# Paging


async def test_older_and_newer_rows_are_a_link_away(world):
    pages = []
    page = await open_page(world, "?limit=2&actor=system:*")
    while True:
        pages.append(page.row_ids)
        older = page.all("a", rel="next")
        if not older:
            break
        page = await open_page(world, older[0].attributes["href"])
    everything = await world.audit(actor="system:*")
    way_back = [page.row_ids]
    while newer := page.all("a", rel="prev"):
        page = await open_page(world, newer[0].attributes["href"])
        way_back.append(page.row_ids)

    assert [one for shown in pages for one in shown] == [entry["id"] for entry in everything]
    assert len(pages) > 3
    assert way_back == pages[::-1]


async def test_a_long_way_back_is_forgotten_but_never_wrong(world, monkeypatch):
    """A URL has an end; the newest rows stay a link away."""
    monkeypatch.setattr("service.pages.state.BACK_MAX", 2)
    pages = []
    page = await open_page(world, "?limit=1")
    for _ in range(6):
        pages.append(page.row_ids)
        page = await open_page(world, page.one("a", rel="next").attributes["href"])
    for before in (5, 4, 3):
        if not page.all("a", rel="prev"):
            break
        page = await open_page(world, page.one("a", rel="prev").attributes["href"])
        assert page.row_ids == pages[before]

    assert not page.all("a", rel="prev")
    assert (await open_page(world, page.link("Newest"))).row_ids == pages[0]


async def test_a_page_of_a_moving_window_stays_the_page(world):
    """A cursor belongs to a query: the window is fixed once its pages are turned."""
    for number in range(3):
        await add_install(world, package_name=f"p{number}")
    page = await open_page(world, "?last=1h&limit=1&event=install_allowed")
    older = page.one("a", rel="next").attributes["href"]
    world.clock.advance(minutes=50)

    assert "p1" in (await open_page(world, older)).log.text


# At a glance


async def test_the_histogram_says_when_and_narrows(world):
    for hours in (0, 0, 5):
        world.clock.advance(hours=hours)
        await add_install(world, BLOCK, package_name="bad")
    page = await open_page(world, "?last=24h&event=blocklist_hit")
    bars = page.all("a", tabindex="-1")
    rows = page.all("a")
    narrow = [query_of(bar.attributes["href"]) for bar in bars]

    assert narrow == [
        {
            "event": ["blocklist_hit"],
            "since": ["2026-03-04T12:00:00Z"],
            "until": ["2026-03-04T13:00:00Z"],
        },
        {
            "event": ["blocklist_hit"],
            "since": ["2026-03-04T17:00:00Z"],
            "until": ["2026-03-04T18:00:00Z"],
        },
    ]
    assert bars[0].text == ("2026-03-04 12:00 to 13:00 UTC: 2 blocked, 0 allowed, 0 other")
    assert {bar.attributes["href"] for bar in bars} <= {
        link.attributes["href"] for link in rows if "tabindex" not in link.attributes
    }
    assert page.one("svg", **{"class": "chart"}).attributes["aria-label"] == "Rows by hour"
    edges = page.chart.attributes["data-edges"].split()
    assert (edges[0], edges[-1]) == ("2026-03-03T17:00:00Z", narrow[-1]["until"][0])
    assert len(edges) == 1 + 25
    assert len((await open_page(world, bars[0].attributes["href"])).row_ids) == 2


async def test_the_most_frequent_values_can_be_kept_alone_or_left_out(world):
    """Incidents are found by excluding what is known."""
    await add_install(world, package_name="left-pad")
    await add_install(world, package_name="left-pad")
    await add_install(world, BLOCK, package_name="!bad*")
    page = await open_page(world, "?actor=key_1")
    only = await open_page(world, page.facet("!bad*"))
    others = await open_page(world, page.link("− leave out !bad*"))

    assert only.chips == ["Package is !bad*", "Actor is key_1"]
    assert len(only.row_ids) == 1
    assert others.chips == ["Package is not !bad*", "Actor is key_1"]
    assert len(others.row_ids) == 2
    assert len((await open_page(world, page.link("1 blocked"))).row_ids) == 1


async def test_the_number_of_rows_is_that_of_the_export(world):
    for number in range(3):
        await add_install(world, package_name=f"p{number}")
    page = await open_page(world, "?event=install_allowed&limit=2")
    export = await world.client.get(page.link("CSV"), headers=world.session("auditor"))
    lines = list(csv.reader(io.StringIO(await export.get_data(as_text=True))))

    assert page.exports == "Export 3 rows"
    assert export.headers["x-row-count"] == "3"
    assert len(lines) == 1 + 3


async def test_the_page_asks_for_its_rows_and_for_its_numbers_once(world, monkeypatch):
    asked = []
    take_snapshot = Store.snapshot

    async def snapshot_before_a_row(self, tenant_id):
        snapshot = await take_snapshot(self, tenant_id)
        await add_install(world)
        return snapshot

    monkeypatch.setattr(Store, "snapshot", snapshot_before_a_row)
    for name in ("page", "summary", "count", "row"):
        real = getattr(TenantLog, name)

        async def noted(self, *rest, real=real, name=name, **more):
            asked.append((name, self.snapshot))
            return await real(self, *rest, **more)

        monkeypatch.setattr(TenantLog, name, noted)
    await open_page(world, "?last=24h")

    assert [name for name, _ in asked] == ["page", "summary", "summary", "count"]
    assert asked[0][1] is asked[1][1] is asked[2][1]


async def test_a_window_is_compared_with_the_one_before(world):
    for hours in (0, 0, 25):
        world.clock.advance(hours=hours)
        await add_install(world, package_name="left-pad")
    page = await open_page(world, "?package=left-pad&last=24h", **world.admin)

    assert "2 in the window before: -50 %" in page.one("main").text
    assert page.all("path", **{"class": "before"})
    bars = [bar.text for bar in page.all("a", tabindex="-1")]
    assert any(text.endswith("0 allowed, 0 other; 2 in the window before") for text in bars)


async def test_what_is_past_retention_is_not_compared_with(world):
    """It would look like a rise."""
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "free", BY_OPERATOR)
    for days in (0, 5):
        world.clock.advance(days=days)
        await add_install(world, package_name="left-pad")

    for last, is_compared in (("2d", False), ("3d", True), ("4d", False)):
        page = await open_page(world, f"?package=left-pad&last={last}", **world.admin)
        assert ("in the window before" in page.one("main").text) is is_compared, last


async def test_the_rows_without_a_decision_are_a_link(world):
    await add_install(world, package_name="left-pad")
    page = await open_page(world)
    link = next(one for one in page.all("a") if one.text.endswith(" other"))
    others = await open_page(world, link.attributes["href"])

    assert others.chips == ["Decision is not ALLOWED", "Decision is not BLOCKED"]
    assert len(others.row_ids) == int(link.text.split()[0]) > 0


@sample(4)
@pytest.mark.parametrize(
    "since",
    [
        "0001-01-01",
        "9999-12-30",
        "9999-12-31T23:59:59.999999Z",
        "2026-03-04T12:00:00.123455Z",
    ],
)
@pytest.mark.parametrize("tier", ["enterprise", "free"])
async def test_any_window_has_a_page(world, since, tier):
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, tier, BY_OPERATOR)
    for until in (None, "9999-12-31", "2026-03-04T12:00:01Z"):
        query = {"since": since} | ({} if until is None else {"until": until})
        status, _ = await answer(world, **query)
        assert status in {200, 400}


# Who may see what


async def test_the_navigation_shows_what_may_be_opened(world):
    page = await open_page(world)
    sections = page.one("nav", **{"aria-label": "Pages of acme"}).text.split()
    pages = page.one("nav", **{"aria-label": "Pages of this section"}).text.split()

    assert sections == ["Overview", "Audit", "log", "Policy"]
    assert pages == ["Alerts", "SQL", "Exports", "Reports"]
    assert page.one("a", **{"aria-current": "page"}).attributes["href"] == AUDIT


async def test_the_page_says_how_far_back_it_looks(world):
    """Rows past retention are not shown; without a word that would look like there were none."""
    page = await open_page(world, "?package=none")
    floors = page.all("time", datetime="2025-03-04T12:00:00.123456+00:00")

    assert floors[0].text == "2025-03-04 12:00:00"
    assert "The org tier keeps rows for 365 days" in page.one("main").text


async def test_without_a_limit_to_retention_the_page_names_none(world):
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "enterprise", BY_OPERATOR)
    page = await open_page(world, "?package=none")

    assert "retention" not in page.one("main").text
    assert "keeps rows permanently" in page.one("main").text


async def test_what_is_past_retention_is_neither_shown_nor_counted(world):
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "free", BY_OPERATOR)
    await add_install(world, package_name="bygone")
    world.clock.advance(days=7, seconds=1)
    await add_install(world, package_name="present")
    page = await open_page(world, "?event=install_allowed", **world.admin)

    assert "bygone" not in page.html
    assert page.exports == "Export 1 row"


async def test_the_browser_runs_no_script_but_ours(world):
    """Should anything hostile ever get past the escaping, it must not run."""
    response = await world.client.get(AUDIT, headers=world.session("auditor"))
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in response.headers["content-security-policy"].split(";")
    )

    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"


@pytest.mark.parametrize(
    "query",
    [
        {"package": [str(n) for n in range(4_000)]},
        {"back": [str(n) for n in range(4_000)]},
        {"actor": "a" * 60_000},
    ],
    ids=["values", "pages back", "one long value"],
)
async def test_an_address_out_of_all_proportion_is_a_short_page(world, query):
    """Every link repeats what is filtered: of 4,000 values the page had 269 MB, and took 40 s."""
    await world.create()
    response = await world.client.get(AUDIT, headers=world.session("auditor"), query_string=query)
    body = await response.get_data(as_text=True)
    page = Page(body)

    assert response.status_code == 400
    assert "at most 100 filter values" in body
    assert len(body) < 26_000
    assert page.values("package") == [""]


async def test_rows_of_one_day_are_drawn_by_the_hour_without_a_window(world):
    """An incident of an hour would be one bar of a day."""
    for hours in (0, 2, 3):
        world.clock.advance(hours=hours)
        await add_install(world, BLOCK, package_name="bad")
    page = await open_page(world, "?package=bad")

    assert len(page.all("a", tabindex="-1")) == 3
    assert page.chips == ["Package is bad"]


async def test_blocked_rows_alone_have_the_whole_drawing(world):
    await add_install(world, BLOCK, package_name="bad")
    (alone,) = (await open_page(world, "?decision=BLOCKED")).all("rect", **{"class": "bar-stop"})
    await add_install(world, package_name="good")
    (beside,) = (await open_page(world, "?package=bad&package=good")).all(
        "rect", **{"class": "bar-stop"}
    )

    assert float(alone.attributes["height"]) > 3 * float(beside.attributes["height"]) > 0
