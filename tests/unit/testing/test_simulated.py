"""`KafkaSimulation`: clients that a test or the code under test creates are simulated."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import odradek
from odradek import Admin, Consumer, Producer, TopicPartition
from odradek.simulation import LinkProfile, SimulatedHost, StuckError
from odradek.simulation.checkers.invariants import Violation
from odradek.testing import KafkaSimulation


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation() as made:
        yield made
    made.verify()


def test_client_factories_accept_the_classes_arguments(simulation: KafkaSimulation) -> None:
    assert isinstance(simulation.producer({"linger.ms": 0}), Producer)
    assert isinstance(simulation.consumer(client_id="c", auto_offset_reset="earliest"), Consumer)
    admin = simulation.admin({"client.id": "a"}, request_timeout_ms=5000)
    assert isinstance(admin, Admin)
    assert "a of kafka.simulated:9092" in repr(admin)
    assert list(simulation.world.hosts) == ["producer", "consumer", "admin"]
    with pytest.raises(odradek.ConfigurationError, match="did you mean"):
        simulation.producer({"lingerms": 1})


def test_the_simulation_offers_the_methods_of_its_cluster(simulation: KafkaSimulation) -> None:
    simulation.create_topic("t", partitions=2)
    assert list(simulation.topics) == ["t"]
    simulation.crash(1)
    assert not simulation.cluster.brokers[1].alive
    with pytest.raises(AttributeError, match="neither kafka_simulation nor its cluster"):
        _ = simulation.no_such_verb


def test_records_can_be_produced_and_read_directly(simulation: KafkaSimulation) -> None:
    simulation.create_topic("t", partitions=2)
    simulation.produce("t", [b"a", b"b"], partition=1)
    simulation.produce("t", [None, b"c"], partition=0, key=b"k")
    assert simulation.values("t") == [None, b"c", b"a", b"b"]
    consumer = simulation.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    begin = simulation.now
    records = simulation.poll_for(consumer, 3.0)
    assert sorted(r.value or b"" for r in records) == [b"", b"a", b"b", b"c"]
    assert simulation.now == pytest.approx(begin + 3.0, abs=0.05)


def test_clients_created_by_other_code_are_simulated(simulation: KafkaSimulation) -> None:
    simulation.create_topic("t")
    servers = simulation.bootstrap_servers
    with Producer({"bootstrap.servers": servers}) as producer:
        assert producer.send("t", b"x").result().offset == 0
    with odradek.Consumer(bootstrap_servers=servers) as consumer:
        assert consumer.cluster_id() == simulation.cluster_id
    broker = next(iter(simulation.brokers.values()))
    with odradek.Admin(bootstrap_servers=str(broker.address)) as admin:
        assert admin.list_topics() == ["t"]
    assert simulation.now > 0
    assert simulation.values("t") == [b"x"]


@pytest.mark.parametrize("servers", ["kafka.prod.example:9094", "127.0.0.1:9092", "[::1]:9092"])
def test_other_addresses_may_be_simulated(simulation: KafkaSimulation, servers: str) -> None:
    simulation.answer_for(f"{servers},kafka-2.example:9092")
    for one in (servers, "kafka-2.example:9092"):
        with Admin(bootstrap_servers=one) as admin:
            assert admin.describe_cluster(5.0).cluster_id == simulation.cluster_id
    simulation.replace_with_foreign()
    with Admin(bootstrap_servers=servers) as admin:
        assert admin.describe_cluster(5.0).cluster_id == "foreign-cluster-0002"


def test_creating_a_client_of_an_unknown_address_raises(simulation: KafkaSimulation) -> None:
    with pytest.raises(odradek.ConfigurationError, match="answer_for\\('kafka.prod.example:9092'"):
        Admin(bootstrap_servers="kafka.prod.example:9092")
    simulation.allow_real_clients = True
    with Admin(bootstrap_servers="kafka.prod.example:9092") as real:
        assert not isinstance(real._host, SimulatedHost)


def test_creating_a_client_in_another_thread_raises(simulation: KafkaSimulation) -> None:
    errors: list[BaseException] = []

    def make() -> None:
        try:
            Admin(bootstrap_servers=simulation.bootstrap_servers)
        except odradek.ConfigurationError as error:
            errors.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join(10.0)
    assert "kafka_cluster" in str(errors[0])


def test_clients_created_after_the_simulation_use_real_connections() -> None:
    with KafkaSimulation() as simulation:
        servers = simulation.bootstrap_servers
        with KafkaSimulation() as inner, Admin(bootstrap_servers=servers) as admin:
            admin.list_topics()  # this client belongs to the latest simulation
            assert inner.now > 0
            assert simulation.now == 0
        with Admin(bootstrap_servers=servers) as admin:
            admin.list_topics()
        assert simulation.now > 0
    with Admin(bootstrap_servers=servers) as admin:
        assert not isinstance(admin._host, SimulatedHost)


def test_a_second_cluster_has_its_own_id(simulation: KafkaSimulation) -> None:
    other = simulation.new_cluster("other", brokers=1)
    with Admin(bootstrap_servers="other.simulated:9092") as admin:
        assert admin.describe_cluster(5.0).cluster_id == other.cluster_id
    assert other.cluster_id != simulation.cluster_id


def test_virtual_time_advances_on_request(simulation: KafkaSimulation) -> None:
    seen: list[float] = []
    stop = simulation.every(1.0, lambda: seen.append(simulation.now))
    simulation.after(3.5, stop)
    simulation.advance(2.0)
    simulation.sleep(8.0)
    assert seen == [1.0, 2.0, 3.0]
    assert simulation.now == 10.0
    simulation.after(5.0, lambda: seen.clear())
    assert simulation.run_while(lambda: bool(seen), limit=10.0)
    assert simulation.now == 15.0
    assert not simulation.run_while(lambda: True, limit=1.0)


def test_a_simulation_with_unfinished_work_can_be_closed() -> None:
    with KafkaSimulation() as simulation:
        simulation.create_topic("t")
        producers = [simulation.producer(name=name) for name in "abc"]
        for producer in producers:
            producer.send("t", b"x").result()
            simulation.every(0.1, lambda producer=producer: producer.send("t", b"y"))  # type: ignore[misc]
        simulation.advance(1.0)
        for i in simulation.brokers:
            simulation.crash(i)
        simulation.advance(1.0)
    simulation.verify()
    assert all(host.closed for host in simulation.world.hosts.values())


def test_an_error_of_a_scheduled_action_is_raised_by_the_waiting_call(
    simulation: KafkaSimulation,
) -> None:
    simulation.create_topic("t")
    consumer = simulation.consumer()
    consumer.assign([TopicPartition("t", 0)])
    simulation.after(2.0, lambda: simulation.crash(99))
    with pytest.raises(KeyError, match="99"):
        consumer.poll(5.0)
    assert simulation.now == 2.0
    assert consumer.poll(1.0) == []


@pytest.mark.slow
def test_an_endless_loop_is_detected(simulation: KafkaSimulation) -> None:
    simulation.create_topic("t")
    consumer = simulation.consumer()
    consumer.assign([TopicPartition("t", 0)])
    end = simulation.now + 5.0
    with pytest.raises(StuckError, match="consumer: more than 10000 steps at"):
        while simulation.now < end:
            consumer.poll(0.0)


def test_a_consumer_connects_only_during_its_calls(simulation: KafkaSimulation) -> None:
    simulation.create_topic("t")
    consumer = simulation.consumer()
    consumer.assign([TopicPartition("t", 0)])
    simulation.advance(60.0)
    assert simulation.world.dials == []
    consumer.poll(1.0)
    assert simulation.world.dials


def test_a_client_can_be_given_a_slow_link(simulation: KafkaSimulation) -> None:
    simulation.admin(link=LinkProfile(latency=0.3)).describe_cluster(20.0)
    assert simulation.now > 3.0


def test_the_simulations_checkers_report_violated_rules(simulation: KafkaSimulation) -> None:
    client = simulation.admin()
    client.list_topics()
    assert len(simulation.report().splitlines()) > 10
    client._engine.events.emit(simulation.now, "metadata_request", address="h:1")
    client._engine.events.emit(simulation.now, "metadata_request", address="h:2")
    with pytest.raises(Violation, match="a metadata request to h:2"):
        simulation.verify()
    simulation.checkers.violations.clear()
