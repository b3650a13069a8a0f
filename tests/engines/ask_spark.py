"""Asks Spark, which has the jars of PYSPARK_SUBMIT_ARGS: FORMAT LOCATION, answers in JSON."""

import os
import sys

from pyspark.sql import SparkSession
from spark_sql import answer

format_, location = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.hadoop.fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    .config("spark.hadoop.fs.s3a.endpoint", os.environ.get("AWS_ENDPOINT_URL", ""))
    .config("spark.hadoop.fs.s3a.path.style.access", "true")
    .getOrCreate()
)
print(answer(spark, format_, location))
spark.stop()
