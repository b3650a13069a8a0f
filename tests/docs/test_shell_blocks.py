"""Every shell block of the documentation works when pasted: literally, against the demo."""

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx2
import pytest
from sqlalchemy import make_url

from tests.docs.demo_reader import DemoReader, Model, demo_reader, make_model
from tests.docs.shell_blocks import (
    NOT_RUN,
    fenced_blocks,
    left_out,
    pages,
    runnable_blocks,
    shell_blocks,
    shells,
)
from tests.docs.test_ci import REQUEST_TOKEN, token_endpoint
from tests.issuers.fixtures import IssuerProcess
from tests.postgres import PostgresServer
from tests.seaweedfs import Bucket

API: Final = "docs/api.md"
INCIDENT: Final = "docs/recipes/investigate-a-bad-package.md"
REJECTED_JOB: Final = "docs/recipes/fix-a-rejected-job.md"
YEAR: Final = "docs/recipes/hand-a-year-to-an-auditor.md"
ESSENTIAL: Final = frozenset({"README.md", API, INCIDENT})
"""Pages of `make test`; a block takes a second and more, because each command is a new process."""

on_sqlite: Final = pytest.mark.sqlite_only(reason="the demo of a reader is on SQLite")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """The demo, made once."""
    issuer = IssuerProcess()
    try:
        yield make_model(tmp_path_factory.mktemp("demo"), issuer)
    finally:
        issuer.stop()


@pytest.fixture
def reader(model: Model, tmp_path: Path) -> Iterator[DemoReader]:
    with demo_reader(tmp_path, model) as reading:
        yield reading


@pytest.fixture
def ci_job(model: Model, reader: DemoReader) -> Iterator[None]:
    """The reader is a CI job, with what its provider and the page's lines before have set."""
    token = model.issuer.sign()
    with token_endpoint(token) as github:
        reader.variables |= {
            "ACTIONS_ID_TOKEN_REQUEST_URL": github,
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
            "COUNTERSIGN_API_KEY": model.key,
            "COUNTERSIGN_ID_TOKEN": token,
            "TOKEN": "csi_of_the_lines_above",
        }
        yield


@pytest.fixture
def postgresql(postgres: PostgresServer, reader: DemoReader) -> Iterator[None]:
    """The reader has a PostgreSQL server, without the database `countersign` yet."""
    url = make_url(postgres.url("countersign"))
    address = f"{url.password}@{url.host}:{url.port}"
    reader.replaced |= {"PASSWORD@db.example.com:5432": address, "PASSWORD@HOST": address}
    database = f"sqlite:///{reader.data_dir}/countersign.db"
    reader.replaced["sqlite:////var/lib/countersign/data/countersign.db"] = database
    reader.variables |= {
        "PGHOST": str(url.host),
        "PGPORT": str(url.port),
        "PGUSER": str(url.username),
        "PGPASSWORD": str(url.password),
    }
    yield
    postgres.drop_database("countersign")


@pytest.fixture
def bucket_of_docs(bucket: Bucket, reader: DemoReader) -> None:
    """The reader has a bucket."""
    access = bucket.server.environment
    reader.replaced |= {
        "s3://acme-countersign/prod": bucket.url,
        "https://s3.example.com": bucket.server.endpoint,
        "AWS_ACCESS_KEY_ID=…": f"AWS_ACCESS_KEY_ID={access['AWS_ACCESS_KEY_ID']}",
        "AWS_SECRET_ACCESS_KEY=…": f"AWS_SECRET_ACCESS_KEY={access['AWS_SECRET_ACCESS_KEY']}",
    }


NEEDED_BY: Final = {
    "ci_job": ("ci exec", "$COUNTERSIGN_API_KEY"),
    "postgresql": ("PASSWORD@",),
    "bucket_of_docs": ("s3://acme-countersign",),
}
"""What a page's blocks name that the demo does not have, by the fixture that gives it."""


def check_api(reader: DemoReader) -> None:
    """The files have the formats that they were asked for."""
    assert (reader.folder / "audit.csv").read_text().startswith("id,created_at,event,")
    assert (reader.folder / "audit.parquet").read_bytes().startswith(b"PAR1")
    blocked = gzip.decompress((reader.folder / "audit.ndjson.gz").read_bytes()).splitlines()
    assert all(b'"decision":"BLOCKED"' in line for line in blocked)
    assert reader.read_json("audit.json")
    receipt = reader.read_json("year.csv.receipt.json")
    assert receipt["bytes"] == (reader.folder / "year.csv").stat().st_size


