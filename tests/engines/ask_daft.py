"""Asks Daft on Ray: FORMAT LOCATION, answers in JSON."""

import json
import os
import sys
from datetime import timedelta

import daft
import ray
from daft import col
from daft.io import IOConfig, S3Config
from pyiceberg.io import load_file_io
from pyiceberg.table import StaticTable

format_, location = sys.argv[1:]
endpoint, region = os.environ.get("AWS_ENDPOINT_URL"), os.environ.get("AWS_REGION", "")
has_tls = not (endpoint or "").startswith("http://")
config = IOConfig(s3=S3Config(region_name=region, endpoint_url=endpoint, use_ssl=has_tls))
ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", logging_level="error")
daft.set_runner_ray()
if format_ == "iceberg":
    metadata = f"{location}/metadata"
    properties = {"s3.endpoint": endpoint, "s3.region": region} if endpoint else {}
    hint = load_file_io(properties, metadata).new_input(f"{metadata}/version-hint.text")
    with hint.open() as file:
        version = file.read().decode()
    table = StaticTable.from_metadata(f"{metadata}/v{version}.metadata.json", properties)
    audit = daft.read_iceberg(table, io_config=config)
else:
    audit = daft.read_deltalake(location, io_config=config)
seqs = audit.agg(
    col("seq").count(), col("seq").min().alias("first"), col("seq").max().alias("last")
).to_pydict()
by_tenant = audit.groupby("tenant").agg(col("seq").count()).to_pydict()
hits = audit.where(col("event") == "blocklist_hit")
daily = hits.groupby(col("created_at").date().alias("day")).agg(col("seq").count()).to_pydict()
weekly: dict[str, int] = {}
for day, number in zip(daily["day"], daily["seq"], strict=True):
    week = str(day - timedelta(days=day.weekday()))
    weekly[week] = weekly.get(week, 0) + number
print(
    json.dumps(
        {
            "rows": seqs["seq"][0],
            "by_tenant": dict(zip(by_tenant["tenant"], by_tenant["seq"], strict=True)),
            "weekly_hits": weekly,
            "min_seq": seqs["first"][0],
            "max_seq": seqs["last"][0],
        }
    )
)
