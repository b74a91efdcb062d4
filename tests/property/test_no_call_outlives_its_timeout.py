"""R-RT-2 for all public calls: with every broker dead they end in time and list the attempts.

Producer, consumer and admin in virtual time, with each way in which brokers can be dead, with and
without established connections, with timeouts from zero to ten seconds. A public call with a
timeout that is missing in the table below fails the last test.
"""

from __future__ import annotations

import inspect
import random
import zlib
from collections.abc import Callable
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.test_admin_async import CALLS as ADMIN_CALLS
from tests.volume import WHOLE, third

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.runtime.hosts.record_future import ArrowFuture, ManyFuture, RecordFuture
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.telemetry_receiver import TelemetryReceiver

T0 = TopicPartition("t", 0)
FAULTS: dict[str, Callable[[SimulatedCluster, int], None]] = {
    "refused": lambda cluster, i: cluster.crash(i),
    "black_holed": lambda cluster, i: cluster.blackhole(i),
    "silent": lambda cluster, i: cluster.go_silent(i),
    "paused": lambda cluster, i: cluster.pause(i),
    "accept_reset": lambda cluster, i: cluster.accept_then_reset(i),
    "ready_close": lambda cluster, i: cluster.ready_then_close(i),
    "dns_dead": lambda cluster, i: cluster.crash(i),
}
QUIET = {"poll", "poll_arrow", "batches", "records", "close", "unsubscribe"}
"""Calls that return an empty result instead of raising."""


def _send(producer: Producer, topic: str = "t") -> RecordFuture:
    return producer.send(topic, b"x", partition=0)


def _send_arrow(producer: Producer, topic: str = "t") -> ArrowFuture:
    return producer.send_arrow(topic, pa.record_batch({"value": [b"x"]}))


def _send_many(producer: Producer, topic: str = "t") -> ManyFuture:
    return producer.send_many(topic, [b"x"])


