"""Test reauthentication with a slow token server: which requests wait, and for how long."""

from __future__ import annotations

from typing import Any

from tests.spec.world import ClusterPicture, World

from odradek.common.types import Address, Rng
from odradek.network.sasl.mechanism import Conversation, WorkerCall
from odradek.network.sasl.renewal import LONGEST_CALL
from odradek.protocol.message import Message
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

FRONT = "front:9092"


class Tokens:
    """A SASL mechanism that gets its token from a slow function, run outside the engine."""

    name = "PLAIN"

    def __init__(self, world: SlowTokens) -> None:
        self._world = world

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        world = self._world
        world.calls.append(world.now)
        world.host.worker_delay = world.takes.pop(0) if world.takes else 0.0
        yield WorkerCall(bytes, ())
        yield b"token"

    def session_lifetime(self) -> float | None:
        return None


class SlowTokens(World):
    """Brokers with sessions of `lifetime` seconds; the n-th token call takes `takes[n]` seconds."""

    def __init__(self, lifetime: float, **config: Any) -> None:
        given = {
            "bootstrap.servers": FRONT,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        super().__init__({**given, **config})
        self.sasl = None  # the method `answer` simulates the brokers
        self.pictures["*"] = ClusterPicture(brokers={1: FRONT}, topics={"t": [1]})
        self.modes[FRONT] = "up"
        self.engine.network.mechanism = Tokens(self)
        self.lifetime = lifetime
        self.takes: list[float] = []
        self.calls: list[float] = []
        self.wait(self.engine.topic("t", 5.0), 5.0)

    def answer(self, address: str, body: Any) -> Message | None:
        if isinstance(body, SaslHandshakeRequest):
            return SaslHandshakeResponse(0, ["PLAIN"])
        if isinstance(body, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(session_lifetime_ms=int(self.lifetime * 1000))
        return None


def test_a_token_request_that_hangs_is_repeated_long_before_the_session_ends() -> None:
    w = SlowTokens(36_000.0, **{"connections.max.idle.ms": 10**9})
    w.takes = [1e9, 1e9]
    dials, before = len(w.dials), len(w.calls)
    w.run(36_000.0, lambda: bool(w.kinds("reauthenticated")))
    assert w.kinds("reauthenticated")
    first, second, third, *_ = w.calls[before:]
    assert LONGEST_CALL <= second - first <= LONGEST_CALL + 1.5
    assert LONGEST_CALL <= third - second <= LONGEST_CALL + 1.5
    assert w.now - third < 1.0
    assert len(w.dials) == dials


def test_a_connection_is_not_idle_while_requests_wait_for_reauthentication() -> None:
    w = SlowTokens(50.0, **{"connections.max.idle.ms": 25_000})
    w.run(20.0)
    network, connection = w.engine.network, w.connection(FRONT)
    assert connection is not None
    assert connection.session is not None
    w.takes = [27.0]
    fetch = network.send(connection, FetchRequest(max_wait_ms=2000), w.now, patience=40.0)
    behind = network.send(connection, MetadataRequest(topics=[]), w.now)
    w.run(46.0)
    assert fetch.done
    assert connection.session.held, "no token yet, though the idle timeout has passed"
    assert not connection.ended
    w.run(48.0, lambda: behind.done)
    assert behind.error is None
    w.run(80.0)
    assert connection.ended, "afterwards the idle timeout applies"
