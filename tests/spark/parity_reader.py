"""Run a case at the source's own interface, as Spark calls it, which takes little time per case.

Spark's own part (processes, sockets, its checkpoint) is covered by the cases that run through
Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from odradek.common.errors import KafkaError
from odradek.spark import KafkaDataSource

Row = list[Any]


class DirectReader:
    """Reader that keeps the state of streams instead of checkpoints and outputs."""

    def __init__(self) -> None:
        self._streams: dict[str, dict[str, Any]] = {}

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a case in the form of `benchmarks.spark_jvm.queries`."""
        try:
            return self._stream(case) if case["kind"] == "stream" else self._batch(case)
        except KafkaError as error:
            return {"error": str(error)}

    def _batch(self, case: dict[str, Any]) -> dict[str, Any]:
        source = KafkaDataSource(case["options"])
        schema = source.schema()
        reader = source.reader(schema)
        partitions = list(reader.partitions())
        rows = [row for partition in partitions for row in _rows(reader.read(partition))]
        found: dict[str, Any] = {"schema": schema.jsonValue(), "rows": _sorted(rows)}
        if case["count_partitions"]:
            found["partitions"] = len(partitions)
        return found

    def _stream(self, case: dict[str, Any]) -> dict[str, Any]:
        source = KafkaDataSource(case["options"])
        reader: Any = source.streamReader(source.schema())
        kept = self._streams.setdefault(case["folder"], {"ends": [], "rows": [], "at": None})
        sizes = []
        once = "once" in case["trigger"]
        if not once:
            reader.prepareForTriggerAvailableNow()
        limit = ReadAllAvailable() if once else reader.getDefaultReadLimit()
        start = reader.initialOffset() if kept["at"] is None else kept["at"]
        while (end := reader.latestOffset(start, limit)) != start:
            partitions = reader.partitions(start, end)
            rows = [row for partition in partitions for row in _rows(reader.read(partition))]
            reader.commit(end)
            sizes += [len(rows)] if rows else []
            kept["rows"] += rows
            kept["ends"].append(end["o"])
            kept["at"] = start = end
            if once:
                break
        reader.stop()
        return {"ends": list(kept["ends"]), "sizes": sizes, "rows": _sorted(kept["rows"])}


def _rows(batches: Any) -> Iterator[Row]:
    for batch in batches:
        for found in batch.to_pylist():
            row = [
                _hex(found["key"]), _hex(found["value"]), found["topic"], found["partition"],
                found["offset"], round(found["timestamp"].timestamp() * 1e6),
                found["timestampType"],
            ]  # fmt: skip
            if "headers" in found:
                headers = found["headers"]
                row.append(headers and [[h["key"], _hex(h["value"])] for h in headers])
            yield row


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[2:5])


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex().upper()
