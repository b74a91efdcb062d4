"""A Spark driver with a simulated cluster: its requests, and the real client's results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.simulation.spoilt_answers import spoil_answers
from tests.simulation.test_spark_sink_abort import Clock

from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.simulation.brokers.broker_faults import delete_records, slow_api
from odradek.spark.driver.offsets import SENTINEL
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.source_options import BATCH, STREAM, parse_options
from odradek.testing.simulated import KafkaSimulation


class Driver(Clock):
    """Clients and clock for a tracker, in simulated time."""

    def __init__(self, simulation: KafkaSimulation) -> None:
        super().__init__(simulation)
        self._simulation = simulation
        self.name: str | None = None
        self.config: Mapping[str, Any] = {}
        """Settings of new clients, which take precedence over the settings in the options."""

    def connect(self, config: Mapping[str, Any]) -> Any:
        return self._simulation.consumer({**config, **self.config}, name=self.name)

    def drop(self, client: Any) -> None:
        client.close()

    def tracker(self, query: str = STREAM, **options: str) -> OffsetTracker:
        servers = self._simulation.bootstrap_servers
        given = {"kafka.bootstrap.servers": servers, "subscribe": "t", **options}
        if "subscribePattern" in options:
            del given["subscribe"]
        return OffsetTracker(parse_options(given, query), self, self)


def requests(simulation: KafkaSimulation) -> Counter[str]:
    return sum((b.requests for b in simulation.brokers.values()), Counter())


def test_a_batch_needs_one_request_per_leader_and_no_metadata() -> None:
    with KafkaSimulation(brokers=3) as simulation:
        simulation.create_topic("t", partitions=9)
        simulation.produce("t", [b"x"] * 90)
        tracker = Driver(simulation).tracker(startingOffsets="earliest")
        offset: dict[str, Any] = dict(SENTINEL)
        read = 0
        for batch in range(21):
            before = requests(simulation)
            end = json.loads(json.dumps(tracker.latest(offset)))
            tracker.report()
            read += sum(r.size for r in tracker.plan(offset, end).ranges)
            if batch:  # the first batch fetches metadata
                asked = requests(simulation) - before
                assert (asked["ListOffsets"], asked["Metadata"]) == (3, 0)
                assert set(asked) <= {"ListOffsets", "Produce"}
            offset = end
            simulation.produce("t", [b"x"] * 9)
            simulation.advance(1.0)
        assert read == 90 + 20 * 9
        before = requests(simulation)
        simulation.advance(10.0)
        tracker.latest(offset)  # the description of topics is 30 s old by now
        assert (requests(simulation) - before)["Metadata"] == 1


def test_the_real_client_resolves_patterns_and_timestamps() -> None:
    with KafkaSimulation(brokers=3) as simulation:
        driver = Driver(simulation)
        for name in ("t-1", "t-2", "other"):
            simulation.create_topic(name, partitions=1)
        for n in range(5):
            simulation.send("t-1", b"x", timestamp_ms=1000 * n).result(10)
        tracker = driver.tracker(
            BATCH,
            subscribePattern="^t-",
            startingTimestamp="1500",
            startingOffsetsByTimestampStrategy="latest",
        )
        assert [(r.tp, r.start, r.until) for r in tracker.plan_batch().ranges] == [
            (TopicPartition("t-1", 0), 2, 5)
        ]
        assert requests(simulation)["Fetch"] == 0


def test_the_real_client_estimates_bytes() -> None:
    with KafkaSimulation(brokers=3) as simulation:
        simulation.create_topic("t", partitions=2)
        for n in range(200):
            simulation.send("t", bytes(100), partition=n % 2)
        simulation.producer().flush(10)
        simulation.advance(1.0)
        tracker = Driver(simulation).tracker(startingOffsets="earliest", maxBytesPerTrigger="5000")
        end = tracker.latest(SENTINEL)
        assert [r.size for r in tracker.plan(SENTINEL, end).ranges] == [25, 25]


LIMIT, EACH = 1_000_000, 100_000
"""maxBytesPerTrigger below, and the size of one record."""


def sizes_of_batches(simulation: KafkaSimulation, batches: int) -> Iterator[tuple[int, float]]:
    """Read 3 × 100 records in batches; return each batch's number of records and its duration."""
    tracker = Driver(simulation).tracker(
        startingOffsets="earliest", maxBytesPerTrigger=str(LIMIT), failOnDataLoss="false"
    )
    offset: dict[str, Any] = dict(SENTINEL)
    for _ in range(batches):
        begun = simulation.now
        end = tracker.latest(offset)
        took, ranges = simulation.now - begun, tracker.plan(offset, end).ranges
        logs = simulation.cluster.topics["t"].partitions
        heads = [logs[r.tp.partition].log.start_offset for r in ranges]
        there = (r.until - max(r.start, head) for r, head in zip(ranges, heads, strict=True))
        yield sum(max(0, records) for records in there), took
        offset = end
        simulation.advance(1.0)
    tracker.stop()


