"""Spark queries while their log changes: unclean elections, frozen leaders (R-ID-4, R-ID-6).

Each row is checked by its offset and value: with `failOnDataLoss=false` the query delivers each
record of the final log once, besides records that were lost after they were read.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.test_spark_driver import Driver
from tests.volume import pairs

from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.broker_faults import (
    delete_records,
    limit,
    recreate_topic,
    unclean_election,
)
from odradek.spark.checkpoint_errors import DataLossError, NoProgressError
from odradek.spark.driver.discovery import UnconfirmedObservation
from odradek.spark.driver.offsets import SENTINEL
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.driver.tracker import BatchPlan, OffsetTracker
from odradek.spark.options.source_options import STREAM, SourceOptions, parse_options
from odradek.spark.tasks.range_loss import RangeLog
from odradek.spark.tasks.reading import RangeReader
from odradek.spark.tasks.worker_clients import known_topic_id
from odradek.spark.values.schema import arrow_schema, full_schema
from odradek.testing.simulated import KafkaSimulation

TP = TopicPartition("t", 0)
Row = tuple[int, bytes | None]


class Query:
    """A streaming query: its driver, a worker that keeps its client, and its journal."""

    def __init__(self, simulation: KafkaSimulation, **options: str) -> None:
        self.simulation = simulation
        self.driver = Driver(simulation)
        self.given = {"startingOffsets": "earliest", **options}
        self.tracker: OffsetTracker = self.driver.tracker(**self.given)
        self.options = self.parsed()
        self.worker = self.new_worker()
        self.doubt: UnconfirmedObservation | None = None
        self.offset: dict[str, Any] = dict(SENTINEL)
        self.rows: list[Row] = []

    def parsed(self) -> SourceOptions:
        servers = {"kafka.bootstrap.servers": self.simulation.bootstrap_servers, "subscribe": "t"}
        return parse_options({**servers, **self.given}, STREAM)

    def new_worker(self, **config: Any) -> Any:
        level = self.given.get("kafka.isolation.level", "read_uncommitted")
        given = {"auto.offset.reset": "none", "isolation.level": level}
        return self.simulation.consumer({**given, **config})

    def restart(self, **options: str) -> None:
        """Continue from the journal with a new driver and worker, perhaps with other options."""
        self.given |= options
        self.options = self.parsed()
        self.restart_driver()
        self.worker = self.new_worker()

    def restart_driver(self) -> None:
        self.tracker.stop()
        self.tracker = self.driver.tracker(**self.given)

    def journal(self) -> dict[str, Any]:
        """Return the end of the next batch, as Spark journals it."""
        found: dict[str, Any] = json.loads(json.dumps(self.tracker.latest(self.offset)))
        return found

    def read(self, plan: BatchPlan) -> list[Row]:
        found: list[Row] = []
        for wanted in plan.ranges:
            found += self.task(wanted, plan.topic_ids.get(wanted.tp.topic))
        return found

    def task(self, wanted: KafkaOffsetRange, topic_id: str | None) -> list[Row]:
        if topic_id not in (None, known_topic_id(self.worker, "t") or topic_id):
            self.worker = self.new_worker()  # as Spark tasks do for a recreated topic
        reader = RangeReader(
            *(self.worker, wanted, topic_id, self.options, self.driver), doubt=self.doubt
        )
        full = arrow_schema(full_schema(include_headers=False))
        target = pa.schema([full.field("offset"), full.field("value")])
        rows = [r for b in reader.batches(("offset", "value"), target) for r in b.to_pylist()]
        self.worker.assign([])
        return [(row["offset"], row["value"]) for row in rows]

    def finish(self, end: dict[str, Any]) -> list[Row]:
        """Run a journalled batch to its end."""
        found = self.read(self.tracker.plan(self.offset, end))
        self.rows += found
        self.offset = end
        self.simulation.advance(1.0)
        return found

    def batch(self) -> list[Row]:
        end = self.journal()
        return self.finish(end) if end != self.offset else []


def wrote(simulation: KafkaSimulation, word: str, count: int) -> None:
    for n in range(count):
        simulation.send("t", f"{word} {n}".encode()).result(60)


def cut(simulation: KafkaSimulation, lost: int, refill: int) -> None:
    """Truncate the log, and write other records at these offsets."""
    unclean_election(simulation.cluster, "t", 0, lost)
    simulation.advance(1.0)
    wrote(simulation, "new", refill)
    simulation.advance(1.0)


def log(simulation: KafkaSimulation) -> list[Row]:
    return [(row[0], row[4]) for row in simulation.cluster.records("t", 0)]


@pytest.fixture
def simulation() -> Any:
    with KafkaSimulation(brokers=3) as made:
        made.create_topic("t", partitions=1)
        yield made


# -- unclean elections ------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_replaced_records_count_as_lost(simulation: KafkaSimulation, restarts: bool) -> None:
    query = Query(simulation)
    wrote(simulation, "old", 100)
    query.batch()
    cut(simulation, 40, 60)
    if restarts:
        query.restart()
    begun = simulation.now
    with pytest.raises(DataLossError, match=r"t-0: .*60 to 99 .*40 offsets.*OFFSET_OUT_OF_RANGE"):
        query.batch()
    assert simulation.now - begun < 5  # a leader with a newer epoch is trusted immediately


@pytest.mark.parametrize("restarts", [False, True])
def test_replacing_records_are_read_if_loss_is_allowed(
    simulation: KafkaSimulation, restarts: bool, caplog: Any
) -> None:
    query = Query(simulation, failOnDataLoss="false")
    wrote(simulation, "old", 100)
    old = query.batch()
    cut(simulation, 40, 60)
    if restarts:
        query.restart()
    assert query.batch() == log(simulation)[60:]
    assert old == [(n, f"old {n}".encode()) for n in range(100)]
    assert "60 to 99 (40 offsets)" in caplog.text
    assert query.batch() == []


@pytest.mark.parametrize("refill", [0, 20, 60])
def test_a_journalled_batch_reads_the_remaining_records_and_the_next_one_the_rest(
    simulation: KafkaSimulation, refill: int, caplog: Any
) -> None:
    query = Query(simulation, failOnDataLoss="false")
    wrote(simulation, "old", 100)
    end = query.journal()
    cut(simulation, 40, refill)
    query.restart()
    assert query.finish(end) == log(simulation)[:60]
    assert "60 to 99 (40 offsets)" in caplog.text
    assert query.batch() == log(simulation)[60:]
    wrote(simulation, "more", 5)
    query.batch()
    assert query.rows == log(simulation)


def test_a_journalled_batch_whose_records_were_replaced_fails(simulation: KafkaSimulation) -> None:
    query = Query(simulation)
    wrote(simulation, "old", 100)
    end = query.journal()
    plan = query.tracker.plan(query.offset, end)
    assert len(query.read(plan)) == 100  # the first attempt fails
    cut(simulation, 40, 60)
    with pytest.raises(DataLossError, match=r"t-0: .*60 to 99 .*40 offsets"):
        query.read(plan)
    query.restart()
    with pytest.raises(DataLossError, match=r"t-0: .*60 to 99 .*40 offsets"):
        query.finish(end)


def test_a_limited_batch_restarts_where_the_log_changed(simulation: KafkaSimulation) -> None:
    query = Query(simulation, failOnDataLoss="false", maxOffsetsPerTrigger="25")
    wrote(simulation, "old", 100)
    for _ in range(3):
        query.batch()
    cut(simulation, 40, 60)
    while query.batch():
        pass
    assert query.rows[:75] == [(n, f"old {n}".encode()) for n in range(75)]
    assert query.rows[75:] == log(simulation)[60:]


def test_an_election_without_loss_plans_no_batch_and_validates_once(
    simulation: KafkaSimulation,
) -> None:
    query = Query(simulation)
    wrote(simulation, "old", 20)
    query.batch()
    asked = 0
    for _ in range(3):
        simulation.cluster.move_leader("t", 0)
        simulation.advance(1.0)
        for _ in range(3):
            assert query.journal() == query.offset
            simulation.advance(1.0)
        brokers = simulation.cluster.brokers.values()
        before, asked = asked, sum(b.requests["OffsetForLeaderEpoch"] for b in brokers)
        assert asked == before + 1
    wrote(simulation, "more", 5)
    assert query.batch() == log(simulation)[20:]


def test_two_losses_are_reported_separately(simulation: KafkaSimulation, caplog: Any) -> None:
    query = Query(simulation, failOnDataLoss="false")
    wrote(simulation, "old", 100)
    query.batch()
    cut(simulation, 40, 60)
    end = query.journal()
    cut(simulation, 80, 90)  # another loss before the batch reads the new records
    query.restart()
    assert query.finish(end) == []
    assert query.batch() == log(simulation)[40:]
    assert "60 to 99 (40 offsets)" in caplog.text
    assert "40 to 119 (80 offsets)" in caplog.text


def test_a_query_continues_from_a_checkpoint_without_leader_epochs(
    simulation: KafkaSimulation,
) -> None:
    query = Query(simulation)
    wrote(simulation, "old", 20)
    query.batch()
    epochs = query.offset.pop("epoch")
    assert epochs == {"t": {"0": 0}}
    query.restart()
    assert query.batch() == []
    wrote(simulation, "more", 5)
    assert query.batch() == log(simulation)[20:]
    assert query.offset["epoch"] == epochs


# -- leaders that were frozen -------------------------------------------------------------------


class Frozen:
    """The leader is isolated after offsets 0 to 99; the next leader appends 50 more."""

    def __init__(self, simulation: KafkaSimulation) -> None:
        self.simulation, self.cluster = simulation, simulation.cluster
        wrote(simulation, "old", 100)
        leader = self.cluster.leader("t", 0)
        assert leader is not None
        self.zombie: SimulatedBroker = leader

    def fall(self) -> None:
        self.cluster.zombie_leader(self.zombie.id)
        self.simulation.advance(3.0)
        assert self.cluster.leader("t", 0) is not self.zombie
        wrote(self.simulation, "new", 50)
        self.simulation.advance(1.0)

    def there(self) -> dict[str, Any]:
        """Return settings of clients that ask the outdated leader first."""
        return {"bootstrap.servers": str(self.zombie.address)}

    def away(self) -> dict[str, Any]:
        """Return settings of clients that ask another broker first."""
        others = [b.address for b in self.cluster.brokers.values() if b is not self.zombie]
        return {"bootstrap.servers": ",".join(map(str, others))}


def without_epochs(offset: dict[str, Any]) -> dict[str, Any]:
    """Remove the epochs, as in offsets of an earlier release or the JVM connector."""
    return {name: value for name, value in offset.items() if name != "epoch"}


@pytest.fixture
def frozen(simulation: KafkaSimulation) -> Frozen:
    return Frozen(simulation)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(("fails", "poll_ms"), pairs(["true", "false"], ["120000", "512"]))
def test_a_worker_with_an_outdated_leader_skips_no_record(
    frozen: Frozen, caplog: Any, fails: str, poll_ms: str, old: bool
) -> None:
    more = {"kafkaConsumer.pollTimeoutMs": poll_ms}
    query = Query(frozen.simulation, failOnDataLoss=fails, **more)
    query.worker = query.new_worker(**frozen.there())
    query.driver.config = frozen.away()
    query.restart_driver()
    query.batch()
    frozen.fall()
    query.restart_driver()
    end = query.journal()
    if old:
        end = without_epochs(end)
    assert query.finish(end) == log(frozen.simulation)[100:]
    assert query.rows == log(frozen.simulation)
    assert "failOnDataLoss" not in caplog.text


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_loss_is_confirmed_by_a_single_response_about_the_log(
    frozen: Frozen, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier leader returns its log end offset at the end of the wait, and then resigns."""
    simulation, look = frozen.simulation, RangeLog.ends
    query = Query(simulation, failOnDataLoss=fails)
    query.worker = query.new_worker(**frozen.there())
    query.driver.config = frozen.away()
    query.restart_driver()
    query.batch()
    frozen.fall()
    query.restart_driver()

    def ends(self: RangeLog) -> tuple[int, int, int]:
        found = look(self)
        since = self._doubt._since
        if since is not None and simulation.now - since >= 10 and frozen.zombie.zombie is not None:
            simulation.cluster.go_on(frozen.zombie.id)
        return found

    monkeypatch.setattr(RangeLog, "ends", ends)
    query.finish(without_epochs(query.journal()))
    assert frozen.zombie.zombie is None
    assert query.rows == log(simulation)


