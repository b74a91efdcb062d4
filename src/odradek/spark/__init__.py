"""Read and write Kafka topics from Spark with `format("odradek")`, in batch and streaming queries.

The options have the JVM connector's names and the rows its schema. `write_batch` is for
`foreachBatch`, and `lag` reads a query's progress.

Importing this module imports neither pyspark nor pyarrow; `KafkaDataSource` does so on first use.
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
    """Import a public name on first use; an ImportError says what is missing."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pyspark

        check_version(pyspark.__version__)
        return getattr(import_module(_ELSEWHERE[name]), name)
    except ImportError as error:
        raise ImportError(
            "odradek.spark needs PySpark 4.2 or newer, pandas and pyarrow in the Python of the "
            f"driver and the executors: pip install 'odradek[spark]' ({error})"
        ) from error
