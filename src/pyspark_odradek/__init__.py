"""Register `format("odradek")` with Spark, which imports this module by its name.

Spark imports every top-level module whose name starts with `pyspark_` when a format is first looked
up, and an exception in one of them would break *all* formats. So nothing here may raise: if the
source can't be imported, a placeholder of the same name raises the reason when it is used.
"""

from __future__ import annotations

import contextlib

try:
    from odradek.spark import KafkaDataSource as DefaultSource
except Exception as error:  # for any error: other data sources must keep working
    reason = f'format("odradek") can\'t be used: {error}'
    # A PySpark without data sources written in Python doesn't look for them either.
    with contextlib.suppress(Exception):
        from pyspark.sql.datasource import DataSource

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            """A placeholder that raises why the source can't be imported."""

            def __init__(self, options: dict[str, str]) -> None:
                super().__init__(options)
                raise ImportError(reason)

            @classmethod
            def name(cls) -> str:
                """Return the name for `format(…)`."""
                return "odradek"
