"""Split the byte stream of one connection into frames (responses with a length prefix).

In: bytes that the I/O host (thread or event loop) wrote into the buffer from `get_buffer`. Out:
complete frames without their length prefix. Small responses share one scratch buffer; a large one
gets a separate buffer, in which its records can be decoded without a copy. Must not: allocate
memory for a length before bytes arrive. Until ApiVersions is answered, a frame has at most 1 MiB. A
memory mapping gets pages as bytes arrive; other buffers start with at most 16 MiB.
"""

from __future__ import annotations

from odradek.common.errors import (
    AnswerTooLargeError,
    MalformedMessageError,
    NotKafkaError,
    TlsPortError,
)
from odradek.network.frame_buffers import Buffer, FrameBuffers

SCRATCH = 65536
FIRST_LIMIT = 1 << 20


class FrameReader:
    """Splits the byte stream of one connection into frames."""

    def __init__(self, limit: int = FIRST_LIMIT, buffers: FrameBuffers | None = None) -> None:
        self.limit = limit
        self.buffers = buffers
        """Source of reused buffers for large responses; None: create a new buffer for each."""
        # Allocated on first use, because most connection attempts in an outage receive no byte.
        self._scratch = bytearray()
        self._start = 0  # start of the unread bytes in the scratch buffer
        self._filled = 0
        self._body: Buffer | None = None
        self._room = memoryview(b"")  # view that prevents reuse of the body's buffer
        self._expected = 0  # size of the body, if it has a separate buffer
        self._refused = False

    def allow(self, limit: int, buffers: FrameBuffers) -> None:
        """Allow responses of up to `limit` bytes; `buffers` provides memory for large ones."""
        self.limit, self.buffers = limit, buffers

    @property
    def received(self) -> int:
        """Number of unread bytes, which belong to an unfinished response."""
        return self._filled - self._start

    @property
    def amid(self) -> bool:
        """Whether a response has been received in part."""
        return self._body is not None or self.received > 0

    def get_buffer(self) -> memoryview:
        """Return a buffer of at least one byte for the next received bytes."""
        if self._body is not None:
            if self._filled == len(self._room):  # grow only once the buffer is full
                buffers = self.buffers or FrameBuffers()
                self._begin(buffers.grow(self._body, self._filled, self._expected))
            return self._room[self._filled :]
        if not self._scratch:
            self._scratch = bytearray(SCRATCH)
        return memoryview(self._scratch)[self._filled :]

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Note `count` bytes written into the buffer; return the frames that they complete."""
        if self._refused:  # the connection is being closed, so further bytes are ignored
            return []
        self._filled += count
        if self._body is not None:
            if self._filled < self._expected:
                return []
            frame, self._body, self._room = self._room, None, memoryview(b"")
            self._start = self._filled = 0
            return [frame]
        frames: list[memoryview] = []
        if not self._start and self._filled >= 4:
            length = self._filled - 4
            if length <= self.limit and length == int.from_bytes(self._scratch[:4], "big"):
                self._filled = 0  # usually the buffer contains exactly one small response
                frames.append(memoryview(bytes(memoryview(self._scratch)[4 : length + 4])))
                return frames
        while self._body is None and self._filled - self._start >= 4:
            if not self._cut(frames):
                break
        if self._start == self._filled and self._body is None:  # the usual case
            self._start = self._filled = 0
        elif self._body is None:
            self._compact()
        return frames

    def _cut(self, frames: list[memoryview]) -> bool:
        start = self._start
        length = int.from_bytes(self._scratch[start : start + 4], "big", signed=True)
        if not 0 <= length <= self.limit:
            head = bytes(self._scratch[start : min(start + 16, self._filled)])
            self._refused, self._start, self._filled = True, 0, 0
            raise self._refusal(head, length)
        have = self._filled - start - 4
        if have >= length:
            frames.append(memoryview(bytes(self._scratch[start + 4 : start + 4 + length])))
            self._start = start + 4 + length
            return True
        if length + 4 > SCRATCH:
            self._expected = length
            self._begin((self.buffers or FrameBuffers()).take(length))
            with memoryview(self._scratch) as scratch:
                self._room[:have] = scratch[start + 4 : self._filled]
            self._start, self._filled = 0, have
        return False

    def _begin(self, body: Buffer) -> None:
        self._body = body
        self._room = memoryview(body)[: self._expected]

    def _compact(self) -> None:
        left = self._filled - self._start
        if self._start and left:
            self._scratch[:left] = self._scratch[self._start : self._filled]
        self._start, self._filled = 0, left

    def _refusal(self, head: bytes, length: int) -> MalformedMessageError:
        if head.startswith((b"HTTP", b"<htm", b"<!DO")):
            return NotKafkaError("not Kafka: the peer speaks HTTP")
        if head[:2] in (b"\x15\x03", b"\x16\x03"):
            return TlsPortError("the peer speaks TLS, but this client plaintext")
        if head.startswith(b"SSH-"):
            return NotKafkaError("not Kafka: the peer speaks SSH")
        text = (
            f"a response has {length} bytes (limit {self.limit}), first bytes {head[:8].hex(' ')}"
        )
        if length > self.limit > FIRST_LIMIT:  # only brokers answer ApiVersions
            return AnswerTooLargeError(text, length)
        return MalformedMessageError(text)
