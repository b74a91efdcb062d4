"""A kept frame and its view through Spark Connect; prints what two runs of each count.

In: a topic and the client's settings as JSON. Between the runs it sends five more records.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from odradek import Producer


def main() -> None:
    topic, settings = sys.argv[1], json.loads(sys.argv[2])
    builder: Any = SparkSession.builder
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").remote("local[2]").getOrCreate()
    reader = spark.read.format("odradek").option("subscribe", topic)
    kept = reader.options(**{f"kafka.{name}": value for name, value in settings.items()}).load()
    kept.createOrReplaceTempView("kept")
    found = []
    for _ in range(2):
        found.append([kept.count(), spark.table("kept").count(), len(kept.collect())])
        with Producer(settings) as producer:
            for n in range(5):
                producer.send(topic, value=f"{n}".encode())
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
