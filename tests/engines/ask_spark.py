"""Asks Spark: FORMAT FOLDER, answers in JSON."""

import importlib
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from spark_sql import answer

format_, folder = sys.argv[1:]
package = Path(importlib.import_module("snowpark_connect_deps_iceberg").__file__).parent
jar = next(package.rglob("iceberg-spark-runtime-3.5_2.12-*.jar"))
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", str(jar))
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
print(answer(spark, format_, folder))
spark.stop()
