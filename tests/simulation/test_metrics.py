"""`metrics()` returns the right numbers after a known run, also with errors or a cluster move."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
import threading
from collections import Counter
from typing import Any

import pytest
from tests.simulation.group_scene import PROTOCOLS, Scene
from tests.simulation.produce_script import APPENDED, REFUSED, Scripted, times
from tests.simulation.sasl_scene import PASSWORD
from tests.simulation.sasl_scene import Scene as SaslScene
from tests.simulation.scene import Stage

from odradek import AsyncConsumer, AsyncProducer, AsyncWorkers, ConsumerRecord
from odradek.api.admin import Admin
from odradek.api.producer import Producer
from odradek.clients.metrics.catalogue import SCOPES
from odradek.clients.metrics.metric import Metrics
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.network.effects import Send
from odradek.simulation.world.host import SimulatedHost
from odradek.testing import KafkaSimulation

P0 = TopicPartition("t", 0)
NODES = "producer-node-metrics"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the number of sent requests by client, counted by the clients' I/O hosts."""
    found: Counter[str] = Counter()
    send = SimulatedHost._send

    def counting(host: SimulatedHost, engine: Any, effect: Send) -> None:
        found[host.name] += 1
        send(host, engine, effect)

    monkeypatch.setattr(SimulatedHost, "_send", counting)
    return found


def requests_add_up(found: Metrics) -> bool:
    """Assert that each request was answered, is in flight, or was lost."""
    value = found.value
    lost = value("request-total") - value("response-total") - value("requests-in-flight")
    return lost >= 0


def test_the_catalogue_contains_the_metrics_of_all_clients_and_no_others() -> None:
    scene = Scene()
    scene.write(range(8))
    with scene.producer() as producer, scene.client(Admin) as admin:
        producer.send("t", b"8").result(5.0)
        consumer = scene.subscribed()
        scene.read(consumer, 9)
        consumer.commit()
        admin.list_topics()
        found = [*producer.metrics().all, *consumer.metrics().all, *admin.metrics().all]
    found += worked(10, 4)[-1].all
    told = {(m.group, tuple(m.tags)[1:], m.name) for m in found}
    assert told == {(s.group, s.tags, name) for s in SCOPES for name in s.names}
    assert all(next(iter(m.tags)) == "client-id" for m in found)


def worked(records: int, concurrency: int) -> list[Metrics]:
    """Return metrics of a consumer in seconds 2 and 5 of a run of workers, and after a second run.

    In the first run each record takes two seconds, and the first of them fails.
    """
    with KafkaSimulation(seed=1) as simulation:
        simulation.create_topic("t", partitions=1)
        simulation.create_topic("dead", partitions=1)
        simulation.produce("t", [b"%d" % n for n in range(records)])
        servers = {"bootstrap.servers": simulation.bootstrap_servers}
        found: list[Metrics] = []

        async def work(record: ConsumerRecord) -> None:
            await asyncio.sleep(2.0)
            if record.offset == 0:
                raise ValueError("no")

        async def main() -> None:
            group = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
            async with AsyncConsumer({**servers, **group}) as consumer, AsyncProducer(servers) as p:
                options: dict[str, Any] = {"concurrency": concurrency, "buffer_records": records}
                options |= {"max_attempts": 2, "producer": p, "dead_letter_topic": "dead"}
                workers = AsyncWorkers(consumer, work, **options)
                run = asyncio.create_task(workers.run("t", timeout=5.0))
                while not workers.progress().in_work:
                    await asyncio.sleep(0.01)
                for seconds in (1.0, 4.0):
                    await asyncio.sleep(seconds)
                    found.append(consumer.metrics())
                await run
                await p.send_and_wait("t", b"more")
                await AsyncWorkers(consumer, work).run("t", timeout=5.0)
                found.append(consumer.metrics())

        simulation.run(main())
        return found


