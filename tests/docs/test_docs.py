"""The documentation says what the code does."""

import re
from pathlib import Path

import msgspec
import pytest

from analytics.model.envelopes import ENVELOPES, EVENTS
from analytics.model.filters import FILTER_COLUMNS
from analytics.model.schema import FILTER_PARAMETERS, WIRE_COLUMNS
from analytics.storage.integrity import FaultKind
from service.access.roles import Capability, Role
from service.app.background_jobs import all_jobs, own_jobs
from service.app.declarations import apply_org, parse_declaration
from service.ci.verifier.codes import Detail, FailureCode
from service.cli.files import read_toml
from service.core.settings import PREFIX, Settings
from service.trust.refusals import CREATE_REFUSALS
from tests.conftest import BY_OPERATOR, World
from tests.service.trust.bindings.texts import documented

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def read(name: str) -> str:
    return " ".join((DOCS / name).read_text().split())


def test_every_setting_is_in_the_settings_table() -> None:
    for field in msgspec.structs.fields(Settings):
        line = re.search(rf"\| `{PREFIX}{field.name.upper()}` \| (.+?) \|", read("settings.md"))

        assert line is not None, field.name
        if isinstance(field.default, (int, float)):
            assert line[1] == f"`{field.default:g}`".replace("e+", "e") or line[1] == (
                f"`{int(field.default)}`"
            )


def test_the_settings_table_names_no_other_setting() -> None:
    named = set(re.findall(rf"\| `{PREFIX}(\w+)` \|", read("settings.md")))

    assert named == {name.upper() for name in Settings.__struct_fields__}


def test_every_event_is_documented_with_its_envelope() -> None:
    for event in EVENTS:
        line = re.search(rf"\| `{event}` \|.*", (DOCS / "audit-rows.md").read_text())

        assert line is not None, event
        for key in msgspec.structs.fields(ENVELOPES[event]):
            assert f"`{key.encode_name}`" in line[0]


def test_columns_are_documented_in_their_order() -> None:
    table = (DOCS / "audit-rows.md").read_text().split("## Events")[0]

    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(WIRE_COLUMNS)


def test_every_refusal_of_a_create_is_documented() -> None:
    for refusal in CREATE_REFUSALS:
        head, _, _ = refusal.text.partition("{")

        assert head in read("api.md")


def test_refusals_are_documented_in_the_order_they_are_reported() -> None:
    listed = [
        text
        for text in re.findall(r"^\| `(.+)` \|$", (DOCS / "api.md").read_text(), re.MULTILINE)
        if "|" not in text
    ]

    assert len(listed) == len(CREATE_REFUSALS)
    for text, refusal in zip(listed, CREATE_REFUSALS, strict=True):
        assert documented(refusal).fullmatch(text)


def test_every_query_parameter_is_documented() -> None:
    for name in [*FILTER_COLUMNS, "since", "until", "order", "limit", "cursor"]:
        assert f"`{name}`" in read("api.md")


def test_every_filter_of_a_closed_set_is_documented_with_its_values() -> None:
    """Other values are refused, so readers need the list."""
    for parameter in FILTER_PARAMETERS:
        page = re.search(r"### Page: .*?\n### ", (DOCS / "api.md").read_text(), re.DOTALL)
        line = re.search(rf"^\| `{parameter.name}` \|.*", page[0] if page else "", re.MULTILINE)

        assert (line is not None) == (parameter.known is not None), parameter
        # Events have a table of their own, which the line names.
        known = ["events"] if parameter.name == "event" else parameter.known or ()
        assert all(f"`{value}`" in line[0] or f"#{value}" in line[0] for value in known)


async def test_every_endpoint_is_documented(world: World) -> None:
    document = await (await world.client.get("/openapi.json")).get_json()
    for path in document["paths"]:
        shown = re.sub(r"\{(?!slug)\w+\}", "<id>", path.replace("{slug}", "<slug>"))

        assert shown in read("api.md"), path


async def test_every_endpoint_has_a_line_to_paste(world: World) -> None:
    document = await (await world.client.get("/openapi.json")).get_json()
    pages = "".join(page.read_text() for page in DOCS.glob("*.md")).replace("\\\n", " ")
    lines = re.findall(r"curl .*", pages)

    missing = {
        (method, path)
        for path, operations in document["paths"].items()
        for method in operations
        if not any(asks(line, method, path) for line in lines)
    }

    assert missing == set()


