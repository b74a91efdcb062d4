"""Reuse receive buffers of large responses once no memoryview refers to them.

In: the size of a response, from `network/frame`. Out: a buffer of at least that size that isn't in
use. Buffers aren't returned explicitly: a buffer is free when no view of it exists, so an object
with a view (records that aren't decoded yet, columns that share the response's memory) keeps its
buffer. Must not: wait for a free buffer, or keep more than `limit` bytes.

Writing into pages that the kernel has just allocated costs ten times as much as writing into used
memory, and a consumer at full speed receives more than a gigabyte per second. If the kernel
allocates pages as they are written to, a large buffer is a memory mapping: it costs nothing before
bytes arrive, and no event loop is blocked for 25 ms to fill 50 MiB with zeros.
"""

from __future__ import annotations

import mmap
import sys

STEP = 16 << 20
"""Initial size of a buffer that isn't a memory mapping.

The buffer grows as bytes arrive; later responses of that size get a full buffer at once.
"""
MAPPED = 1 << 20
"""Minimum size of a memory mapping; creating one takes a system call and whole pages."""
MAPS = sys.platform == "linux"
Buffer = bytearray | mmap.mmap
_SMALLEST_GRAIN = 1 << 12


def size_class(size: int) -> int:
    """Round a size up by at most a quarter, so that responses of similar size share buffers."""
    grain = max(_SMALLEST_GRAIN, 1 << size.bit_length() >> 3)
    return -(-size // grain) * grain


class FrameBuffers:
    """The receive buffers of one client; only the thread that runs its engine uses them."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        """Maximum total bytes of kept buffers, in use or free; only kept buffers are reused."""
        self.kept = 0
        self.made = 0
        """Number of buffers created so far; in a steady state it doesn't grow."""
        self.reused = 0
        self._believed = STEP
        self._buffers: list[Buffer] = []  # the last one was used most recently

    def __repr__(self) -> str:
        return (
            f"<FrameBuffers: {self.kept} of {self.limit} bytes kept, {self.free} free, "
            f"{self.made} made, {self.reused} reused>"
        )

    def allow(self, limit: int) -> None:
        """Set the maximum total bytes of all kept buffers."""
        self.limit = limit

    def take(self, size: int) -> Buffer:
        """Return a free buffer of at least `size` bytes, or a new buffer.

        A new buffer may be smaller: call `grow` when it is full. The caller must hold a view of
        this buffer before it takes another one.
        """
        found = -1
        buffers = self._buffers
        for i, buffer in enumerate(buffers):
            better = found < 0 or len(buffer) <= len(buffers[found])
            if len(buffer) >= size and better and _is_free(buffer):
                found = i
        if found >= 0:
            buffer = buffers.pop(found)
            buffers.append(buffer)
            self.reused += 1
            return buffer
        wanted = size_class(size)
        mapped = _mapped(wanted)
        return self._keep(bytearray(min(wanted, self._believed)) if mapped is None else mapped)

    def grow(self, old: Buffer, filled: int, size: int) -> Buffer:
        """Return a larger buffer, with the first `filled` bytes copied, for `size` bytes in all."""
        self._believed = max(self._believed, min(size_class(size), 2 * filled))
        new = self.take(size)
        new[:filled] = memoryview(old)[:filled]
        return new

    def _keep(self, buffer: Buffer) -> Buffer:
        size = len(buffer)
        self.made += 1
        if size > self.limit:
            return buffer
        self.kept += size
        while self.kept > self.limit:
            self.kept -= len(self._buffers.pop(self._least_useful()))
        self._buffers.append(buffer)
        return buffer

    def _least_useful(self) -> int:
        """Return the index of the buffer to drop: the smallest free one, else the oldest one."""
        free = [i for i, buffer in enumerate(self._buffers) if _is_free(buffer)]
        return min(free, key=lambda i: len(self._buffers[i]), default=0)

    @property
    def free(self) -> int:
        """Number of kept buffers of which no view exists."""
        return sum(map(_is_free, self._buffers))


def _mapped(size: int) -> mmap.mmap | None:
    """Return a memory mapping, whose pages are allocated when written to; None if impossible."""
    if size < MAPPED or not MAPS:
        return None
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # The process's address space is limited, but a growing bytearray may still be possible.
    except (OSError, ValueError):
        return None


def _is_free(buffer: Buffer) -> bool:
    """Return whether no view of a buffer exists: a buffer with a view can't be resized."""
    try:
        if isinstance(buffer, mmap.mmap):
            buffer.resize(len(buffer))
        else:
            buffer.pop()
            buffer.append(0)
    except BufferError:
        return False
    return True
