"""Test single connections: bytes, versions, missing responses, and lost connections."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.spec.world import ClusterPicture, World, parse

from odradek.common.errors import DisconnectedError, MalformedMessageError
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.network.connection import COORDINATOR, DATA, LEAST_BYTES, Connection
from odradek.network.connection_limiter import MAX_PENDING
from odradek.network.effects import IncomingResponse
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation.world.host import SimulatedHost
from odradek.simulation.world.link import Link


class Pieces(SimulatedHost):
    """A simulated I/O host that passes received bytes to the engine in pieces of `piece` bytes."""

    piece = 7

    def link_bytes(self, number: int, pieces: list[memoryview]) -> None:
        data = memoryview(b"".join(pieces))
        size = self.piece
        super().link_bytes(number, [data[n : n + size] for n in range(0, len(data), size)])


class ByteWorld(World):
    """Simulated brokers whose responses arrive as bytes in pieces instead of as messages."""

    host: Pieces

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config, hosts=Pieces, mode="bytes")


def world(kind: type[World] = World, **config: Any) -> World:
    made = kind({"bootstrap.servers": "front:9092", **config})
    made.modes.update({"front:9092": "up", "b1:9092": "up"})
    made.pictures["*"] = ClusterPicture(brokers={1: "b1:9092"}, topics={"t": [1]})
    return made


def connected(kind: type[World] = World, **config: Any) -> tuple[World, Connection]:
    """Return simulated brokers of which broker 1 has answered, and the connection to broker 1."""
    made = world(kind, **config)
    ask(made).result()
    return made, connection_of(made)


def links(w: World) -> dict[int, Link]:
    assert isinstance(w.host, SimulatedHost)
    return w.host.links


def connection_of(w: World) -> Connection:
    found = w.connection("b1:9092")
    assert found is not None
    return found


def post(w: World, action: Callable[[float], object]) -> None:
    w.engine.post(lambda now: (action(now), None)[1])


def list_offsets(w: World, timeout: float) -> Any:
    request = ListOffsetsRequest()
    return w.engine.ask(parse("b1:9092"), request, ListOffsetsResponse, w.now + timeout)


def ask(w: World, timeout: float = 5.0) -> Any:
    return w.wait(list_offsets(w, timeout), timeout + 1)


@pytest.mark.parametrize("piece", [1, 7, 100000])
def test_responses_as_split_bytes_and_as_messages_cause_the_same_events(piece: int) -> None:
    w = world()
    b = world(ByteWorld)
    assert isinstance(b, ByteWorld)
    b.host.piece = piece
    for each in (w, b):
        each.wait(each.engine.topic("t", 9.0), 9.0).result()
        ask(each).result()
    assert [(e.at, str(e)) for e in w.events] == [(e.at, str(e)) for e in b.events]


def test_bytes_that_are_not_kafka_end_the_connection_and_its_requests() -> None:
    w, connection = connected(ByteWorld)
    w.delays["b1:9092"] = 3.0
    lost = w.engine.start(list_offsets(w, 9.0))
    w.run(w.now + 0.1)
    w.engine.get_buffer(connection.id)[:8] = b"HTTP/1.1"
    w.engine.buffer_updated(connection.id, 8)
    w.run(w.now + 0.01)
    assert isinstance(lost.error, DisconnectedError)
    assert "HTTP" in str(lost.error)
    assert w.engine.network.states.state(parse("b1:9092")).failures == 1
    assert connection.id not in links(w)


def test_a_response_with_the_wrong_correlation_id_is_malformed() -> None:
    w, connection = connected()
    w.engine.received(connection.id, IncomingResponse(4711, ListOffsetsResponse()))
    w.run(w.now + 0.01)
    assert w.connection("b1:9092") is None
    error = w.engine.network.states.state(parse("b1:9092")).last_error
    assert isinstance(error, MalformedMessageError)
    assert "4711" in str(error)


def test_events_of_a_connection_that_has_ended_are_ignored() -> None:
    w, connection = connected()
    w.engine.network.close(connection, w.now, "test")
    w.engine.get_buffer(connection.id)[:3] = b"abc"
    w.engine.buffer_updated(connection.id, 3)
    w.engine.received(connection.id, IncomingResponse(0, ListOffsetsResponse()))
    w.engine.disconnected(connection.id, "late")
    w.engine.connected(connection.id)
    w.engine.writable(connection.id, True)
    w.engine.resolved(99, ["1"])
    w.run(w.now + 1)
    assert w.engine.ended is None


def test_the_late_response_to_a_cancelled_call_keeps_the_connection() -> None:
    w, _ = connected()
    w.delays["b1:9092"] = 1.0
    call = w.engine.start(list_offsets(w, 9))
    w.run(w.now + 0.1)
    w.engine.cancel(call, DisconnectedError("not wanted any more"))
    w.run(w.now + 2)
    assert isinstance(call.error, DisconnectedError)
    w.delays.clear()
    assert isinstance(ask(w).result(), ListOffsetsResponse)
    assert len([d for d in w.dials if d.address == "b1:9092"]) == 1


def test_a_call_with_a_short_timeout_does_not_close_the_connection() -> None:
    w, _ = connected()
    w.delays["b1:9092"] = 1.0
    assert ask(w, timeout=0.3).error is not None
    w.run(w.now + 2)
    assert len([d for d in w.dials if d.address == "b1:9092"]) == 1
    assert w.engine.network.states.state(parse("b1:9092")).failures == 0


@pytest.mark.parametrize("piece", [LEAST_BYTES // 2, 1])
def test_a_slow_response_keeps_its_connection_only_above_the_minimum_byte_rate(piece: int) -> None:
    """R-TI-1: bytes of the response arrive every 0.9 s."""
    w, connection = connected(ByteWorld, **{"request.timeout.ms": 5000})
    w.delays["b1:9092"] = 1e6
    call = w.engine.start(list_offsets(w, 60))
    w.run(w.now + 0.01)
    waits = connection.in_flight.head
    assert waits is not None
    head = (30_000).to_bytes(4, "big") + waits.correlation_id.to_bytes(4, "big")
    sent = 0
    for _ in range(20):
        piece_now = (head + bytes(30_000))[sent : sent + piece]
        w.engine.get_buffer(connection.id)[:piece] = piece_now
        w.engine.buffer_updated(connection.id, piece)
        sent += piece
        w.run(w.now + 0.9)
        if connection.ended:
            break
        assert piece == 1 or not connection.suspect
    assert connection.ended == (piece == 1)
    w.run(w.now + 2.1)
    assert (
        connection.suspect or connection.ended
    )  # no more bytes arrive, and the response is overdue
    w.run(w.now + 1.0)
    assert isinstance(call.error, DisconnectedError)


def test_the_response_timeout_of_a_request_starts_after_a_throttle_ends() -> None:
    """R-TI-1: some requests, such as a reauthentication, are sent during a throttle."""
    w, connection = connected()
    w.delays["b1:9092"] = 30.0
    start = w.now
    connection.throttle(start + 10.0, start)
    post(w, lambda now: w.engine.network.send(connection, ListOffsetsRequest(), now))
    w.run(start + 11.9)
    assert not connection.suspect
    w.run(start + 12.1)
    assert connection.suspect


def test_the_wait_time_of_a_long_poll_extends_the_time_until_a_connection_is_suspect() -> None:
    w, connection = connected()
    w.delays["b1:9092"] = 30.0
    post(w, lambda now: w.engine.network.send(connection, ListOffsetsRequest(), now, patience=3.0))
    start = w.now
    w.run(start + 4.9)
    assert not connection.suspect
    w.run(start + 5.1)
    assert connection.suspect


def test_connections_for_different_purposes_are_separate_but_share_a_backoff() -> None:
    w, _ = connected()
    network, address = w.engine.network, parse("b1:9092")
    post(w, lambda now: network.ready(address, now, purpose=COORDINATOR))
    w.run(w.now + 1)
    data, coordinator = (network.connection(address, p) for p in (DATA, COORDINATOR))
    assert data is not None
    assert coordinator is not None
    assert data is not coordinator
    w.cut("b1:9092", error="reset")
    w.run(w.now + 0.001)
    assert network.states.state(address).failures == 2


def test_a_connection_with_a_full_send_buffer_is_not_used_until_the_buffer_drains() -> None:
    w, connection = connected()
    w.engine.writable(connection.id, False)
    call = w.engine.start(list_offsets(w, 9))
    steps = w.steps
    w.run(w.now + 2)
    assert not call.done
    assert w.steps - steps < 10
    w.engine.writable(connection.id, True)
    w.run(w.now + 0.1)
    assert call.done


def test_an_api_that_the_broker_lacks_raises_unsupported_version() -> None:
    w, connection = connected()
    connection.versions.pop(MetadataRequest.API_KEY)
    with pytest.raises(UnsupportedVersionError, match="b1:9092"):
        w.engine.network.version_for(connection, MetadataRequest)


def test_shutdown_closes_connections_and_pending_attempts() -> None:
    w, _ = connected()
    w.modes["b2:9092"] = "black_hole"
    post(w, lambda now: w.engine.network.ready(parse("b2:9092"), now))
    w.run(w.now + 0.1)
    assert len(links(w)) == 2
    w.engine.shut()
    w.run(w.now + 0.1)
    assert not links(w)
    assert not w.engine.network.connections
    assert w.engine.step(w.now + 100) is None


def test_the_oldest_connection_attempt_that_hangs_is_closed_for_a_new_attempt() -> None:
    w = world()
    network = w.engine.network
    addresses = [f"hangs{n}:9092" for n in range(MAX_PENDING)]
    for n, address in enumerate(addresses):
        w.modes[address] = "black_hole"
        w.run(0.01 * (n + 1))
        network.dial(parse(address), w.now)
        w.step()
    w.run(5.0)
    assert network.dials.pending == MAX_PENDING
    assert all(w.connection(a) is not None for a in addresses)
    network.make_room(w.now)
    left = [a for a in addresses if w.connection(a) is not None]
    assert left == addresses[1:]
