"""Simulated sockets for `Transport`, and the set of them that an event loop watches.

In: bytes that a client writes; bytes that a link delivers. Out: complete frames for the link;
level-triggered readiness, as the kernel reports it to an event loop. Closed descriptors are reused
at once, the lowest first, as by the kernel. Must not: know asyncio's hosts.
"""

from __future__ import annotations

import errno
import os
import random
from asyncio import Handle
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

FIRST = 1000
"""Lowest descriptor, which no real file of the process has."""
LENGTH = 4
"""Size in bytes of the length before each frame."""


class RemoteEnd(Protocol):
    """The remote end of a connection, with the methods that a socket calls."""

    def dial(self, ip: str, port: int) -> None:
        """Start to connect."""

    def frame(self, frame: bytes) -> None:
        """Send one request, including its length prefix."""

    def hang_up(self) -> None:
        """Note that the client has closed the socket."""


class Moods:
    """Random sizes of a simulated kernel's partial reads and writes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def takes(self, offered: int) -> int:
        """Return how many of the offered bytes a write accepts."""
        draw = self._rng.random()
        if draw < 0.2:
            return 0
        return offered if draw < 0.6 else self._rng.randrange(offered)

    def gives(self, held: int) -> int:
        """Return how many of the buffered bytes a read returns."""
        return held if self._rng.random() < 0.5 else self._rng.randrange(1, held + 1)

    def again(self) -> float:
        """Return after how many seconds the socket becomes writable again."""
        return self._rng.random() ** 4 * 0.05


class Later(Protocol):
    """Function that schedules an action after some seconds."""

    def __call__(self, seconds: float, action: Callable[[], object], /) -> object: ...


class Files:
    """Open sockets of one event loop, and the callbacks that watch them."""

    def __init__(self) -> None:
        self._open: dict[int, VirtualSocket] = {}
        self._readers: dict[int, Handle] = {}
        self._writers: dict[int, Handle] = {}
        self._serial = 0

    def opened(self, sock: VirtualSocket) -> int:
        """Return the lowest free descriptor for a new socket."""
        number = FIRST
        while number in self._open:
            number += 1
        self._open[number] = sock
        return number

    def closed(self, number: int) -> None:
        """Free a descriptor; raise `AssertionError` if a loop still watches it."""
        if number in self._readers or number in self._writers:
            raise AssertionError(f"descriptor {number} was closed while a loop watches it")
        del self._open[number]

    def moment(self) -> int:
        """Return the next serial number, by which socket events are ordered."""
        self._serial += 1
        return self._serial

    def __contains__(self, number: object) -> bool:
        return number in self._open

    def watch(self, number: int, handle: Handle, *, read: bool) -> None:
        """Call the handle whenever the descriptor is ready; replaces an earlier handle."""
        if number not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        watched = self._readers if read else self._writers
        before = watched.pop(number, None)
        if before is not None:
            before.cancel()
        watched[number] = handle

    def unwatch(self, number: int, *, read: bool) -> bool:
        """Stop watching a descriptor and cancel its callback; return whether it was watched."""
        handle = (self._readers if read else self._writers).pop(number, None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    def ready(self) -> list[Handle]:
        """Return the callbacks of sockets that are ready now, in the order of their events."""
        found: list[tuple[int, bool, Handle]] = []
        for number, handle in self._readers.items():
            if (sock := self._open[number]).readable:
                found.append((sock.stamp, False, handle))
        for number, handle in self._writers.items():
            if (sock := self._open[number]).writable:
                found.append((sock.stamp, True, handle))
        return [handle for _, _, handle in sorted(found, key=lambda entry: entry[:2])]

    @property
    def any_ready(self) -> bool:
        """Whether any watched socket is ready."""
        return any(self._open[n].readable for n in self._readers) or any(
            self._open[n].writable for n in self._writers
        )


class VirtualSocket:
    """Client end of a simulated TCP connection, with the methods that `Transport` uses."""

    def __init__(
        self, files: Files, line: RemoteEnd, moods: Moods | None = None, later: Later | None = None
    ) -> None:
        self.stamp = 0
        self._files = files
        self._line = line
        self._moods = moods
        self._later = later
        self._number = files.opened(self)
        self._up = False
        self._error: OSError | None = None
        self._ended = False
        self._end: OSError | MemoryError | None = None
        """The error with which the connection ended; None after an orderly close."""
        self._came: deque[memoryview] = deque()
        self._goes = bytearray()
        self._full = self._choked = False
        self._closed = False

    # Methods that the event loop calls

    @property
    def readable(self) -> bool:
        """Whether a read would return bytes, or the end of the stream."""
        return bool(self._came) or self._ended or self._error is not None

    @property
    def writable(self) -> bool:
        """Whether a write would succeed or fail at once.

        A peer that has closed only its sending direction still reads.
        """
        failed = self._end is not None or self._error is not None
        return failed or (self._up and not self._full)

    # Methods that the simulated connection calls

    def connected(self) -> None:
        """Note that the connection attempt was accepted."""
        self._up = True
        self._happened()

    def arrived(self, pieces: Sequence[memoryview]) -> None:
        """Note that bytes have arrived."""
        self._came.extend(piece for piece in pieces if piece)
        self._happened()

    def lost(self, error: BaseException | str | None) -> None:
        """Note that the connection attempt failed, or the connection ended."""
        found: OSError | MemoryError | None = None
        if error == "refused":
            found = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        elif isinstance(error, OSError | MemoryError):
            found = error
        elif error is not None:
            found = ConnectionResetError(errno.ECONNRESET, str(error))
        if self._up:
            self._ended, self._end = True, found
        else:
            reset = ConnectionResetError(errno.ECONNRESET, "connection reset while connecting")
            self._error = found if isinstance(found, OSError) else reset
        self._happened()

    def _happened(self) -> None:
        self.stamp = self._files.moment()

    # Methods that `Transport` calls

    def fileno(self) -> int:
        """Return the descriptor; -1 after `close`."""
        return -1 if self._closed else self._number

    def setblocking(self, flag: bool) -> None:
        """Accept False; the socket never blocks."""
        if flag:
            raise ValueError("a socket of the simulation doesn't block")

    def setsockopt(self, *_: object) -> None:
        """Ignore all options."""

    def getsockopt(self, *_: object) -> int:
        """Return SO_ERROR: the result of the connection attempt."""
        error, self._error = self._error, None
        if error is not None:
            self._ended, self._end = True, error
            return error.errno or errno.EIO
        return 0

    def connect(self, target: tuple[str, int]) -> None:
        """Start to connect."""
        self._line.dial(target[0], target[1])
        raise BlockingIOError(errno.EINPROGRESS, os.strerror(errno.EINPROGRESS))

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        """Accept bytes, and send each frame once it is complete."""
        self._check()
        if self._end is not None:
            raise self._end
        data = b"".join(buffers)
        count = 0 if self._choked else len(data)
        if self._moods is not None and self._later is not None:
            count = 0 if self._full else self._moods.takes(count)
            if count < len(data) and not self._full:
                self._full = True
                self._later(self._moods.again(), self._has_room)
        if not count:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._goes += data[:count]
        while len(self._goes) >= LENGTH:
            whole = LENGTH + int.from_bytes(self._goes[:LENGTH])
            if len(self._goes) < whole:
                break
            frame = bytes(self._goes[:whole])
            del self._goes[:whole]
            self._line.frame(frame)
        return count

    def choke(self) -> None:
        """Accept no more bytes, as if the peer didn't read."""
        self._full = self._choked = True

    def _has_room(self) -> None:
        self._full = self._choked
        if not self._closed:
            self._happened()

    def recv_into(self, buffer: memoryview) -> int:
        """Read bytes; return 0 at the end of the stream."""
        self._check()
        if not self._came:
            if not self._ended:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            if self._end is not None:
                raise self._end
            return 0
        room, count = len(buffer), 0
        if self._moods is not None:
            room = self._moods.gives(min(room, len(self._came[0])))
        while count < room and self._came:
            piece = self._came.popleft()
            part = min(len(piece), room - count)
            buffer[count : count + part] = piece[:part]
            count += part
            if part < len(piece):
                self._came.appendleft(piece[part:])
        return count

    def close(self) -> None:
        """Close the socket and free its descriptor."""
        if not self._closed:
            self._closed = True
            self._files.closed(self._number)
            self._line.hang_up()

    def _check(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
