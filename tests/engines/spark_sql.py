"""The questions in Spark's SQL, for Spark itself and for Sail."""

import json

from pyspark.sql import SparkSession


def answer(spark: SparkSession, format_: str, location: str) -> str:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.read.format(format_).load(location).createOrReplaceTempView("audit")

    def rows(query: str) -> list[tuple]:
        return [tuple(row) for row in spark.sql(query).collect()]

    ((count, first, last),) = rows("SELECT count(*), min(seq), max(seq) FROM audit")
    weekly = rows(
        "SELECT date_format(date_trunc('week', created_at), 'yyyy-MM-dd'), count(*) FROM audit"
        " WHERE event = 'blocklist_hit' GROUP BY 1"
    )
    return json.dumps(
        {
            "rows": count,
            "by_tenant": dict(rows("SELECT tenant, count(*) FROM audit GROUP BY 1")),
            "weekly_hits": dict(weekly),
            "min_seq": first,
            "max_seq": last,
        }
    )