CALLS: dict[tuple[type, str], Callable[[Any, float], object]] = {
    (Producer, "send"): lambda p, t: _send(p, "nowhere").result(timeout=t),
    (Producer, "send_arrow"): lambda p, t: _send_arrow(p, "nowhere"),
    (Producer, "send_many"): lambda p, t: _send_many(p, "nowhere"),
    (Producer, "partitions_for"): lambda p, t: p.partitions_for("nowhere", timeout=t),
    (Producer, "warm"): lambda p, t: p.warm("nowhere", timeout=t),
    (Producer, "committed_offsets"): lambda p, t: p.committed_offsets("g", timeout=t),
    (Producer, "cluster_id"): lambda p, t: p.cluster_id(timeout=t),
    (Producer, "flush"): lambda p, t: (_send(p), p.flush(timeout=t)),
    (Producer, "close"): lambda p, t: (_send(p), p.close(timeout=t)),
    (RecordFuture, "result"): lambda p, t: _send(p).result(timeout=t),
    (RecordFuture, "exception"): lambda p, t: _send(p).exception(timeout=t),
    (ArrowFuture, "result"): lambda p, t: _send_arrow(p).result(timeout=t),
    (ArrowFuture, "exception"): lambda p, t: _send_arrow(p).exception(timeout=t),
    (ArrowFuture, "acknowledged"): lambda p, t: _send_arrow(p).acknowledged(timeout=t),
    (ArrowFuture, "errors"): lambda p, t: _send_arrow(p).errors(timeout=t),
    (ManyFuture, "result"): lambda p, t: _send_many(p).result(timeout=t),
    (ManyFuture, "exception"): lambda p, t: _send_many(p).exception(timeout=t),
    (ManyFuture, "acknowledged"): lambda p, t: _send_many(p).acknowledged(timeout=t),
    (ManyFuture, "errors"): lambda p, t: _send_many(p).errors(timeout=t),
    (Producer, "init_transactions"): lambda p, t: p.init_transactions(timeout=t),
    (Producer, "send_offsets_to_transaction"): lambda p, t: p.send_offsets_to_transaction(
        {T0: 1}, "group", timeout=t
    ),
    (Producer, "commit_transaction"): lambda p, t: (_send(p), p.commit_transaction(timeout=t)),
    (Producer, "abort_transaction"): lambda p, t: p.abort_transaction(timeout=t),
    (Consumer, "commit"): lambda c, t: c.commit({T0: 1}, timeout=t),
    (Consumer, "committed"): lambda c, t: c.committed([T0], timeout=t),
    (Consumer, "unsubscribe"): lambda c, t: c.unsubscribe(timeout=t),
    (Consumer, "position"): lambda c, t: c.position(T0, timeout=t),
    (Consumer, "seek_to_committed"): lambda c, t: c.seek_to_committed([T0], timeout=t),
    (Consumer, "poll"): lambda c, t: c.poll(timeout=t),
    (Consumer, "poll_arrow"): lambda c, t: c.poll_arrow(timeout=t),
    (Consumer, "batches"): lambda c, t: list(c.batches(timeout=t)),
    (Consumer, "records"): lambda c, t: list(c.records(timeout=t)),
    (Consumer, "beginning_offsets"): lambda c, t: c.beginning_offsets([T0], timeout=t),
    (Consumer, "end_offsets"): lambda c, t: c.end_offsets([T0], timeout=t),
    (Consumer, "offsets_for_times"): lambda c, t: c.offsets_for_times({T0: 5}, timeout=t),
    (Consumer, "partitions_for"): lambda c, t: c.partitions_for("t", timeout=t),
    (Consumer, "describe"): lambda c, t: c.describe(["t"], timeout=t),
    (Consumer, "cluster_id"): lambda c, t: c.cluster_id(timeout=t),
    (Consumer, "list_topics"): lambda c, t: c.list_topics(timeout=t),
    (Consumer, "close"): lambda c, t: c.close(timeout=t),
    (Admin, "create_topics"): lambda a, t: a.create_topics([NewTopic("new", 1, 1)], timeout=t),
    (Admin, "delete_topics"): lambda a, t: a.delete_topics(["t"], timeout=t),
    (Admin, "list_topics"): lambda a, t: a.list_topics(timeout=t),
    (Admin, "cluster_id"): lambda a, t: a.cluster_id(timeout=t),
    (Admin, "describe_topics"): lambda a, t: a.describe_topics(["t"], timeout=t),
    (Admin, "describe_cluster"): lambda a, t: a.describe_cluster(timeout=t),
    (Admin, "describe_api_versions"): lambda a, t: a.describe_api_versions(timeout=t),
    (Admin, "describe_reachability"): lambda a, t: a.describe_reachability(timeout=t),
    (Admin, "create_partitions"): lambda a, t: a.create_partitions({"t": 9}, timeout=t),
    (Admin, "list_offsets"): lambda a, t: a.list_offsets({T0: "LATEST"}, timeout=t),
    (Admin, "list_group_offsets"): lambda a, t: a.list_group_offsets("g", timeout=t),
    (Admin, "list_groups"): lambda a, t: a.list_groups(timeout=t),
    (Admin, "close"): lambda a, t: a.close(timeout=t),
}
CALLS |= {
    (owner, "client_instance_id"): lambda client, t: client.client_instance_id(timeout=t)
    for owner in (Producer, Consumer, Admin)
}
OF_ROWS = (ArrowFuture, ManyFuture)
NEEDS_TOPIC = {(Producer, "close"), *((kind, "result") for kind in OF_ROWS)}
IN_TRANSACTION = {
    (Producer, "send_offsets_to_transaction"),
    (Producer, "commit_transaction"),
    (Producer, "abort_transaction"),
}
TRANSACTIONAL = {(Producer, "init_transactions"), *IN_TRANSACTION}
NEEDS_TOPIC |= {(kind, name) for kind in OF_ROWS for name in ("acknowledged", "errors")}
NEEDS_TOPIC |= IN_TRANSACTION
IN_GROUP = {(Consumer, n) for n in ("commit", "committed", "unsubscribe", "seek_to_committed")}
KNOWN_BY_HEART = {
    *((Consumer, "cluster_id"), (Producer, "cluster_id"), (Admin, "cluster_id")),
    *((owner, "client_instance_id") for owner in (Producer, Consumer, Admin)),
    (Admin, "describe_reachability"),
}
"""Calls that can return a result without a broker once the client has metadata."""


def client_of(
    owner: type, name: str, cluster: SimulatedCluster, world: World, timeout: float
) -> Any:
    kind: type[Any] = Producer if owner in (RecordFuture, *OF_ROWS) else owner
    background = kind is Producer or (owner, name) in IN_GROUP
    host = world.host(kind.__name__, background=background)
    config: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
    if (owner, name) in TRANSACTIONAL:
        config["transactional.id"] = "writer"
    if (owner, name) in IN_GROUP:
        config["group.id"] = "group"
    if name in ("send_arrow", "send_many") or owner in OF_ROWS:  # no timeout parameter
        config["max.block.ms"] = round(timeout * 1000)
    return on_host(host, kind, config)