def test_metrics_of_workers_count_records_in_each_state() -> None:
    first, later, last = worked(10, 4)

    def told(metrics: Metrics) -> dict[str, float]:
        mine = {m.name.removeprefix("work-"): m.value for m in metrics.all if "work-" in m.name}
        return {name: round(value) for name, value in mine.items() if value}

    size = first.value("work-buffered-bytes")
    assert size > 10 * 200  # counted as for the option buffer_bytes
    assert told(first) == {
        "running": 4,
        "waiting": 6,
        "buffered-bytes": size,
        "paused-partitions": 1,
        "oldest-seconds": 1,
        "longest-seconds": 1,
    }
    # Three records are done at 2 s and four at 4 s; the failed record is among the running ones.
    seen = told(later)
    assert (seen["finished-total"], seen["retry-total"], seen["oldest-seconds"]) == (7, 1, 5)
    assert (seen["running"], seen["longest-seconds"]) == (3, 1)
    assert told(last) == {"finished-total": 11, "retry-total": 1, "dead-letter-total": 1}


def test_a_client_without_any_request_has_zero_counts() -> None:
    with Stage().client(Admin) as admin:
        found = admin.metrics()
    assert (found.client, found.client_id) == ("Admin", "odradek")
    assert {m.group for m in found.all} == {"admin-client-metrics", "odradek-metrics"}
    assert {m.value for m in found.all if m.kind == "counter"} == {0}
    assert math.isnan(found.value("request-latency-avg"))
    assert math.isnan(found.value("metadata-age"))


@pytest.mark.parametrize("mode", ["bytes", "messages"])
def test_sent_records_are_counted(mode: Any, sent: Counter[str]) -> None:
    stage = Stage()
    stage.cluster.create_topic("u", partitions=1)
    with stage.client(Producer, mode=mode) as producer:
        for n in range(12):
            producer.send("t", b"%05d" % n, partition=n % 3)
        producer.send("u", b"x", partition=0)
        producer.flush(5.0)
        found = producer.metrics()
    value = found.value
    assert value("record-send-total") == value("record-acknowledged-total") == 13
    assert value("record-send-total", topic="t") == 12
    assert value("record-send-total", topic="u") == 1
    assert value("record-retry-total") == value("record-error-total") == 0
    written = [len(b.data) for t, p in (("t", 3), ("u", 1)) for n in range(p)
               for b in stage.cluster.log(t, n).batches]  # fmt: skip
    assert value("byte-total", topic="t") + value("byte-total", topic="u") == sum(written)
    assert value("batch-size-avg") == pytest.approx(sum(written) / 4)
    assert value("batch-size-max") == max(written)
    assert value("request-total") == value("response-total") == sent["producer"]
    by_node = found.find("request-total", NODES)
    assert sum(m.value for m in by_node) == sent["producer"]
    assert {m.tags["node-id"] for m in by_node} == {"node-1", "node-2", "node-3", "node--1"}
    assert value("connection-creation-total") == value("dial-total") == 4
    assert value("connection-count") == 4 - value("connection-close-total")
    assert value("buffer-available-bytes") == value("buffer-total-bytes") == 32 << 20
    assert value("metadata-request-total") == value("metadata-round-total") == 1


def test_averages_cover_the_last_minute() -> None:
    stage = Stage(brokers=1)
    stage.world.change_link(latency=0.010)
    with stage.producer() as producer:
        producer.send("t", b"x", partition=0).result(5.0)
        before = producer.metrics()
        assert before.value("request-latency-max") == pytest.approx(20.0, abs=3.0)
        assert before.value("metadata-latency-avg") == pytest.approx(20.0, abs=3.0)
        stage.world.change_link(latency=0.100)
        stage.world.advance(61.0)
        assert math.isnan(producer.metrics().value("request-latency-avg"))
        producer.send("t", b"x", partition=0).result(5.0)
        after = producer.metrics()
    assert after.value("request-latency-avg", "producer-metrics") == pytest.approx(200.0, abs=9.0)
    assert after.value("request-total") == before.value("request-total") + 1


