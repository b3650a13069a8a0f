"""Asks Sail through Spark Connect: FORMAT LOCATION, answers in JSON."""

import sys

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession
from spark_sql import answer

format_, location = sys.argv[1:]
server = SparkConnectServer("127.0.0.1", 0)
server.start()
_, port = server.listening_address
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
print(answer(spark, format_, location))
spark.stop()
server.stop()
