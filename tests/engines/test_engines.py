"""Every engine says of the table what Countersign says of its rows."""

import asyncio
import os
from urllib.parse import unquote

import polars
import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io

from tests.budgets import only_full
from tests.engines.conftest import environment_of
from tests.engines.engines import ENGINES, READS
from tests.service.audit.open_table.conftest import answers_of
from tests.store_proxy import slow_store

STAGES = ("seal", "merge", "bring_in", "prune")
"""What happens to the lake before each publication."""

S3_OPTIONS = {"s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION"}
"""What pyiceberg does not read from the environment by itself."""


@only_full
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "format_"), READS)
async def test_an_engine_says_what_countersign_says(lakes, name, format_):
    ENGINES[name].require()
    for stage in STAGES:
        await getattr(lakes, stage)()
        await lakes.publish()

        said = await asyncio.to_thread(
            ENGINES[name].answers,
            format_,
            lakes.location(format_),
            lakes.data_dir,
            lakes.environment,
        )

        assert said == await lakes.own(), stage


@only_full
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("settings", ["bucket"], indirect=True)
@pytest.mark.parametrize("format_", ["iceberg", "delta"])
async def test_an_organisations_own_table_is_read_from_its_own_folders(lakes, bucket, format_):
    """Its reader needs access to nothing else in the bucket."""
    ENGINES["duckdb"].require()
    await lakes.seal()
    await lakes.publish(is_per_tenant=True)
    by_tenant = (await lakes.own()).by_tenant
    assert len(by_tenant) == 2

    for tenant_id, count in by_tenant.items():
        location = lakes.location(format_, tenant_id)
        with slow_store(bucket.server.endpoint, delay_s=0.0) as store:
            environment = environment_of(store.endpoint)
            said = await asyncio.to_thread(
                ENGINES["duckdb"].answers, format_, location, lakes.data_dir, environment
            )

        assert said.by_tenant == {tenant_id: count}
        folders = {f"{location}/", f"{bucket.url}/tenant={tenant_id}/"}
        read = [f"s3:/{unquote(path)}" for path in store.gets]
        assert read != []
        assert [uri for uri in read if not uri.startswith(tuple(folders))] == []


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
async def test_polars_says_what_countersign_says(lakes, format_, monkeypatch):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for variable, value in lakes.environment.items():
        monkeypatch.setenv(variable, value)
    for stage in STAGES:
        await getattr(lakes, stage)()
        await lakes.publish()

        frame = scan(format_, lakes.location(format_)).select(
            "tenant", "seq", "event", "created_at"
        )
        # Polars has its own way of pushing filters down, so the histogram is a query of its own.
        rows = answers_of(narrow(frame.collect()))
        hits = answers_of(narrow(frame.filter(polars.col("event") == "blocklist_hit").collect()))

        assert rows == await lakes.own(), stage
        assert hits.weekly_hits == rows.weekly_hits, stage


def narrow(frame: polars.DataFrame) -> pa.Table:
    return frame.to_arrow()


def scan(format_: str, location: str) -> polars.LazyFrame:
    """The table at `location`, found as the documentation says."""
    if format_ == "delta":
        return polars.scan_delta(location)
    metadata = f"{location}/metadata"
    options = {}
    if location.startswith("s3://"):
        options = {name: os.environ[variable] for name, variable in S3_OPTIONS.items()}
    hint = load_file_io(options, metadata).new_input(f"{metadata}/version-hint.text")
    with hint.open() as file:
        version = file.read().decode()
    return polars.scan_iceberg(f"{metadata}/v{version}.metadata.json", storage_options=options)