def test_retried_and_failed_records_are_counted_separately(scripted: Scripted) -> None:
    """Error 6 (NOT_LEADER_OR_FOLLOWER) is retriable, 87 (INVALID_RECORD) fails the whole batch."""
    _, cluster, producer, script = scripted(3)

    def arrived(*said: int) -> int:
        return sum(a.header.count for a in script.arrivals if a.said in said or not said)

    def counted(*names: str) -> list[float]:
        return [producer.metrics().value(f"record-{name}-total") for name in names]

    script.rule = times(2, REFUSED, 6, lambda arrival: arrival.partition == 0)
    for _ in range(5):
        producer.send("t", b"x", partition=0)
    producer.flush(20.0)
    written = len(cluster.records("t", 0)) + len(cluster.records("t", 1))
    assert counted("send", "retry") == [arrived(), arrived(6)]
    assert arrived(6) >= 5
    assert counted("error", "acknowledged") == [0, arrived() - arrived(6)]
    script.rule = times(1, REFUSED, 87, lambda arrival: arrival.partition == 1)
    refused = [producer.send("t", b"x", partition=1) for _ in range(3)]
    producer.flush(20.0)
    failed = sum(future.exception(0) is not None for future in refused)
    assert failed == arrived(87) >= 1
    assert counted("send", "error") == [arrived(), failed]
    assert producer.metrics().value("record-error-total", topic="t") == failed
    script.rule = times(1, APPENDED, 7, lambda arrival: arrival.partition == 2)
    producer.send("t", b"x", partition=2).result(
        20.0
    )  # the batch is written, but the response is a timeout
    assert counted("send", "retry") == [arrived(), arrived(6) + arrived(7)]
    assert counted("acknowledged") == [sum(len(cluster.records("t", p)) for p in range(3))]
    assert written >= 5


def test_records_of_a_missing_topic_count_as_errors() -> None:
    stage = Stage()
    with stage.producer(max_block_ms=5_000) as producer:
        futures = [producer.send("nowhere", b"x") for _ in range(3)]
        stage.world.advance(10.0)
        assert all(isinstance(future.exception(0), KafkaError) for future in futures)
        found = producer.metrics()
    assert found.value("record-error-total", topic="nowhere") == 3
    assert found.value("record-send-total") == 0


@pytest.mark.parametrize("seed", range(4))
def test_metrics_are_right_while_the_cluster_moves(seed: int, sent: Counter[str]) -> None:
    stage = Stage(seed)
    producer = stage.producer()
    consumer = stage.consumer()
    dials: Counter[str] = Counter()
    for client in (producer, consumer):
        client.listen(lambda event: dials.update([event.kind]))
    consumer.assign([TopicPartition("t", p) for p in range(3)])
    read, futures = 0, []
    for n in range(60):
        futures.append(producer.send("t", b"%d" % n, partition=n % 3))
        read += len(consumer.poll(0.2))
        if n == 20:
            stage.cluster.move(after=2.0)
    producer.flush(60.0)
    while read < 60:
        read += len(consumer.poll(1.0))
    assert all(future.exception(0) is None for future in futures)
    wrote, had = producer.metrics(), consumer.metrics()
    assert wrote.value("record-acknowledged-total") == 60
    assert wrote.value("record-send-total") == 60 + wrote.value("record-retry-total")
    assert wrote.value("record-error-total") == 0
    assert (
        had.value("records-consumed-total") == had.value("records-consumed-total", topic="t") == 60
    )
    assert had.value("records-lag-max") == 0
    assert len(had.find("records-lag")) == 3
    both = (wrote, had)
    for name, kind in (
        ("dial-total", "dial"),
        ("dial-failed-total", "dial_failed"),
        ("rebootstrap-total", "rebootstrap"),
        ("retry-total", "retry"),
        ("metadata-round-failed-total", "round_failed"),
        ("connection-creation-total", "connected"),
    ):
        assert sum(found.value(name) for found in both) == dials[kind], name
    assert [found.value("rebootstrap-total") for found in both] == [1, 1]
    assert [found.value("outage-seconds") for found in both] == [0, 0]
    assert wrote.value("request-total") == sent["producer"]
    assert had.value("request-total") == sent["consumer"]
    assert all(map(requests_add_up, both))
    nodes = {m.tags["address"] for m in wrote.find("request-total", NODES)}
    there = {str(broker.address) for broker in stage.cluster.brokers.values()}
    assert nodes <= there | {stage.cluster.bootstrap_servers}, "of those that were left"
    assert nodes & there
    for found in both:
        up = found.value("connection-creation-total") - found.value("connection-close-total")
        assert up == found.value("connection-count")
    producer.close()
    consumer.close()
    assert producer.metrics().value("connection-count") == 0
    assert producer.metrics().value("request-total") == sent["producer"]
    assert consumer.metrics().value("records-consumed-total") == 60


