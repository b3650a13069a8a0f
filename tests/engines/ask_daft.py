"""Asks Daft on Ray: FORMAT FOLDER, answers in JSON."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import daft
import ray
from daft import col

format_, folder = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", logging_level="error")
daft.set_runner_ray()
if format_ == "iceberg":
    number = (Path(folder) / "metadata" / "version-hint.text").read_text()
    audit = daft.read_iceberg(f"{folder}/metadata/v{number}.metadata.json")
else:
    audit = daft.read_deltalake(folder)
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
