"""Test a snapshot of metrics: an immutable mapping, look-ups, plain data, a line for logs."""

from __future__ import annotations

import dataclasses
import json
import math
from types import MappingProxyType
from typing import Any

import pytest

from odradek.clients.metrics.catalogue import MEANINGS
from odradek.monitoring import Metric, MetricName, Metrics


def metric(name: str, value: float, group: str = "producer-metrics", **tags: str) -> Metric:
    unit, kind, text = MEANINGS[name]
    named = MappingProxyType({"client-id": "c", **tags})
    return Metric(name, group, named, value, unit, text, kind)


FOUND = Metrics(
    "Producer",
    "c",
    12.5,
    (
        metric("record-send-total", 7),
        metric("record-send-total", 4, "producer-topic-metrics", topic="a"),
        metric("record-send-total", 3, "producer-topic-metrics", topic="b"),
        metric("request-latency-avg", math.nan),
        metric("request-total", 2, "producer-node-metrics", **{"node-id": "node-1"}),
    ),
)


def test_a_snapshot_is_a_mapping_by_name_group_and_tags() -> None:
    name = MetricName("record-send-total", "producer-metrics", (("client-id", "c"),))
    assert FOUND[name] == 7
    assert len(FOUND) == len(list(FOUND)) == 5
    assert dict(FOUND)[name] == 7
    assert FOUND.all[0].key == name
    assert MetricName("x", "y", ()) not in FOUND


def test_values_are_found_by_name_and_tags() -> None:
    assert FOUND.value("record-send-total") == 7
    assert FOUND.value("record-send-total", topic="b") == 3
    assert FOUND.value("request-total", node_id="node-1") == 2
    assert [m.value for m in FOUND.find(group="producer-topic-metrics")] == [4, 3]
    assert FOUND.find("record-send-total", topic="c") == ()
    with pytest.raises(
        KeyError, match="Producer has no metric record-sent-total.* record-send-total"
    ):
        FOUND.value("record-sent-total")
    with pytest.raises(KeyError, match=r"no metric send now \(did you mean record-send-total\?\)'"):
        FOUND.value("send")
    with pytest.raises(KeyError, match="has no metric zzz now'"):
        FOUND.value("zzz")
    with pytest.raises(KeyError, match="no metric request-total with this.*only .*node-id=node-1"):
        FOUND.value("request-total", node_id=1)
    with pytest.raises(KeyError, match="several metrics match record-send-total"):
        FOUND.value("record-send-total", "producer-topic-metrics")
    name: Any = "record-send-total"
    with pytest.raises(KeyError, match=r"by its name, call value\('record-send-total'\)"):
        FOUND[name]
    assert FOUND.get(name) is None


def test_a_snapshot_is_immutable() -> None:
    with pytest.raises(AttributeError, match="read-only"):
        FOUND.at = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        FOUND.all[0].value = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        FOUND.all[0].tags["client-id"] = "d"  # type: ignore[index]


def test_to_dict_returns_data_that_json_can_encode() -> None:
    plain = json.loads(json.dumps(FOUND.to_dict(), allow_nan=False))
    assert (plain["client"], plain["client_id"], plain["at"]) == ("Producer", "c", 12.5)
    assert plain["metrics"][3] == {
        "name": "request-latency-avg",
        "group": "producer-metrics",
        "tags": {"client-id": "c"},
        "value": None,
        "unit": "ms",
    }


def test_the_line_for_logs_omits_zero_values() -> None:
    assert str(FOUND) == "Producer c: record-send-total=7"
    assert str(Metrics("Admin", "c", 0.0, ())) == "Admin c: no values yet"
    assert repr(FOUND) == "<Metrics of Producer c: 5>"
    assert str(FOUND.all[1]) == "producer-topic-metrics:record-send-total{client-id=c,topic=a} 4"


def test_every_metric_has_a_description_unit_and_kind() -> None:
    for name, (unit, kind, text) in MEANINGS.items():
        assert text.endswith("."), name
        assert unit in ("", "ms", "s", "bytes")
        assert (kind == "counter") == name.endswith("-total"), name
