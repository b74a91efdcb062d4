"""Read and write Kafka topics from Spark with `format("odradek")`, in batch and streaming queries.

The options have the JVM connector's names and the rows its schema. `write_batch` is for
`foreachBatch`, and `lag` reads a query's progress.

Importing this module imports neither pyspark nor pyarrow; `KafkaDataSource` does so on first use.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from odradek.common.public_names import lazy_names
from odradek.spark.versions import check_version


def _load(home: str) -> ModuleType:
    """Import a module of this package; an ImportError names the missing packages."""
    try:
        import pyspark

        check_version(pyspark.__version__)
        return import_module(home)
    except ImportError as error:
        raise ImportError(
            "odradek.spark needs PySpark 4.2 or newer, pandas and pyarrow in the Python of the "
            f"driver and the executors: pip install 'odradek[spark]' ({error})"
        ) from error


__all__, __getattr__, __dir__ = lazy_names(__name__, _load)
