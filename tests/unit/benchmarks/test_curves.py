"""Curves of a client's cost by size: slopes, growth, and a fake cluster that counts requests."""

from __future__ import annotations

import socket
import time

import pytest
from benchmarks import curves, table
from benchmarks.rows import ROWS
from benchmarks.stand_in import READ, Counts, StandIn, StandIns, running

from odradek import Consumer, TopicPartition

CURVES = [row for row in ROWS.values() if row.per]


def test_the_slope_of_a_cost_curve_is_its_least_squares_slope() -> None:
    assert curves.slope([(1, 5.0), (2, 7.0), (3, 9.0)]) == pytest.approx(2.0)
    assert curves.slope([(0, 0.0), (1, 3.0), (2, 0.0)]) == 0.0
    assert curves.slope([(4, 1.0)]) == 0.0


@pytest.mark.parametrize(
    ("values", "small", "said"),
    [
        ((10, 10.4, 9.8, 10.1), 0.0, "flat"),
        ((1, 1.1, 1.3, 2.9), 2.0, "flat"),
        ((10, 20, 110, 1010), 0.0, "linear"),
        ((10, 11, 20, 10_010), 0.0, "more than linear"),
        ((10, 400, 900, 1010), 0.0, "less than linear"),
        ((1010, 1000, 900, 10), 0.0, "falls"),
        ((1, 1, 1, 500), 3.0, "linear"),
    ],
)
def test_the_growth_of_a_cost_curve_is_classified_as_flat_linear_or_otherwise(
    values: tuple[float, ...], small: float, said: str
) -> None:
    points = list(zip((1, 10, 100, 1000), values, strict=True))
    assert curves.verdict(points, small) == said
    assert curves.verdict(points[:2]) == "too few points"


def test_the_table_shows_each_cost_of_each_client_at_each_size() -> None:
    row = ROWS["scale-brokers"]
    sitting = {"id": "one"}
    results = {
        f"{table.ALL_CORES}/{row.key}/{lane.key}": {
            "sitting": "one",
            "runs": [{"idle_cpu_ms": 2.0 * lane.at, "rss_ready": 5e6, "threads": 1}],
        }
        for lane in row.lanes
        if lane.at < 100 or lane.series != "franz-go"
    }
    results[f"{table.ALL_CORES}/{row.key}/franz-go-idle-100"] = {
        "sitting": "one",
        "runs": [{"error": "it broke"}],
    }
    store = {"sittings": {"one": sitting}, "results": results}
    lines = table.row_table(table.Results(store, table.ALL_CORES), row).splitlines()
    assert lines[0] == "| | of | 1 | 3 | 10 | 30 | 100 | for 1 broker more | |"
    assert "| CPU ms per idle second | Odradek | 2 | 6 | 20 | 60 | 200 | 2 | linear |" in lines
    assert "| memory, MB | Odradek | 5 | 5 | 5 | 5 | 5 | 0 | flat |" in lines
    said = "| CPU ms per idle second | franz-go | 2 | 6 | 20 | 60 | failed: it broke | 2 | linear |"
    assert said in lines
    assert not any("descriptors" in line for line in lines)


def test_cost_curves_have_at_least_five_sizes_at_which_several_clients_are_measured() -> None:
    assert {row.key for row in CURVES} >= {"partitions", "scale-clients", "scale-sizes"}
    for row in CURVES:
        assert not row.quick
        points = {lane.at for lane in row.lanes}
        assert len(points) >= 5
        for at in points:
            there = [lane for lane in row.lanes if lane.at == at]
            assert len({lane.series for lane in there}) == len(there) >= 3
            assert len({(lane.shape, lane.stand_in) for lane in there}) == 1
        assert len({lane.key for lane in row.lanes}) == len(row.lanes)


def test_requests_between_two_times_are_counted() -> None:
    counts = Counts()
    assert counts.between(0.0, 9.0) == 0
    for when, total in ((1.0, 10), (2.0, 30), (3.0, 70)):
        counts.add(when, total)
    assert counts.between(1.5, 3.2) == 60
    assert counts.between(0.0, 0.5) == 0


def test_the_fake_cluster_has_the_requested_topics_and_records() -> None:
    with running(StandIn(2, 3, 4, 5, 50_000)) as cluster:
        assert len(cluster.topics) == 5
        assert [p.log.high_watermark for p in cluster.topics[READ].partitions] == [4, 4, 4]
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
        )
        with consumer:
            consumer.assign([TopicPartition(READ, n) for n in range(3)])
            records = 0
            while records < 12:
                found = consumer.poll(timeout=10.0)
                records += len(found)
                assert {len(record.value or b"") for record in found} <= {50_000}
    assert records == 12


@pytest.mark.slow
def test_the_process_of_the_fake_cluster_counts_requests_and_stops() -> None:
    stand_ins = StandIns()
    begin = time.time()
    try:
        first = stand_ins.bootstrap(StandIn())
        assert stand_ins.bootstrap(StandIn()) == first
        assert stand_ins.requests(begin, time.time()) == 0
    finally:
        stand_ins.close()
    host, port = first.split(":")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), 1.0)
    with pytest.raises(RuntimeError, match="no stand-in runs"):
        stand_ins.requests(begin, begin)
