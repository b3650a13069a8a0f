"""What the example changes do: run in a copy of the code that has them, by `test_changes`."""

from asyncio import to_thread
from pathlib import Path
from typing import get_args

from sqlalchemy import text

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, export_pieces
from analytics.imports.items import ITEM_COLUMNS, PLAIN_COLUMNS
from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import ADMIN_EVENTS
from analytics.model.ingest_validation import INGESTIBLE
from analytics.model.labels import EVENT_LABELS
from analytics.model.retention import RETENTION_DAYS, Tier
from analytics.model.schema import SCHEMA_VERSION, WIRE_COLUMNS
from analytics.storage.segment_index import INDEXED_COLUMNS
from service.access.sign_in.providers import LABELS, load_providers
from service.ci.issuers.issuers import load_issuers
from service.ci.issuers.run_links import run_link
from service.ci.providers import CiProvider
from service.core.settings import REPOSITORY, IdentityProviderName, Settings
from service.packages.clients import ProxyAddress, job_snippet
from service.packages.ecosystem import Release
from service.packages.ecosystems import all_variables
from service.packages.names import canonical_name
from service.packages.npm.clients import NPM_CLIENT
from service.packages.policy.document import parse_policy
from service.packages.policy.evaluation import CompiledPolicy
from service.packages.policy.osv import parse_record
from service.pages.audit_page import FILTERS
from service.pages.rows import DETAILS, ci_words, icon_of
from tests.analytics.samples import NOON, sample_row, table_of
from tests.conftest import SCRAPER, World
from tests.processes.command_line import invoke
from tests.service.pages.page import shown
from tests.service.pages.people.desk import post, see


def test_a_column_is_stored_imported_indexed_and_shown() -> None:
    assert (SCHEMA_VERSION, list(WIRE_COLUMNS)[-1]) == (4, "example_column")
    assert "example_column" in ITEM_COLUMNS
    assert "example_column" in {column.name for column in PLAIN_COLUMNS}
    assert "example_column" in INDEXED_COLUMNS
    assert "example_column" in {parameter.name for parameter in FILTERS}
    assert "Example" in {column.label for columns in DETAILS.values() for column in columns}


def test_an_event_has_its_words() -> None:
    assert EVENT_LABELS["example_happened"] == "Example happened"
    assert icon_of("example_happened") == "alert"
    assert "example_happened" in INGESTIBLE
    assert "example_happened" in ADMIN_EVENTS


def test_a_ci_provider_has_issuers_links_and_snippets() -> None:
    issuers = load_issuers(REPOSITORY / "data" / "issuers.toml")
    link = run_link(issuers.values(), "example", "example:acme/app:main", "7")
    address = ProxyAddress("https://audit.example", "acme")

    assert link == "https://ci.example/acme/app/7"
    assert ci_words("oidc_example") == "Example"
    assert "npm ci" in job_snippet(NPM_CLIENT, CiProvider["EXAMPLE"], address).text


def test_an_identity_provider_can_be_configured(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path, oauth_example_client_id="id", oauth_example_client_secret="secret"
    )

    assert "example" in get_args(IdentityProviderName)
    assert LABELS["example"] == "Example"
    assert [one.label for one in load_providers(settings).values()] == ["Example"]


def test_an_ecosystem_is_judged_by_its_own_names_versions_and_records() -> None:
    example = Ecosystem("example")
    policy = {"deny": [{"ecosystem": "example", "package": "one", "versions": "<2"}]}
    record = b"""{"id": "MAL-1", "affected": [
        {"package": {"ecosystem": "Example.io", "name": "one"}, "versions": ["3.0.0"]}]}"""
    judged = CompiledPolicy(parse_policy(policy)).on(example, canonical_name(example, "one"))

    assert judged.decide(Release(example, "one", "1.0.0"), NOON).is_blocked
    assert not judged.decide(Release(example, "one", "2.0.0"), NOON).is_blocked
    assert list(parse_record(record).packages) == [(example, "one")]


