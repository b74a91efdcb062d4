"""`explain()` of a consumer reports its lag."""

from __future__ import annotations

from tests.simulation.scene import Stage

from odradek.clients.explain.explain_reading import ReadingExplanation
from odradek.common.types import TopicPartition

TPS = [TopicPartition("t", number) for number in range(3)]


def test_explain_of_a_consumer_reports_its_lag() -> None:
    stage = Stage()
    reader = stage.consumer()
    assert reader.explain().reading is None
    reader.assign(TPS)
    assert str(reader.explain().reading) == "partitions: 3; lag unknown for 3"
    stage.write(range(31))
    assert len(stage.read(reader, 1, most=1)) == 1
    stage.world.advance(1.0)
    left = reader.explain().reading
    assert left is not None
    assert (left.lag, left.unknown, left.partitions) == (30, 0, 3)
    assert "lag 30 offsets, most of it in t-" in str(reader.explain())
    stage.read(reader, 30)
    reader.pause(TPS[1:])
    stage.world.advance(1.0)
    assert reader.explain().reading == ReadingExplanation(3, 2, 0, 0, None)
    assert "\n  partitions: 3; no lag; 2 paused " in str(reader.explain())
    assert reader.explain().to_dict()["reading"]["lag"] == 0