def filled(simulation: KafkaSimulation) -> None:
    simulation.create_topic("t", partitions=3)
    for n in range(300):
        simulation.send("t", bytes(EACH), partition=n % 3)
    simulation.producer().flush(60)
    simulation.advance(1.0)


def test_the_byte_limit_holds_after_the_start_of_logs_was_deleted() -> None:
    with KafkaSimulation(brokers=3) as simulation:
        filled(simulation)
        batches = sizes_of_batches(simulation, 4)
        found = [next(batches)[0]]
        for partition in range(3):
            delete_records(simulation.cluster, "t", partition, 0.1)
        found += [records for records, _ in batches]
        assert found == [9, 9, 9, 9]


def test_the_byte_limit_holds_if_fetches_take_three_seconds(caplog: Any) -> None:
    with KafkaSimulation(brokers=3) as simulation:
        filled(simulation)
        slow_api(simulation.cluster, "Fetch", 3)
        first, second, *more = sizes_of_batches(simulation, 4)
        assert first[0] == 3  # one record of each partition while sizes are unknown
        assert second[0] == 9
        assert all(records == 9 for records, _ in more)
        assert all(seconds < 2.2 for _, seconds in (first, second, *more))
        said = [r.getMessage() for r in caplog.records if "maxBytesPerTrigger" in r.getMessage()]
        assert len(said) == 2
        assert "can't sample the record sizes of t-0, t-1, t-2 (no answer" in said[0]
        assert "again" in said[1]


def test_the_byte_limit_holds_without_any_size_estimate(caplog: Any) -> None:
    with KafkaSimulation(brokers=3) as simulation:
        filled(simulation)
        slow_api(simulation.cluster, "Fetch", 10_000)
        found = list(sizes_of_batches(simulation, 100))
        assert [records for records, _ in found] == [3] * 100  # all records are read in the end
        assert sum(seconds for _, seconds in found) < 20
        said = [r for r in caplog.records if "maxBytesPerTrigger" in r.getMessage()]
        assert len(said) == 1


@pytest.mark.parametrize("what", ["the topic", "a partition", "all partitions"])
def test_partitions_missing_in_metadata_for_a_while_do_not_count_as_new(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking, lacked = False, 0

    def over() -> None:
        nonlocal lacking
        lacking = False

    def lack(answer: MetadataResponse) -> None:
        nonlocal lacked
        for topic in list(answer.topics) if lacking else ():
            lacked += 1
            if what == "the topic":
                topic.error_code, topic.partitions = UnknownTopicOrPartitionError.code, []
            else:
                del topic.partitions[0 if what == "all partitions" else 2 :]

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, lack)
    with KafkaSimulation(brokers=3) as simulation:
        simulation.create_topic("t", partitions=3)
        simulation.produce("t", [b"x"] * 30)
        tracker = Driver(simulation).tracker(startingOffsets="earliest")
        offset: dict[str, Any] = dict(SENTINEL)
        read = 0
        for batch in range(6):
            if batch == 2:
                simulation.advance(40.0)  # the description of topics is old
                lacking = True
                simulation.world.after(2.0, over)
            end = json.loads(json.dumps(tracker.latest(offset)))
            read += sum(r.size for r in tracker.plan(offset, end).ranges)
            offset = end
            if batch < 5:
                simulation.produce("t", [b"x"] * 9)
            simulation.advance(1.0)
        assert read == 30 + 5 * 9
        assert lacked > 0