def check_incident(reader: DemoReader) -> None:
    """The demo's incident is found: its rows, its runs and what else these asked for."""
    assert reader.read_json("rows.json")["entries"]
    assert reader.read_json("unknown.json")["unknown"] == []
    runs = {group["values"]["run_id"] for group in reader.read_json("jobs.json")["groups"]}
    packages = (reader.folder / "packages.ndjson").read_text()
    assert all(f'"{run}"' in packages for run in runs if run)
    assert len(re.findall('"package":"[^"]+"', packages)) > len(runs)
    rows = (reader.folder / "evidence.csv").read_text().count(",acme-telemetry,9.9.1,")
    assert rows == reader.read_json("evidence.csv.receipt.json")["rows"] > 0
    added = reader.read_json("changed.json")["policy"]["deny"][-1]
    assert (added["package"], added["reason"]) == ("acme-telemetry", "INC-4711: malicious")


def check_year(reader: DemoReader) -> None:
    """The receipt is that of the file, and the report names people."""
    receipt = reader.read_json("acme-year.csv.receipt.json")
    assert receipt["bytes"] == (reader.folder / "acme-year.csv").stat().st_size
    assert "mara.lindqvist@acme.example" in (reader.folder / "acme-access.csv").read_text()


CHECKS: Final[Mapping[str, Callable[[DemoReader], None]]] = {
    API: check_api,
    INCIDENT: check_incident,
    YEAR: check_year,
}
"""What the blocks of a page must have left behind."""


@on_sqlite
@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page in ESSENTIAL else pytest.mark.full)
        for page in pages()
        if runnable_blocks(page)
    ],
)
def test_every_block_of_a_page_works_when_pasted(
    page: str, reader: DemoReader, request: pytest.FixtureRequest
) -> None:
    text = "".join(block.text for block in runnable_blocks(page))
    for fixture, signs in NEEDED_BY.items():
        if any(sign in text for sign in signs):
            request.getfixturevalue(fixture)
    complaints = [text for blocks in shells(page) for text in reader.paste(blocks)]

    assert complaints == [], "\n\n".join(complaints)
    CHECKS.get(page, lambda _: None)(reader)


@on_sqlite
@pytest.mark.slow
@pytest.mark.full
def test_the_recipe_for_a_rejected_job_replaces_a_binding_for_other_events(
    reader: DemoReader,
) -> None:
    """In the demo there is no binding of its job, so the page's own run creates one."""
    address = f"{reader.serve().url}/api/v1/admin/orgs/acme/oidc-bindings"
    headers = {"x-service-admin-token": reader.admin_token}
    binding = {
        "issuer": "https://token.actions.githubusercontent.com",
        "sub_pattern": "repo:acme/docs:ref:refs/heads/main",
        "repository_id": "987654321",
        "event_names": ["push"],
        "origin": "org_admin",
    }
    httpx2.post(address, json=binding, headers=headers).raise_for_status()

    blocks = [block for block in runnable_blocks(REJECTED_JOB) if "$ORG" in block.text]
    complaints = reader.paste([runnable_blocks(REJECTED_JOB)[0], *blocks])

    assert complaints == [], "\n\n".join(complaints)
    query = {"active": "true", "repository_id": "987654321"}
    active = httpx2.get(address, params=query, headers=headers).json()["bindings"]
    assert [one["eventNames"] for one in active] == [["push", "schedule"]]


def test_every_block_is_run_or_left_out_with_a_reason() -> None:
    """`pytest -rP` shows the count and what is left out."""
    blocks = [block for page in pages() for block in shell_blocks(page)]
    named = [entry for block in blocks for entry in left_out(block)]
    run = [block for page in pages() for block in runnable_blocks(page)]

    print(f"{len(run)} of {len(blocks)} blocks run")  # noqa: T201 - for the report of the run
    for (page, beginning), reason in NOT_RUN.items():
        print(f"left out: {page}: {beginning.strip()}…: {reason}")  # noqa: T201
    assert sorted(named) == sorted(NOT_RUN), "an entry names no block, or more than one"
    assert len(run) > 80


def test_every_block_with_commands_is_marked_as_one() -> None:
    """A block without `sh` would not be run."""
    commands = re.compile(
        r"^(countersign|curl|docker|export|git|make|pip|systemctl) ", re.MULTILINE
    )
    unmarked = [
        str(block)
        for page in pages()
        for block in fenced_blocks(page)
        if block.language in {"", "bash", "shell"} and commands.search(block.text)
    ]

    assert unmarked == []
