"""Simulate connections: latency, jitter, bandwidth, resets and black holes.

In: a client's requests and a broker's responses. Out: the same frames on the other side, later and
in order, or never. In byte mode frames are bytes, which reach the engine cut at random positions,
also together with the beginning of the next frame; in message mode objects are passed. Frames are
complete at the same times in both modes, so the engine behaves in the same way. Must not look into
the content of frames.
"""

from __future__ import annotations

import errno
import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from odradek.common.types import Address
from odradek.network.effects import IncomingResponse, OutgoingRequest
from odradek.protocol.headers import encode_response
from odradek.protocol.message import Message
from odradek.simulation.world.environment import (
    Peer,
    ReceivedRequest,
    Session,
    Verdict,
    read_request,
)
from odradek.simulation.world.virtual_time import VirtualTime

Mode = Literal["bytes", "messages"]

PROGRESS = 0.2
"""Interval in seconds at which a link with little bandwidth delivers parts of a frame (byte
mode)."""
DRIP = 0.1
"""Interval in seconds at which a faster trickle delivers several bytes at a time."""
MAX_PIECES = 6
LOOK_AHEAD = 64
STRANDED = 1.0
"""Seconds after delayed requests have arrived until the broker notices the connection's end."""


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """Behaviour of a connection: seconds, bytes per second, and probabilities for each frame."""

    latency: float = 0.0005
    """One-way latency in seconds."""
    jitter: float = 0.0002
    """Maximum additional latency, drawn for each frame."""
    bandwidth: float | None = None
    """Bytes per second in each direction; byte mode only."""
    loss: float = 0.0
    """Probability that a frame is lost and resets the connection."""
    no_descriptors: bool = False
    """Whether the client's machine has no descriptors for sockets and name lookups."""
    no_memory: bool = False
    """Whether the client has no memory for responses, so that their connections are closed."""


class Watcher(Protocol):
    """Observes the traffic between one client and its brokers, for checkers."""

    def opened(self, number: int, address: Address, ip: str) -> None:
        """Note that the client attempts to connect to an address."""

    def connected(self, number: int) -> None:
        """Note that the broker accepted the connection attempt."""

    def sent(self, number: int, request: OutgoingRequest) -> None:
        """Note that the client sends a request."""

    def answered(self, number: int, correlation_id: int, throttle: float = 0.0) -> None:
        """Note that the client gets a response, which throttles it for `throttle` seconds."""

    def came(self, number: int, size: int) -> None:
        """Note that the client gets bytes of an unfinished response."""

    def ended(self, number: int) -> None:
        """Note that the client lost or closed the connection."""


class ClientEnd(Protocol):
    """A client's I/O host, as far as a link uses it."""

    name: str
    mode: Mode
    profile: LinkProfile
    watcher: Watcher | None

    def link_connected(self, number: int) -> None: ...
    def link_lost(self, number: int, error: BaseException | str | None) -> None: ...
    def link_bytes(self, number: int, pieces: list[memoryview]) -> None: ...
    def link_message(self, number: int, response: IncomingResponse) -> None: ...


def no_descriptor() -> OSError:
    """Return the operating system's error for a machine without free descriptors."""
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _reset() -> ConnectionResetError:
    """Return the kernel's error for a reset connection."""
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


Payload = bytes | IncomingResponse | None
"""A frame as bytes, a response as an object, or the end of the connection (None)."""