def asks(line: str, method: str, path: str) -> bool:
    """Whether the command `line` sends such a request."""
    command = line.partition(" | ")[0]
    variables = re.sub(r"\\\{\w+\\\}", r"[^/?\"'\\s]+", re.escape(path))
    named = re.search(r" -X (\w+)", command)
    otherwise = "POST" if re.search(r" (-d|--data\S*) ", command) else "GET"
    is_method = (named[1] if named else otherwise) == method.upper()
    return is_method and re.search(rf"{variables}(?=[?\"'\s]|$)", command) is not None


def test_every_role_and_capability_is_documented() -> None:
    for name in [*Role, *Capability]:
        assert f"`{name}`" in read("security-model.md")


def anchors(markdown: str) -> set[str]:
    text = re.sub(r"^ *```.*?^ *```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(markdown: str) -> list[tuple[str, str]]:
    return re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", markdown)


def leads_somewhere(document: Path, target: str, anchor: str) -> bool:
    """Whether the file is there, and has the heading that the anchor names."""
    file = document.parent / target if target else document
    return file.exists() and (not anchor or anchor in anchors(file.read_text()))


def test_links_between_documents_lead_somewhere() -> None:
    documents = [*DOCS.glob("**/*.md"), *ROOT.glob("*.md")]

    broken = [
        f"{document.name}: {target}"
        for document in documents
        for target, anchor in links(document.read_text())
        if not leads_somewhere(document, target, anchor)
    ]

    assert len(documents) > 8
    assert broken == []


@pytest.mark.parametrize("name", ["run-book.md", "operations.md", "failures.md"])
def test_the_table_of_contents_has_every_heading(name: str) -> None:
    introduction, *sections = re.split(r"^(?=## )", (DOCS / name).read_text(), flags=re.MULTILINE)
    headings = re.findall(r"^###? (.*)$", "".join(sections), re.MULTILINE)

    assert re.findall(r"^ *- \[(.*)\]\(#", introduction, re.MULTILINE) == headings


def test_the_glossary_is_in_alphabetical_order() -> None:
    groups = (DOCS / "glossary.md").read_text().split("\n## ")[1:]

    assert groups
    for group in groups:
        terms = re.findall(r"^\| `?([^`|]+?)`? \|", group, re.MULTILINE)[2:]
        assert terms == sorted(terms, key=str.casefold)


def test_every_alert_is_in_the_run_book() -> None:
    rules = (DOCS / "monitoring" / "countersign.rules.yml").read_text()
    page = (DOCS / "run-book.md").read_text()
    (table,) = re.findall(r"\n\| alert \|.*?\n\n", page, re.DOTALL)

    alerts = re.findall(r"- alert: (\w+)", rules)
    assert alerts
    assert sorted(re.findall(r"`(Countersign\w+)`", table)) == sorted(alerts)


def test_every_kind_of_finding_is_documented() -> None:
    for kind in FaultKind:
        assert f"`{kind}`" in read("run-book.md")


def test_every_failure_of_a_token_is_documented() -> None:
    for name in [*FailureCode, *Detail]:
        line = r"^\| `(\w+)` \| (?:`(\w+)`|–) \| .+ \| .+ \| .+ \|$"
        rows = re.findall(line, (DOCS / "ci-tokens.md").read_text(), re.MULTILINE)

        assert name in {found for row in rows for found in row}


async def test_every_job_is_named_where_its_alert_is(world: World) -> None:
    """An alert needs the names of the jobs."""
    services = world.services
    for jobs_of in (own_jobs, all_jobs):
        jobs_of(services)
    exposed = services.metrics.exposition().decode()
    jobs = set(re.findall(r'maintenance_failures_total\{task="(\w+)"\}', exposed))
    (said,) = re.findall(r"The jobs are (.*?)\.", read("operations.md"))

    assert set(re.findall(r"`(\w+)`", said)) == jobs


async def test_the_organisation_in_a_file_can_be_applied(world: World, tmp_path: Path) -> None:
    (declared,) = re.findall(r"```toml\n(.*?)```", (DOCS / "operations.md").read_text(), re.DOTALL)
    file = tmp_path / "orgs.toml"
    file.write_text(declared)
    changes = []
    for _ in range(2):
        async with world.services.store.write() as work:
            for slug, org in parse_declaration(read_toml(file)).orgs.items():
                await apply_org(work, slug, org, BY_OPERATOR)
            changes.append(work.journal.events())

    assert "legal_hold_changed" in changes[0]
    assert changes[1] == []