def test_metrics_are_right_while_the_cluster_is_unreachable() -> None:
    stage = Stage()
    producer = stage.producer()
    producer.send("t", b"x", partition=0).result(5.0)
    for broker in stage.cluster.brokers:
        stage.cluster.crash(broker)
    producer.send("t", b"x", partition=0)
    stage.world.advance(20.0)
    found = producer.metrics().value
    assert 10.0 < found("outage-seconds") <= 20.0
    assert found("dial-failed-total") > 5
    assert found("address-backoff-count") >= 1
    assert found("connection-count") == 0
    assert found("buffer-available-bytes") < found("buffer-total-bytes")
    with pytest.raises(KafkaError):
        producer.close(0)


def test_each_way_of_reading_counts_the_returned_records() -> None:
    stage = Stage(partitions=1)
    stage.write(range(100))
    consumer = stage.consumer()
    consumer.assign([P0])

    def consumed() -> int:
        return int(consumer.metrics().value("records-consumed-total"))

    assert (len(consumer.poll(5.0, 7)), consumed()) == (7, 7)
    records = iter(consumer)
    for n in range(3):
        next(records)
        assert consumed() == 8 + n
    consumer.seek(P0, 50)  # decoded records that weren't returned don't count
    assert consumed() == 10
    table = consumer.poll_arrow(5.0)
    assert table is not None
    assert consumed() == 10 + table.num_rows
    consumer.seek(P0, 90)
    assert len(consumer.poll(5.0, 4)) == 4
    before = consumed()
    consumer.pause([P0])
    assert consumer.poll(0.5) == []
    assert consumed() == before
    consumer.resume([P0])
    assert len(consumer.poll(5.0)) == 6
    assert consumed() == before + 6
    found = consumer.metrics().value
    assert found("fetch-bytes-waiting") == 0
    assert found("fetch-bytes-budget") == 50 << 20
    consumer.close()
    assert consumed() == before + 6


def test_consumed_bytes_equal_the_bytes_of_the_log() -> None:
    stage = Stage(partitions=1)
    stage.write(range(50), size=200)
    stage.write(range(50), size=200)
    size = sum(len(batch.data) for batch in stage.cluster.log("t", 0).batches)
    with stage.consumer() as consumer:
        consumer.assign([P0])
        read = 0
        while read < 100:
            read += len(consumer.poll(1.0))
        found = consumer.metrics().value
        assert found("bytes-consumed-total") == found("fetch-bytes-total") == size
        assert found("fetch-total") >= 1
        assert found("fetch-latency-max") < 1000.0