async def test_an_ecosystem_has_clients_and_a_registry_in_the_proxy(world: World) -> None:
    settings = Settings(data_dir=Path(), proxy_example_upstream="https://packages.example/")
    address = ProxyAddress("https://audit.example", "acme")
    refused = await world.client.get("/proxy/acme/example/one")

    assert all_variables(address, "csi_1")["GET_TOKEN"] == "csi_1"
    assert str(settings.package_registry("example").origin) == "https://packages.example"
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"]


def test_rows_are_exported_in_a_format_with_a_column() -> None:
    rows = table_of([sample_row(NOON, example_column="one")])
    pieces = export_pieces([rows], "org_acme", FileEncoding(ExportFormat("txt")))

    assert b'"example_column":"one"' in b"".join(piece.content for piece in pieces)


async def test_an_organisation_can_have_the_tier(world: World) -> None:
    path = "/api/v1/operator/orgs/acme/tier"
    response = await world.client.put(path, headers=world.admin, json={"tier": "example"})

    assert (response.status_code, RETENTION_DAYS[Tier("example")]) == (200, 90)


async def test_a_database_is_migrated(world: World) -> None:
    async with world.services.store.read() as session:
        versions = await session.scalars(text("SELECT version_num FROM alembic_version"))
        former = await session.scalars(text("SELECT example FROM former_tiers"))

        assert (list(versions), set(former) <= {None}) == (["9999"], True)


async def test_a_metric_is_shown(world: World) -> None:
    shown = await (await world.client.get("/metrics", headers=SCRAPER)).get_data(as_text=True)

    assert 'countersign_examples_total{kind="one"} 1.0' in shown


async def test_an_endpoint_answers(world: World) -> None:
    path = "/api/v1/admin/orgs/acme/teams/example"
    response = await world.client.get(path, headers=world.admin)

    assert await response.get_json() == {"org": "acme"}
    assert (await world.client.get(path)).status_code == 401


async def test_a_policy_rule_decides_and_is_edited_on_its_page(world: World) -> None:
    path = "/api/v1/admin/orgs/acme/policy"
    rule = {"ecosystem": "npm", "package": "left-pad", "versions": ["<1.3.0"], "id": "old-pads"}
    put = await world.client.put(
        path, headers=world.admin | {"if-match": '"0"'}, json={"example": [rule]}
    )
    asked = {"ecosystem": "npm", "package": "left-pad", "version": "1.2.0"}
    checked = await world.client.post(f"{path}/check", headers=world.admin, json=asked)
    page = await see(world, "policy")

    assert put.status_code == 200, await put.get_data()
    assert (await checked.get_json())["rule_id"] == "old-pads"
    assert "old-pads" in page.html
    assert "Add an example" in page.html


async def test_a_command_asks_its_endpoint(world: World) -> None:
    environment = {"COUNTERSIGN_DATA_DIR": str(world.services.settings.data_dir)}
    ran = await to_thread(invoke, ["org", "example", "--org", "acme", "--json"], environment)

    assert (ran.code, ran.json) == (0, {"org": "acme"}), ran.err


async def test_an_endpoint_and_its_form_run_one_action(world: World) -> None:
    path = "/api/v1/admin/orgs/acme/projects/example"
    response = await world.client.post(path, headers=world.admin, json={"name": "new"})
    page = await shown(await post(world, "projects/example", name="old"), 409)

    assert await response.get_json() == {"name": "new"}
    assert "the example is old already" in page.html


async def test_the_api_documents_all(world: World) -> None:
    document = await (await world.client.get("/openapi.json")).get_json()
    entry = document["components"]["schemas"]["AuditEntry"]
    paths = document["paths"]
    export = next(paths[path]["get"] for path in paths if path.endswith("/audit/export"))
    parameters = {parameter["name"]: str(parameter) for parameter in export["parameters"]}

    assert "example_column" in entry["properties"]
    assert {"example_column", "example_filter"} <= set(parameters)
    assert "example_happened" in parameters["event"]
    assert "text/x-example" in export["responses"]["200"]["content"]
