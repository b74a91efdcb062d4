"""A minimal client for tests: it connects, sends single requests and keeps the responses."""

from __future__ import annotations

from typing import Any

from tests.answers import decode_response

from odradek.network.effects import IncomingResponse, OutgoingRequest
from odradek.network.frame import FrameReader
from odradek.protocol.headers import peek_correlation_id
from odradek.protocol.message import Message
from odradek.simulation import LinkProfile, World
from odradek.simulation.world.link import Link, Mode, Watcher


class RawClient:
    """The client's end of one simulated connection (a `Link`)."""

    def __init__(
        self, world: World, mode: Mode = "bytes", profile: LinkProfile | None = None
    ) -> None:
        self.name = "raw"
        self.mode = mode
        self.world = world
        self.connected = False
        self.lost: list[object] = []
        self.answers: list[tuple[float, Message]] = []
        self.deliveries: list[int] = []
        self._asked: dict[int, tuple[Any, int]] = {}
        self._reader = FrameReader()
        self._next = 0
        self.profile = profile or world.link
        self.watcher: Watcher | None = None
        self.link = Link(world.time, self, 1, world.rng("link"), world.rng("pieces"))

    def dial(self, host: str, port: int = 9092) -> None:
        self.link.dial(lambda peer: self.world.dialled(peer, host, port))
        self.world.run_while(lambda: not self.connected and not self.lost, 3.0)

    def send(self, body: Any, version: int) -> None:
        self._asked[self._next] = (type(body), version)
        self.link.send(OutgoingRequest(body, version, self._next, "raw"))
        self._next += 1

    def ask(self, body: Any, version: int, wait: float = 1.0) -> Any:
        """Send a request and return its response, or None if it doesn't arrive within `wait`."""
        before = len(self.answers)
        self.send(body, version)
        self.world.run_while(lambda: len(self.answers) == before and not self.lost, wait)
        return self.answers[before][1] if len(self.answers) > before else None

    def link_connected(self, number: int) -> None:
        self.connected = True

    def link_lost(self, number: int, error: BaseException | str | None) -> None:
        self.lost.append(error)

    def link_bytes(self, number: int, pieces: list[memoryview]) -> None:
        self.deliveries.append(len(pieces))
        for piece in pieces:
            self._reader.get_buffer()[: len(piece)] = piece
            for frame in self._reader.buffer_updated(len(piece)):
                kind, version = self._asked[peek_correlation_id(frame)]
                self.answers.append((self.world.now, decode_response(kind, version, frame)[1]))

    def link_message(self, number: int, response: IncomingResponse) -> None:
        self.answers.append((self.world.now, response.message))
