"""Spark: `format("odradek")` reads and writes Kafka topics in batch and streaming queries.

In: Spark's options, the JVM connector's by name. Out: Arrow batches with its schema; `write_batch`
for `foreachBatch`, `lag` of what a query's progress says.
Importing this imports neither pyspark nor pyarrow; `KafkaDataSource` does, when it is first used.
Must not start a thread or open a socket when imported: Spark forks workers afterwards.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.spark.versions import check_version

if TYPE_CHECKING:
    from odradek.spark.driver.progress import lag
    from odradek.spark.driver.source import KafkaDataSource
    from odradek.spark.sink.foreach_batch import write_batch

__all__ = ["KafkaDataSource", "lag", "write_batch"]
_ELSEWHERE = {
    "KafkaDataSource": "odradek.spark.driver.source",
    "lag": "odradek.spark.driver.progress",
    "write_batch": "odradek.spark.sink.foreach_batch",
}


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    """Import it on first use, and say what is missing where it can't be imported."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pyspark

        check_version(pyspark.__version__)
        return getattr(import_module(_ELSEWHERE[name]), name)
    except ImportError as error:
        raise ImportError(
            "odradek.spark needs PySpark 4.2 or newer with pandas and pyarrow in the driver's and "
            f"the executors' Python: pip install 'odradek[spark]' ({error})"
        ) from error
