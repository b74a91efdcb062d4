"""Test the plaintext probe after a TLS handshake that ends without an alert.

The peer that answers the probe isn't authenticated, and may be a proxy without a broker.
"""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from tests.spec.world import ClusterPicture, World

from odradek.common.errors import (
    ConnectionFailedError,
    ConnectionRefusedByPeerError,
    KafkaError,
    PlaintextPortError,
    SaslNotExpectedError,
)
from odradek.network.connection import Connection
from odradek.network.effects import IncomingResponse, Open
from odradek.network.failures import ended_in_handshake
from odradek.simulation.world.host import SimulatedHost

USUAL = type(ended_in_handshake())
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


class Ending(SimulatedHost):
    """A simulated I/O host whose TLS handshakes fail; plaintext gets `words` or a real response."""

    words = b""
    ending: OSError = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.plain: set[int] = set()

    def _open(self, effect: Open) -> None:
        if effect.plain:
            self.plain.add(effect.connection)
        super()._open(effect)

    def link_connected(self, number: int) -> None:
        if number in self.plain:
            super().link_connected(number)
        elif number in self.links:
            self.links[number].close_by_client()
            self.link_lost(number, self.ending)

    def link_message(self, number: int, response: IncomingResponse) -> None:
        if self.words:
            self.link_bytes(number, [memoryview(self.words)])
        else:
            super().link_message(number, response)


class Proxy(World):
    """A server that ends TLS handshakes; in plaintext it sends `words` or acts as a broker."""

    host: Ending

    def __init__(
        self, words: bytes = b"", mode: str = "up", *, probe: bool = True, **settings: Any
    ) -> None:
        asked = {"security.protocol": "SSL", **settings}
        if probe:
            asked["security.protocol.probe.enable"] = "true"
        super().__init__({"bootstrap.servers": "front:9092", **asked}, hosts=Ending)
        self.modes["front:9092"] = mode
        self.pictures["*"] = ClusterPicture(brokers={1: "b1:9092"}, topics={"t": [1]})
        self.host.words = words
        self.ends: list[tuple[bool, KafkaError]] = []
        self.engine.network.on_lost.append(self._lost)

    @property
    def plain(self) -> set[int]:
        return self.host.plain

    def _lost(self, connection: Connection, error: KafkaError, failure: bool, now: float) -> None:
        self.ends.append((connection.id in self.plain, error))

    def go(self) -> None:
        """Request a topic's metadata for 8 s, and record how the connection attempts ended."""
        self.wait(self.engine.topic("t", 8.0), 8.0)


def test_the_error_for_an_interrupted_tls_handshake_names_possible_causes() -> None:
    """A port without TLS resets the connection, as it didn't read all bytes of the handshake."""
    proxy = Proxy(probe=False)
    proxy.host.ending = ConnectionResetError(104, "Connection reset by peer")
    proxy.go()
    assert len(proxy.ends) > 2
    for _, error in proxy.ends:
        assert type(error) is USUAL
        assert "the port doesn't speak TLS" in str(error)


LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize(
    "given", [{"security.protocol": "SSL"}, {"security.protocol": "SASL_SSL", **LOGIN}]
)
def test_no_plaintext_is_sent_unless_the_probe_is_enabled(given: dict[str, Any]) -> None:
    """A peer that ends TLS handshakes gets no plaintext; no error advises to disable TLS."""
    proxy = Proxy(probe=False, **given)
    proxy.go()
    assert proxy.plain == set()
    assert len(proxy.ends) > 2
    for _, error in proxy.ends:
        assert type(error) is USUAL
        assert "set security.protocol" not in str(error).lower()
    for kind in (PlaintextPortError, SaslNotExpectedError):
        assert "PLAINTEXT" not in kind.usual_cure


@pytest.mark.parametrize(
    "words",
    [HTTP, b"SSH-2.0-x\r\n" * 3, b"\x00\x00\x00\x09" + b"\xff" * 9],
    ids=["http", "ssh", "junk"],
)
def test_a_plaintext_response_of_another_protocol_than_kafka_is_ignored(words: bytes) -> None:
    proxy = Proxy(words)
    proxy.go()
    assert proxy.plain
    assert {type(error) for _, error in proxy.ends} == {USUAL}
    assert any(plain for plain, _ in proxy.ends)


def test_a_plaintext_broker_is_reported_and_its_features_are_ignored() -> None:
    proxy = Proxy()
    proxy.go()
    assert any(type(error) is PlaintextPortError for plain, error in proxy.ends if plain)
    assert proxy.engine.network.finalized == (-1, {})


def test_a_rebootstrap_required_error_in_plaintext_is_ignored() -> None:
    proxy = Proxy(mode="error_129")
    proxy.go()
    assert {type(error) for plain, error in proxy.ends if not plain} == {USUAL}
    assert {type(error) for plain, error in proxy.ends if plain} == {ConnectionFailedError}
    assert not proxy.kinds("rebootstrap")


def test_a_plaintext_port_is_reported_again_after_it_was_closed_meanwhile() -> None:
    """The port speaks plaintext, is closed, then speaks plaintext again."""
    world = Proxy()
    world.go()
    assert type(world.ends[-1][1]) is PlaintextPortError
    world.modes["front:9092"] = "refused"
    world.run(world.now + 20.0)
    assert any(type(error) is ConnectionRefusedByPeerError for _, error in world.ends)
    world.modes["front:9092"] = "up"
    before = len(world.ends)
    world.wait(world.engine.topic("t", world.now + 8.0), 8.0)
    later = [error for plain, error in world.ends[before:] if plain]
    assert any(type(error) is PlaintextPortError for error in later)
