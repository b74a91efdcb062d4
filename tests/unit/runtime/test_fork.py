"""Test that forks never block (R-HO-1), and that a child can't use its parent's client (R-BO-4)."""

from __future__ import annotations

import os
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, echo, peer, run

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import ClientForkedError
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion
from odradek.runtime import fork
from odradek.runtime.events.events_dir import EventFile
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.hosts.thread_host import ThreadHost
from odradek.simulation import SimulatedCluster, World


def in_child(check: Callable[[], None]) -> None:
    """Run a check in a forked child process, and fail if the check fails."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 and later warn of a fork with threads
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def refused(*calls: Callable[[], Any]) -> None:
    for call in calls:
        with pytest.raises(ClientForkedError, match="forked child"):
            call()


def every_call_is_refused(host: SelectorHost | ThreadHost) -> None:
    refused(
        lambda: host.run(Completion(), None),
        host.wake,
        host.drive,
        lambda: host.defer(lambda: None),
        host.rng,
    )
    host.close(host.now() + PATIENCE)  # `close` doesn't raise, as `with` blocks call it


@pytest.mark.parametrize("kind", [SelectorHost, ThreadHost])
def test_a_fork_does_not_affect_the_connections_of_the_parent(
    kind: type[SelectorHost | ThreadHost], engine: ScriptedEngine
) -> None:
    host = kind()
    host.attach(engine)
    with peer(echo) as server:
        connection = engine.open(server.port)
        engine.send(connection, b"one")
        run(host, engine.expect(connection, 3))
        assert not host.run(Completion(), host.now() + 0.01)  # now all file descriptors are open
        inner = host._inner if isinstance(host, ThreadHost) else host
        ours = {t.fd for t in inner._transports.values()}
        assert len(ours) == 1

        def check() -> None:
            every_call_is_refused(host)
            for descriptor in ours:  # the child has closed the sockets
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.fstat(descriptor)

        in_child(check)
        engine.send(connection, b"two")
        run(host, engine.expect(connection, 6))
        assert engine.received_bytes[connection] == b"onetwo"
        assert not engine.down[connection].done
        host.close(host.now() + PATIENCE)


@contextmanager
def held_by_another(lock: Any) -> Iterator[None]:
    """Hold the lock in another thread, which doesn't exist in a forked child."""
    taken, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            enough.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(PATIENCE)
    yield
    enough.set()
    thread.join()


@pytest.mark.slow
def test_calls_in_a_child_raise_although_a_lock_is_held_and_affect_no_group_membership() -> None:
    tp = TopicPartition("t", 0)
    consumer, member = (
        Consumer(bootstrap_servers="127.0.0.1:1", group_id=group) for group in ("g", "h")
    )
    consumer.assign([tp])
    member.subscribe(["t"])
    assert member.poll(0.05) == []
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    clients = (consumer, member, producer)

    def check() -> None:
        refused(
            lambda: consumer.pause([tp]),
            lambda: consumer.seek(tp, 1),
            lambda: consumer.assign([]),
            consumer.commit_async,
            lambda: consumer.poll(0),
            consumer.explain,
            lambda: producer.send("t", b"1"),
            lambda: producer.send_arrow("t", None),
            lambda: producer.send_many("t", [b"1"]),
            producer.flush,
            producer.explain,
            lambda: member.poll(0),
            lambda: next(iter(member)),
            lambda: member.commit({tp: 1}),
            lambda: member.subscribe(["u"]),
            member.unsubscribe,
        )
        for client in clients:
            client.close()

    with ExitStack() as held:
        for client in clients:
            held.enter_context(held_by_another(client._host.lock))
        in_child(check)
    assert member.poll(0.05) == []
    for client in clients:
        client.close(0.2)


def test_an_unused_client_of_the_parent_cannot_be_used_in_a_child(host: SelectorHost) -> None:
    in_child(lambda: every_call_is_refused(host))


def test_a_child_writes_no_events_to_the_parents_file(tmp_path: Path) -> None:
    events = EventFile(tmp_path, "client")
    events(Event(0.0, "closed"))
    in_child(lambda: events(Event(1.0, "closed")))
    assert len(events.path.read_text().splitlines()) == 1
    events(Event(2.0, "closed"))
    assert len(events.path.read_text().splitlines()) == 2
    events.close()


def test_a_producer_of_the_parent_accepts_no_record_in_a_child() -> None:
    """The record is rejected although it would fit into an open batch."""
    world = World(seed=1)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", partitions=1)
    host = ThreadHost()
    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000}
    with on_host(world.host("producer"), Producer, config) as producer:
        producer.partitions_for("t", timeout=5)
        producer.send("t", b"1")
        producer._calls.host, producer._engine.accumulator.lock = host, host.lock

        def check() -> None:
            refused(*[lambda: producer.send("t", b"2")] * 3)
            assert producer._lanes["t"].open[0].count == 1

        in_child(check)
        assert producer.send("t", b"3") is not None
        assert producer._lanes["t"].open[0].count == 2
        producer._calls.host = world.hosts["producer"]


def test_the_only_registered_fork_hook_runs_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: list[str] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **named: hooks.extend(named))
    monkeypatch.setattr(fork, "_hooked", False)
    fork.ForkSwitch()
    assert hooks == ["after_in_child"]