def test_the_time_of_decoding_is_measured_with_the_hosts_clock() -> None:
    """Virtual time doesn't pass during decoding, so here each reading of the clock adds 1 ms."""
    stage = Stage(partitions=1)
    stage.write(range(30))
    consumer = stage.consumer()
    looks = iter(range(1000))
    consumer._engine.fetcher._clock = lambda: next(looks) / 1000
    consumer.assign([P0])
    assert stage.read(consumer, 30) == list(range(30))
    decodings = next(looks) / 2
    assert decodings >= 1
    assert consumer.metrics().value("decode-time-total") == pytest.approx(decodings)
    consumer.close()


def test_an_interrupted_poll_counts_no_record_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(partitions=1)
    stage.write(range(10))
    consumer = stage.consumer()
    consumer.assign([P0])
    delivery, interrupted = consumer._engine.delivery, [False]
    handed_over = delivery.handed_over

    def interrupt() -> None:
        if not interrupted[0]:
            interrupted[0] = True
            raise KeyboardInterrupt
        handed_over()

    monkeypatch.setattr(delivery, "handed_over", interrupt)
    with pytest.raises(KeyboardInterrupt):
        while True:
            consumer.poll(1.0)
    assert interrupted == [True]
    assert stage.read(consumer, 10) == list(range(10))
    assert consumer.metrics().value("records-consumed-total") == 10
    consumer.close()