class Link:
    """One connection, from the attempt to its end; brokers use it as their `Peer`."""

    __slots__ = (
        "_ahead",
        "_both",
        "_down",
        "_down_at",
        "_end",
        "_every",
        "_held",
        "_late",
        "_loss_error",
        "_number",
        "_pieces",
        "_rng",
        "_session",
        "_stuck",
        "_throttles",
        "_time",
        "_up_at",
        "client",
        "ended",
        "held",
        "opened",
    )

    def __init__(
        self,
        time: VirtualTime,
        end: ClientEnd,
        number: int,
        rng: random.Random,
        pieces: random.Random,
    ) -> None:
        self._time = time
        self._end = end
        self._number = number
        self._rng = rng
        # a separate generator, so that both modes draw the same latencies
        self._pieces = pieces
        self._session: Session | None = None
        self._throttles: dict[int, float] = {}
        self._up_at = self._down_at = 0.0
        self._down: deque[Payload] = deque()
        self._ahead = 0  # number of bytes of the next frame that were already delivered
        self._held: list[Callable[[], None]] = []
        self._every, self._both = 0.0, False  # seconds per byte of a trickling response
        self._stuck = 0  # number of responses that the trickle fault holds back
        # requests that are to arrive after those of the next connection
        self._late: list[Callable[[], None]] | None = None
        self._loss_error: BaseException | None = None
        self.client = end.name
        self.opened = False
        self.ended = False
        self.held = False

    # Connecting

    def dial(self, find: Callable[[Peer], Session | Verdict]) -> None:
        """Try to connect; the client gets the outcome after one round trip."""
        self._time.after(self._delay() + self._delay(), partial(self._dialled, find))

    def _dialled(self, find: Callable[[Peer], Session | Verdict]) -> None:
        if self.ended:
            return
        if self._end.profile.no_descriptors:
            self.ended = True
            self._end.link_lost(self._number, no_descriptor())
            return
        result = find(self)
        if result is Verdict.REFUSED:
            self.ended = True
            self._end.link_lost(self._number, "refused")
        elif not isinstance(result, Verdict):
            self._session = result
            self.opened = True
            if not self.ended:
                self._end.link_connected(self._number)

    def _delay(self) -> float:
        profile = self._end.profile
        return profile.latency + (profile.jitter * self._rng.random() if profile.jitter else 0.0)

    # Methods for the client

    def send(self, request: OutgoingRequest) -> None:
        """Deliver a request to the broker after its latency."""
        if self.ended:
            return
        if self._end.mode == "bytes":
            self.send_frame(b"".join(request.encode()))
            return
        received = ReceivedRequest(
            request.body.API_KEY,
            request.version,
            request.correlation_id,
            request.client_id,
            request.body,
        )
        self._up(received, self._delay())

    def send_frame(self, frame: bytes) -> None:
        """Deliver an encoded request, which begins after the frame's length."""
        if self.ended:
            return
        delay = self._delay()
        if self._end.profile.bandwidth:
            delay += len(frame) / self._end.profile.bandwidth
        self._up(read_request(memoryview(frame)[4:]), delay)

    def _up(self, received: ReceivedRequest, delay: float) -> None:
        if self._lost():
            return
        self._up_at = max(self._up_at, self._time.now + delay)
        self._time.at(self._up_at, lambda: self._arrived_up(received))

    def close_by_client(self) -> None:
        """Close from the client's side: drop responses on the way, and notify the broker later."""
        if self.ended:
            return
        self.ended = True
        self._down.clear()
        session = self._session
        if session is not None:
            self._up_at = max(self._up_at, self._time.now + self._delay())
            self._time.at(self._up_at, partial(self._closed_up, session))

    def _arrived_up(self, request: ReceivedRequest) -> None:
        if self._late is not None:
            self._late.append(lambda: self._arrived_up(request))
        elif self.held or self._both:
            self._held.append(lambda: self._arrived_up(request))
        elif self._session is not None:
            self._session.receive(request)

    def _closed_up(self, session: Session) -> None:
        if self._late is not None:
            return  # `_washed_up` will close the session
        if self.held or self._both:
            self._held.append(session.left)
        else:
            session.left()

    # Methods for the broker

    def respond(self, request: ReceivedRequest, response: Message, version: int) -> None:
        """Deliver a response to the client."""
        if self.ended:
            return
        delay = self._delay()
        payload: Payload
        throttle: int = getattr(response, "throttle_time_ms", 0)
        if throttle:
            self._throttles[request.correlation_id] = throttle / 1000.0
        if self._end.mode == "bytes":
            payload = b"".join(encode_response(response, version, request.correlation_id))
            if self._end.profile.bandwidth:
                delay += self._slowly(len(payload))
        else:
            payload = IncomingResponse(request.correlation_id, response)
        if not self._lost():
            self._down_later(payload, delay)

    def failed(self, request: ReceivedRequest, error: Exception) -> None:
        """Raise the error: a broker must be able to answer every request of Odradek's clients."""
        raise error

    def close(self, *, reset: bool) -> None:
        """Close from the broker's side: the client is notified after the last response."""
        if not self.ended:
            self._loss_error = _reset() if reset else None
            self._session = None
            for _ in range(self._stuck):  # the kernel drops unsent responses
                self._down.popleft()
            self._every, self._stuck = 0.0, 0
            self._down_later(None, self._delay())

    def hold(self, on: bool) -> None:
        """Hold back arriving bytes (black hole), or deliver them late, as TCP retransmits them."""
        self.held = on
        if not on:
            self._let_go()

    def _let_go(self) -> None:
        kept, self._held = self._held, []
        for action in kept:
            action()

    def trickle(self, seconds: float, *, both: bool = False) -> None:
        """Deliver one response byte every `seconds`, and never the last byte; 0 ends the fault."""
        self._every, self._both = seconds, both
        if not seconds:
            stuck, self._stuck = self._stuck, 0
            for _ in range(stuck):
                self._arrived_down()
            if not self.held:
                self._let_go()

    def _drip(self) -> None:
        if self.ended or not self._stuck:
            return
        frame = self._down[0]
        count = max(1, round(DRIP / self._every)) if self._every else 1
        if isinstance(frame, bytes) and self._ahead + 1 < len(frame) and not self.held:
            self._deliver(frame, min(self._ahead + count, len(frame) - 1))
        self._time.after(count * self._every, self._drip)

    def strand(self, seconds: float, arrived: ReceivedRequest | None = None) -> None:
        """Hold back the client's bytes, reset its connection later, and then deliver the bytes."""
        if self._late is None and not self.ended:
            self._late = [lambda: self._arrived_up(arrived)] if arrived is not None else []
            self._time.after(seconds, lambda: self._break(seconds))

    def _break(self, seconds: float) -> None:
        if not self.ended:
            self.ended = True
            self._end.link_lost(self._number, _reset())
        self._time.after(seconds, self._washed_up)

    def _washed_up(self) -> None:
        kept, self._late = self._late or [], None
        session = self._session
        for action in kept:
            action()
        if session is not None:
            self._time.after(STRANDED, session.closed)

    def _down_later(self, payload: Payload, delay: float) -> None:
        self._down.append(payload)
        self._down_at = max(self._down_at, self._time.now + delay)
        self._time.at(self._down_at, self._arrived_down)

    def _arrived_down(self) -> None:
        if self.ended:
            return
        if self.held:
            self._held.append(self._arrived_down)
            return
        if self._every:
            self._stuck += 1
            if self._stuck == 1:
                self._time.after(self._every, self._drip)
            return
        payload = self._down.popleft()
        if payload is not None and self._end.profile.no_memory:
            self.close_by_client()
            self._end.link_lost(self._number, MemoryError())
            return
        if payload is None:
            self.ended = True
            self._end.link_lost(self._number, self._loss_error)
            return
        watcher = self._end.watcher
        if isinstance(payload, bytes):
            number = int.from_bytes(payload[4:8])
        else:
            number = payload.correlation_id
        if watcher is not None:
            watcher.answered(self._number, number, self._throttles.pop(number, 0.0))
        if isinstance(payload, bytes):
            self._end.link_bytes(self._number, self._cut(payload))
        else:
            self._end.link_message(self._number, payload)

    def _lost(self) -> bool:
        if not self._end.profile.loss or self._rng.random() >= self._end.profile.loss:
            return False
        session, self._session = self._session, None
        self._loss_error = _reset()
        if session is not None:
            session.closed()
        self._down_later(None, self._delay())
        return True

    # Cutting bytes (byte mode)

    def _cut(self, frame: bytes) -> list[memoryview]:
        """Cut the rest of this frame into random pieces, perhaps with the start of the next one."""
        view = memoryview(frame)[self._ahead :]
        self._ahead = 0
        rng = self._pieces
        following = self._down[0] if self._down else None
        if isinstance(following, bytes) and rng.random() < 0.5:
            self._ahead = rng.randrange(1, min(len(following), LOOK_AHEAD))
            view = memoryview(bytes(view) + following[: self._ahead])
        pieces = []
        for _ in range(rng.randrange(MAX_PIECES)):
            if len(view) < 2:
                break
            # Usually short pieces: cuts within the length and the header are the likeliest to find
            # bugs.
            most = min(len(view), 9) if rng.random() < 0.7 else len(view)
            size = rng.randrange(1, most)
            pieces.append(view[:size])
            view = view[size:]
        pieces.append(view)
        return pieces

    def _slowly(self, size: int) -> float:
        """Deliver parts of a large frame early, so that the engine sees slow progress."""
        seconds = size / (self._end.profile.bandwidth or 1.0)
        begin = max(self._down_at, self._time.now)
        parts = int(seconds / PROGRESS)
        for i in range(1, parts + 1):
            share = int(size * i * PROGRESS / seconds)
            if share < size:
                self._time.at(begin + i * PROGRESS, partial(self._progress, share))
        return begin - self._time.now + seconds

    def _progress(self, share: int) -> None:
        frame = self._down[0] if self._down else None
        if self.ended or self.held or not isinstance(frame, bytes) or share <= self._ahead:
            return
        if share < len(frame):
            self._deliver(frame, share)

    def _deliver(self, frame: bytes, end: int) -> None:
        """Deliver the bytes of a frame up to index `end`, which is before the frame's end."""
        piece = memoryview(frame)[self._ahead : end]
        self._ahead = end
        if self._end.watcher is not None:
            self._end.watcher.came(self._number, len(piece))
        self._end.link_bytes(self._number, [piece])
