"""Test that a request that can't be encoded raises only for the caller that sent it."""

import pytest
from tests.spec.world import ClusterPicture, World, ask, parse, up

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.clients.admin.admin_call import by_any
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.batched_calls import ApiCall
from odradek.common.errors import DisconnectedError, KafkaError
from odradek.common.errors.kafka import InvalidRequestError, UnsupportedVersionError
from odradek.protocol.messages import create_topics as c
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.simulation import SimulatedCluster
from odradek.simulation import World as SimulatedWorld


def world() -> World:
    made = World({"bootstrap.servers": "b1:9092"})
    made.pictures["*"] = ClusterPicture(brokers={1: "b1:9092"}, topics={"t": [1]})
    up(made, "b1:9092")
    made.wait(made.engine.topic("t", 9.0), 9.0).result()
    return made


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TypeError("an int is wanted"), InvalidRequestError),
        (UnsupportedVersionError("v3 can't carry it"), UnsupportedVersionError),
    ],
)
def test_the_caller_of_an_unencodable_request_gets_an_error_and_the_connection_is_kept(
    error: Exception, kind: type[KafkaError]
) -> None:
    w = world()
    w.delays["b1:9092"] = 5.0
    other = w.engine.start(ask(w, "b1:9092", ListOffsetsRequest(), ListOffsetsResponse, 9.0))
    broken = w.engine.start(ask(w, "b1:9092", ListOffsetsRequest(), ListOffsetsResponse, 9.0))
    w.run(w.now + 0.1)
    connection = w.connection("b1:9092")
    assert connection is not None
    assert len(connection.in_flight) == 2
    newest = max(r.correlation_id for r in connection.in_flight._queue)
    w.engine.not_sent(connection.id, newest, error)
    w.run(w.now + 0.1)
    assert isinstance(broken.error, kind)
    assert not isinstance(broken.error, DisconnectedError)
    assert w.connection("b1:9092") is connection
    assert w.engine.network.states.state(parse("b1:9092")).failures == 0
    assert not other.done
    w.run(w.now + 6.0)
    other.result()


def test_an_encoding_error_of_an_unknown_request_or_connection_is_ignored() -> None:
    w = world()
    connection = w.connection("b1:9092")
    assert connection is not None
    w.engine.not_sent(connection.id, 4711, ValueError("x"))
    w.engine.not_sent(99, 0, ValueError("x"))
    w.run(w.now + 0.1)
    assert w.connection("b1:9092") is connection


def test_an_admin_call_that_cannot_be_encoded_raises_at_once() -> None:
    virtual = SimulatedWorld(seed=1)
    cluster = SimulatedCluster(virtual, brokers=3)
    admin = on_host(virtual.host("admin"), Admin, {"bootstrap.servers": cluster.bootstrap_servers})
    assert isinstance(admin._engine, AdminEngine)
    begin = virtual.now
    wrong: ApiCall[str, c.CreateTopicsResponse, None] = ApiCall(
        "the creation of topics",
        "topic",
        lambda left, ms: c.CreateTopicsRequest([c.CreatableTopic(t) for t in left], ms),
        c.CreateTopicsResponse,
        lambda answer: [(t.name, t.error_code, None, None) for t in answer.topics],
    )
    with pytest.raises(InvalidRequestError, match="can't be encoded"):
        admin._ask(by_any(wrong, ["\ud800"]), 10)  # `create_topics` would reject this name
    assert virtual.now - begin < 0.5
    assert admin.list_topics(timeout=5) == []
    assert "dial_failed" not in admin._engine.events.counts