@PROTOCOLS
def test_rebalances_and_commits_of_a_member_are_counted(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    first = scene.subscribed("a", enable_auto_commit=False)
    scene.read(first, 40)
    found = first.metrics().value
    assert found("rebalance-total") == 1
    assert found("assigned-partitions") == 4
    assert found("rebalance-latency-total") == found("rebalance-latency-max") > 0
    assert found("commit-total") == 0
    first.commit()
    first.commit()
    found = first.metrics().value
    assert found("commit-total") == 2
    assert 0 < found("commit-latency-avg") <= found("commit-latency-max") < 100.0
    second = scene.subscribed("b", enable_auto_commit=False)
    while len(second.assignment()) != 2 or len(first.assignment()) != 2:
        first.poll(0.5)
        second.poll(0.5)
    for _ in range(3):
        first.poll(0.5)
    found = first.metrics().value
    assert found("assigned-partitions") == 2
    assert found("rebalance-total") == 2
    scene.world.advance(3.0)
    found = first.metrics().value
    assert found("last-poll-seconds-ago") == pytest.approx(3.0, abs=0.1)
    assert 3.0 <= found("last-rebalance-seconds-ago") < 60.0


def test_successful_and_refused_authentications_are_counted() -> None:
    scene = SaslScene()
    with scene.producer() as producer:
        producer.send("t", b"1", partition=0).result(5.0)
        found = producer.metrics().value
        assert found("successful-authentication-total") == found("connection-creation-total") >= 2
        assert found("failed-authentication-total") == 0
    with scene.client(Admin, sasl_password=f"no {PASSWORD}") as admin:
        with pytest.raises(KafkaError):
            admin.list_topics(3.0)
        found = admin.metrics().value
        assert found("successful-authentication-total") == 0
        assert found("failed-authentication-total") == found("dial-total") >= 1


def test_throttle_times_of_brokers_are_measured() -> None:
    stage = Stage(brokers=1)
    with stage.producer() as producer:
        producer.send("t", b"x", partition=0).result(5.0)
        stage.cluster.throttle(1, 0.250)
        producer.send("t", b"x", partition=0).result(5.0)
        found = producer.metrics().value
    assert (found("throttle-total"), found("throttle-time-total")) == (1, 250.0)
    assert found("produce-throttle-time-max") == 250.0
    assert found("produce-throttle-time-avg") == 125.0


def test_hedged_requests_are_counted() -> None:
    stage = Stage()
    producer = stage.producer()
    for partition in range(3):
        producer.send("t", b"x", partition=partition).result(5.0)
    for broker in stage.cluster.brokers:
        stage.cluster.pause(broker)
    producer.send("t", b"x", partition=0)
    stage.world.advance(8.0)
    found = producer.metrics().value
    assert found("hedged-request-total") >= 1
    assert found("silence-total") >= 2
    assert found("requests-in-flight") >= 2
    stage.cluster.heal()
    producer.flush(60.0)
    assert producer.metrics().value("record-acknowledged-total") == 4
    producer.close()


def test_metrics_sends_no_request_starts_no_thread_and_takes_no_lock() -> None:
    stage = Stage()
    stage.write(range(5))
    consumer = stage.consumer(group_id="g")
    consumer.assign([P0])
    consumer.poll(1.0)
    engine, counts = consumer._engine, dict(consumer._engine.events.counts)
    before = (engine.flows, len(engine.effects), len(engine.inputs))
    seen: list[Metrics] = []
    with engine.lock:  # this thread holds the lock, so another thread would wait forever
        other = threading.Thread(target=lambda: seen.append(consumer.metrics()))
        other.start()
        other.join(30.0)
    assert dict(seen[0]).keys() == dict(consumer.metrics()).keys()
    assert (engine.flows, len(engine.effects), len(engine.inputs)) == before
    assert dict(engine.events.counts) == counts
    consumer.close()


async def test_asyncio_and_sync_metrics_are_equal(kafka_simulation: KafkaSimulation) -> None:
    kafka_simulation.create_topic("t", partitions=1)
    servers = {"bootstrap.servers": kafka_simulation.bootstrap_servers}
    async with AsyncProducer(servers) as producer, AsyncConsumer(servers) as consumer:
        for _ in range(3):
            await producer.send_and_wait("t", b"x", partition=0)
        consumer.assign([P0])
        consumer.seek_to_beginning()
        read = 0
        while read < 3:
            read += len(await consumer.poll(5.0))
        wrote, had = producer.metrics(), consumer.metrics()
    assert (wrote.client, had.client) == ("AsyncProducer", "AsyncConsumer")
    assert wrote.value("record-acknowledged-total") == 3
    assert had.value("records-consumed-total") == 3


def test_a_connection_that_is_being_closed_is_not_counted_twice() -> None:
    """Read metrics when a closing connection's counts were already added to its broker's counts."""
    stage = Stage(brokers=1)
    with stage.producer() as producer:
        producer.send("t", b"x", partition=0).result(5.0)
        before = producer.metrics()
        network = producer._calls.engine.network
        for connection in list(network.connections.values()):
            connection.record.connection_ended(connection.in_flight, 0.0)
        after = producer.metrics()
    for total in ("request-total", "response-total"):
        assert after.value(total) == before.value(total) > 0


def test_a_snapshot_can_be_pickled_and_copied() -> None:
    stage = Stage()
    with stage.producer() as producer:
        producer.send("t", b"x", partition=0).result(5.0)
        found = producer.metrics()
    for other in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):  # noqa: S301 (our own)
        assert str(other) == str(found)
        assert other.to_dict() == found.to_dict()
        assert other.find(group=NODES)[0].key == found.find(group=NODES)[0].key
        with pytest.raises(TypeError):
            other.all[0].tags["client-id"] = "x"  # type: ignore[index]  # it can't be changed
        with pytest.raises(AttributeError):
            other.at = 0.0


@PROTOCOLS
def test_heartbeats_are_counted_and_timed(protocol: str) -> None:
    scene = Scene()
    scene.world.change_link(latency=0.020)
    consumer = scene.subscribed(group_protocol=protocol)
    scene.write(range(4))
    scene.read(consumer, 4)
    before = consumer.metrics().value("heartbeat-total")
    scene.world.advance(20.0)
    found = consumer.metrics()
    assert 3 <= found.value("heartbeat-total") - before <= 8
    assert found.value("heartbeat-response-time-max") == pytest.approx(40.0, abs=10.0)
    scene.world.change_link(latency=0.100)
    scene.world.advance(10.0)
    assert consumer.metrics().value("heartbeat-response-time-max") == pytest.approx(200.0, abs=30.0)
    consumer.close(1.0)