def test_a_task_fails_if_brokers_never_agree_about_a_loss(
    frozen: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = frozen.simulation
    query = Query(simulation, **{"kafkaConsumer.pollTimeoutMs": "512"})
    query.batch()
    wrote(simulation, "later", 5)
    plan = query.tracker.plan(query.offset, query.journal())
    truth = RangeLog.ends
    monkeypatch.setattr(RangeLog, "ends", lambda self: (0, 100, truth(self)[2]))
    monkeypatch.setattr(RangeLog, "_is_agreed", lambda *_: False)
    monkeypatch.setattr(query.worker, "poll_arrow", lambda *_, **__: simulation.advance(1.0))
    begun = simulation.now
    with pytest.raises(NoProgressError, match="although its broker answers"):
        query.read(plan)
    assert 10 < simulation.now - begun < 60


@pytest.mark.parametrize("old", [False, True])
def test_offsets_that_the_earlier_leader_never_had_are_not_skipped(
    frozen: Frozen, caplog: Any, old: bool
) -> None:
    """The earlier leader responds OFFSET_OUT_OF_RANGE, though other workers read the batch."""
    query = Query(frozen.simulation, failOnDataLoss="false")
    query.driver.config = frozen.away()
    query.worker = kept = query.new_worker(**frozen.there())
    query.restart_driver()
    query.batch()
    frozen.fall()
    query.restart()
    query.worker = query.new_worker(**frozen.away())
    query.batch()
    wrote(frozen.simulation, "more", 20)
    end = query.journal()
    query.worker = kept
    query.finish(without_epochs(end) if old else end)
    assert query.rows == log(frozen.simulation)
    assert "failOnDataLoss" not in caplog.text


@pytest.mark.parametrize("old", [False, True])
def test_a_driver_that_restarts_with_an_outdated_leader_repeats_no_record(
    frozen: Frozen, caplog: Any, old: bool
) -> None:
    """At first, only the outdated leader responds to the driver."""
    query = Query(frozen.simulation, failOnDataLoss="false")
    query.driver.config = frozen.away()
    query.restart_driver()
    query.batch()
    frozen.fall()
    query.restart_driver()
    query.batch()
    if old:
        query.offset = without_epochs(query.offset)
    query.driver.config = frozen.there()
    query.driver.name = "alone"
    for i, broker in frozen.cluster.brokers.items():
        if broker is not frozen.zombie:
            frozen.cluster.partition(i, "alone")
    query.restart_driver()
    for _ in range(3):
        assert query.journal() == query.offset
    frozen.cluster.heal()
    frozen.simulation.advance(5.0)
    assert query.batch() == []
    wrote(frozen.simulation, "more", 5)
    query.batch()
    assert query.rows == log(frozen.simulation)
    assert "failOnDataLoss" not in caplog.text


@pytest.mark.parametrize("fails", ["true", "false"])
def test_leaders_of_a_deleted_topic_do_not_count_for_its_successor(
    simulation: KafkaSimulation, caplog: Any, fails: str
) -> None:
    """The deleted topic has higher leader epochs, and requests to its leaders have no topic id."""
    for _ in range(3):
        simulation.cluster.hand_over("t", 0)
    frozen = Frozen(simulation)
    query = Query(simulation, failOnDataLoss="false")
    query.driver.config = frozen.away()
    query.restart_driver()
    query.batch()
    frozen.cluster.zombie_leader(frozen.zombie.id)
    simulation.advance(3.0)
    recreate_topic(simulation.cluster, "t", 1)
    simulation.send("t", b"refused, as the producer knows the deleted topic")
    simulation.advance(5.0)
    wrote(simulation, "new", 120)
    query.restart()
    query.batch()
    read = len(log(simulation))
    caplog.clear()
    query.rows.clear()
    query.driver.config = frozen.there()
    query.restart(failOnDataLoss=fails)
    simulation.after(40.0, simulation.cluster.heal)
    for _ in range(30):
        assert query.batch() == []
        simulation.advance(2.0)
    wrote(simulation, "more", 5)
    assert query.batch() == log(simulation)[read:]
    assert "failOnDataLoss" not in caplog.text


@pytest.mark.parametrize("fails", ["true", "false"])
def test_starting_offsets_are_not_validated_by_the_earlier_leader(
    frozen: Frozen, caplog: Any, fails: str
) -> None:
    given = {"startingOffsets": '{"t":{"0":120}}', "failOnDataLoss": fails}
    frozen.fall()
    query = Query(frozen.simulation, **given)
    query.driver.config = frozen.there()
    query.restart_driver()
    assert query.batch() == log(frozen.simulation)[120:]
    assert "failOnDataLoss" not in caplog.text


@pytest.mark.parametrize("old", [False, True])
def test_records_deleted_by_retention_are_a_confirmed_loss(
    simulation: KafkaSimulation, caplog: Any, old: bool
) -> None:
    query = Query(simulation, failOnDataLoss="false")
    wrote(simulation, "old", 100)
    end = query.journal()
    delete_records(simulation.cluster, "t", 0, 0.4)
    begun = simulation.now
    assert query.finish(without_epochs(end) if old else end) == log(simulation)[40:]
    assert (simulation.now - begun >= 10) == old  # a leader with the epoch of the range is trusted
    assert "has offsets 40 to 100" in caplog.text


def test_a_shorter_recreated_topic_without_ids_is_read_from_its_beginning(
    simulation: KafkaSimulation, caplog: Any
) -> None:
    """No leader was elected in either topic."""
    limit(simulation.cluster, "no topic ids")
    query = Query(simulation, failOnDataLoss="false")
    wrote(simulation, "old", 20)
    query.batch()
    recreate_topic(simulation.cluster, "t")
    simulation.advance(2.0)
    wrote(simulation, "new", 5)
    query.restart()
    found = [query.batch() for _ in range(3)]
    assert [rows for rows in found if rows] == [log(simulation)]
    assert "shorter than before under the same leader epoch 0" in caplog.text
    query.restart(failOnDataLoss="true")
    assert query.batch() == []


@pytest.mark.parametrize("replays", [False, True])
def test_a_recreated_topic_without_topic_ids_is_a_loss(
    simulation: KafkaSimulation, caplog: Any, replays: bool
) -> None:
    limit(simulation.cluster, "no topic ids")
    for _ in range(3):
        simulation.cluster.move_leader("t", 0)
    query = Query(simulation, failOnDataLoss="false")
    wrote(simulation, "old", 20)
    end = query.journal()
    if not replays:
        query.finish(end)
    recreate_topic(simulation.cluster, "t")
    simulation.advance(2.0)
    wrote(simulation, "new", 50)
    query.restart()
    if replays:
        assert query.finish(end) == []
    found = [query.batch() for _ in range(3)]  # no new batch while the lower epoch isn't confirmed
    assert [rows for rows in found if rows] == [log(simulation)]
    assert "below epoch 3 of the query's offset" in caplog.text


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("recreated", ["before", "journalled", "planned"])
def test_a_recreated_topic_whose_brokers_fetch_by_name_is_a_loss(
    recreated: str, fails: str, caplog: Any
) -> None:
    """Kafka 2.8 to 3.0 have topic ids, but return the new topic's records for the earlier one."""
    with KafkaSimulation(brokers=3, versions={FetchRequest.API_KEY: (4, 12)}) as simulation:
        simulation.create_topic("t", partitions=1)
        query = Query(simulation, failOnDataLoss=fails)
        wrote(simulation, "old", 20)
        old = query.batch()
        end = plan = None
        if recreated != "before":
            wrote(simulation, "lost", 30)
            end = query.journal()
        if recreated == "planned":
            plan = query.tracker.plan(query.offset, end or {})
        recreate_topic(simulation.cluster, "t")
        simulation.advance(0.5)
        simulation.produce("t", [b"%d" % n for n in range(60)])
        simulation.advance(0.5)
        if fails == "true":
            with pytest.raises(DataLossError, match="topic t was deleted and recreated"):
                _ = (
                    query.batch()
                    if end is None
                    else query.read(plan)
                    if plan
                    else query.finish(end)
                )
            assert query.rows == old
            return
        if plan is not None:
            assert query.read(plan) == []
            query.worker = query.new_worker()  # the worker of the next attempt
            assert query.read(plan) == []
        if end is not None:
            assert query.finish(end) == []
        while query.batch():
            pass
        assert query.rows == old + log(simulation)
        assert "topic t was deleted and recreated" in caplog.text


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("brokers", ["new", "fetch by name", "no topic ids"])
def test_a_recreated_topic_that_is_empty_is_a_loss_within_seconds(
    brokers: str, fails: str, kept: bool, caplog: Any
) -> None:
    """The range begins at offset 0, which an empty log doesn't refuse."""
    fetch = {} if brokers == "new" else {FetchRequest.API_KEY: (4, 12)}
    with KafkaSimulation(brokers=3, versions=fetch) as simulation:
        if brokers == "no topic ids":
            limit(simulation.cluster, brokers)
        simulation.create_topic("t", partitions=1)
        wrote(simulation, "old", 20)
        query = Query(simulation, failOnDataLoss=fails)
        end = query.journal()
        plan = query.tracker.plan(query.offset, end)
        if kept:
            query.read(plan)  # another attempt, so the worker's client knows the earlier topic
        recreate_topic(simulation.cluster, "t")
        simulation.advance(2.0)
        begun = simulation.now
        if fails == "true":
            loss = "0 to 0" if brokers == "no topic ids" else "topic t was deleted and recreated"
            with pytest.raises(DataLossError, match=loss):
                query.read(plan)
        else:
            assert query.read(plan) == []
            assert "failOnDataLoss is false" in caplog.text
        # A loss is confirmed ten seconds after its first sign, which old brokers show in responses.
        assert 10 <= simulation.now - begun < (12 if brokers == "new" else 17)
        if fails == "false" and brokers != "no topic ids":
            assert query.finish(end) == []
            wrote(simulation, "new", 5)
            while query.batch():
                pass
            assert query.rows == log(simulation)


@pytest.mark.parametrize("epoch", [0, 9])
def test_a_query_continues_in_a_mirror_cluster_with_other_epochs(epoch: int) -> None:
    """A partition without new records doesn't keep the other cluster's epoch."""
    with KafkaSimulation(brokers=2) as simulation:
        simulation.create_topic("t", partitions=2)
        for number in range(20):
            if number == 10:
                simulation.cluster.move_leader("t", 0)
                simulation.advance(1.0)
            simulation.send("t", b"%d" % number, partition=0).result(60)
        query = Query(simulation, allowClusterChange="true")
        assert len(query.batch()) == 20
        query.offset |= {
            "cluster": "primary",
            "id": {"t": "6f7c1f3e-0000-4000-8000-000000000001"},
            "epoch": {"t": {"0": epoch, "1": epoch}},
        }
        query.restart()
        simulation.send("t", b"new", partition=1).result(60)
        assert query.batch() == [(0, b"new")]
        del query.given["allowClusterChange"]
        query.restart()
        simulation.send("t", b"last", partition=0).result(60)
        assert query.batch() == [(20, b"last")]


def test_a_new_topic_id_is_confirmed_although_some_brokers_do_not_respond(
    simulation: KafkaSimulation,
) -> None:
    query = Query(simulation)
    config = {"auto.offset.reset": "none"}
    query.worker = simulation.consumer(config, name="alone")
    wrote(simulation, "old", 20)
    query.batch()
    wrote(simulation, "older", 20)
    plan = query.tracker.plan(query.offset, query.journal())
    recreate_topic(simulation.cluster, "t")
    simulation.advance(5.0)
    leader = simulation.cluster.leader("t", 0)
    for i, broker in simulation.cluster.brokers.items():
        if broker is not leader:
            simulation.cluster.partition(i, "alone")
    simulation.after(90.0, simulation.cluster.heal)
    with pytest.raises(DataLossError, match="was deleted and recreated while the query ran"):
        query.read(plan)
    assert 90 < simulation.now < 150
