"""Lag computed from a query's progress: of this source, the JVM connector and other sources."""

from __future__ import annotations

import json
from typing import Any

import pytest

import odradek.spark
from odradek.common.types import TopicPartition
from odradek.spark.driver.progress import lag, positions


def own(**offsets: int) -> str:
    return json.dumps({"v": 1, "cluster": "c", "o": {"t": {k[1:]: n for k, n in offsets.items()}}})


def progress(*sources: tuple[Any, Any]) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources]}


def test_lag_is_the_number_of_unread_offsets_by_partition() -> None:
    found = lag(
        progress((own(p0=5, p1=7), own(p0=9, p1=7, p2=4)), ('{"u":{"3":1}}', '{"u":{"3":2}}'))
    )
    assert found == {
        TopicPartition("t", 0): 4,
        TopicPartition("t", 1): 0,
        TopicPartition("u", 3): 1,
    }
    assert lag(None) == lag(progress()) == lag(progress((None, None), ("7", "9"))) == {}
    assert lag(progress((own(p0=9), own(p0=5)))) == {TopicPartition("t", 0): 0}


def test_offsets_of_other_sources_are_ignored() -> None:
    for other in (None, "12", "no JSON", "[1]", '{"logOffset":3}', '{"a":{"b":3}}'):
        assert positions(other) == {}
    assert positions('{"t":{"0":4}}') == {TopicPartition("t", 0): 4}  # the JVM connector's form


def test_odradek_spark_exports_only_its_public_names() -> None:
    assert set(odradek.spark.__all__) <= set(dir(odradek.spark))
    assert odradek.spark.lag is lag
    assert odradek.spark.write_batch.__name__ == "write_batch"
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        _ = odradek.spark.nosuch  # type: ignore[attr-defined]