def warm_up(client: Any, name: str) -> None:
    """Establish connections and metadata; begin a transaction, join a group."""
    if (Producer, name) in TRANSACTIONAL and isinstance(client, Producer):
        client.partitions_for("t", timeout=5)
        if (Producer, name) in IN_TRANSACTION:
            client.init_transactions(timeout=5)
            client.begin_transaction()
            client.send("t", b"0", partition=0).result(timeout=5)
    elif name == "unsubscribe":
        client.subscribe(["t"])
        client.poll(timeout=1)
    elif isinstance(client, Producer):
        client.partitions_for("t", timeout=5)
        client.send("t", b"0", partition=0).result(timeout=5)
    elif isinstance(client, Consumer):
        client.assign([T0])
        client.seek_to_beginning()
        client.poll(timeout=1)
        client.seek_to_end()
    else:
        client.describe_cluster(timeout=5)


BEFORE = {True: "connected before", False: "never connected"}
CASES = [
    pytest.param(owner, name, fault, warm, id=f"{owner.__name__}-{name}-{fault}-{BEFORE[warm]}")
    for owner, name in CALLS
    for fault, warm in third(product(FAULTS, BEFORE), f"{owner.__name__}.{name}", 5)
]


@pytest.mark.parametrize(("owner", "name", "fault", "warm"), CASES)
def test_a_call_ends_in_time_and_lists_the_attempts(
    owner: type, name: str, fault: str, warm: bool
) -> None:
    warm = warm or (owner, name) in NEEDS_TOPIC
    seed = zlib.crc32(f"{owner.__name__} {name} {fault} {warm}".encode())
    rng = random.Random(seed)
    longer = [rng.uniform(*bounds) for bounds in ((0.2, 1.0), (1.0, 3.0), (3.0, 10.0))]
    if not WHOLE:
        longer = [longer[seed % len(longer)]]
    for timeout in (0.0, 0.15, *longer):
        once(owner, name, fault, warm, timeout, seed)


def once(owner: type, name: str, fault: str, warm: bool, timeout: float, seed: int) -> None:
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("t", partitions=2)
    if name == "client_instance_id":
        cluster.receive_telemetry(TelemetryReceiver())
    client = client_of(owner, name, cluster, world, timeout)
    if warm:
        warm_up(client, name)
    elif isinstance(client, Consumer) and name != "unsubscribe":
        client.assign([T0])
    for i in cluster.brokers:
        FAULTS[fault](cluster, i)
    if fault == "dns_dead":
        world.dns.clear()
    begin = world.now
    error: BaseException | None = None
    try:
        CALLS[owner, name](client, timeout)
    except KafkaError as raised:
        error = raised
    took = world.now - begin
    assert took <= timeout + 0.1, f"{took} s for a timeout of {timeout}"
    assert not world.hot_loops
    if name in QUIET or (warm and (owner, name) in KNOWN_BY_HEART):
        return
    assert isinstance(error, KafkaTimeoutError), f"{error!r}"
    assert took >= timeout - 0.001, f"gave up after {took} s of {timeout}: {error}"
    if timeout > 0.12:
        assert error.attempts, f"after {timeout} s nothing was tried? {error}"
        for attempt in error.attempts:
            assert attempt.address is not None
            assert attempt.what
            assert attempt.error
            assert begin - 60 <= attempt.at <= world.now
            assert str(attempt.address) in str(error)


def test_every_public_call_with_a_timeout_is_in_the_table() -> None:
    found = {
        (owner, name)
        for owner in (Producer, Consumer, Admin, RecordFuture, *OF_ROWS)
        for name, function in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_") and "timeout" in inspect.signature(function).parameters
    }
    inside: set[tuple[type, str]] = {
        (Producer, "await_outcome"),
        (Producer, "outcome_deadline"),
    }  # used by futures
    # Calls ask any broker, leaders, coordinators or each broker: one of each kind is above;
    # simulation/test_admin_batched_calls.py tries them all with dead brokers.
    inside |= {(Admin, name) for name, *_ in ADMIN_CALLS}
    assert found - inside <= set(CALLS), "calls that no test makes with every broker dead"
