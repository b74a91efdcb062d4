"""Sockets of a simulated world, as far as a `Transport` uses them, and what an event loop watches.

In: bytes that a client writes; what comes out of a link, at its instant. Out: whole frames to the
link; readiness, level by level, as the kernel tells an event loop. Numbers of descriptors that were
closed are given again at once, the lowest first, as by the kernel. Must not: know asyncio's hosts.
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
"""The first number, so that none is mistaken for one of the process's own."""
LENGTH = 4
"""Bytes before each frame that say how long it is."""


class FarEnd(Protocol):
    """Where a socket's bytes go."""

    def dial(self, ip: str, port: int) -> None:
        """Begin to connect."""

    def frame(self, frame: bytes) -> None:
        """Carry one request, with its length before it."""

    def hang_up(self) -> None:
        """The client closed its end."""


class Moods:
    """How a kernel treats whoever asks it: it takes and gives less than it could (`rng`)."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def takes(self, offered: int) -> int:
        """How many bytes are written of so many."""
        draw = self._rng.random()
        if draw < 0.2:
            return 0
        return offered if draw < 0.6 else self._rng.randrange(offered)

    def gives(self, held: int) -> int:
        """How many bytes are read of so many."""
        return held if self._rng.random() < 0.5 else self._rng.randrange(1, held + 1)

    def again(self) -> float:
        """Seconds until there is room to write again."""
        return self._rng.random() ** 4 * 0.05


class Later(Protocol):
    """Has something done some seconds from now."""

    def __call__(self, seconds: float, action: Callable[[], object], /) -> object: ...


class Files:
    """What is open in the world of one event loop, and who watches it."""

    def __init__(self) -> None:
        self._open: dict[int, VirtualSocket] = {}
        self._readers: dict[int, Handle] = {}
        self._writers: dict[int, Handle] = {}
        self._serial = 0

    def opened(self, sock: VirtualSocket) -> int:
        """Give it the lowest number that is free."""
        number = FIRST
        while number in self._open:
            number += 1
        self._open[number] = sock
        return number

    def closed(self, number: int) -> None:
        """The number is free. Who still watches it would watch whoever gets it next."""
        if number in self._readers or number in self._writers:
            raise AssertionError(f"descriptor {number} was closed while a loop watches it")
        del self._open[number]

    def moment(self) -> int:
        """Numbers what happens to sockets, so that a loop hears of it in that order."""
        self._serial += 1
        return self._serial

    def __contains__(self, number: object) -> bool:
        return number in self._open

    def watch(self, number: int, handle: Handle, *, read: bool) -> None:
        """Run the handle whenever the descriptor is ready; who did so before doesn't any more."""
        if number not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        watched = self._readers if read else self._writers
        before = watched.pop(number, None)
        if before is not None:
            before.cancel()
        watched[number] = handle

    def unwatch(self, number: int, *, read: bool) -> bool:
        """Watch it no more; what was about to run doesn't. False: nobody did."""
        handle = (self._readers if read else self._writers).pop(number, None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    def ready(self) -> list[Handle]:
        """What a loop has to run now."""
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
        """Whether there is anything for a loop to run."""
        return any(self._open[n].readable for n in self._readers) or any(
            self._open[n].writable for n in self._writers
        )


class VirtualSocket:
    """One TCP connection's client end: what of `socket.socket` a `Transport` uses."""

    def __init__(
        self, files: Files, line: FarEnd, moods: Moods | None = None, later: Later | None = None
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
        self._end: OSError | None = None
        """How it ended; None: in order."""
        self._came: deque[memoryview] = deque()
        self._goes = bytearray()
        self._full = self._choked = False
        self._closed = False

    # What the loop asks

    @property
    def readable(self) -> bool:
        """There is something to read, if only the end."""
        return bool(self._came) or self._ended or self._error is not None

    @property
    def writable(self) -> bool:
        """There is room; or writing fails, as a dial does that came to nothing. A peer that has
        only closed its end may go on reading.
        """
        failed = self._end is not None or self._error is not None
        return failed or (self._up and not self._full)

    # What the network tells

    def connected(self) -> None:
        """The dial was accepted."""
        self._up = True
        self._happened()

    def arrived(self, pieces: Sequence[memoryview]) -> None:
        """Bytes have come."""
        self._came.extend(piece for piece in pieces if piece)
        self._happened()

    def lost(self, error: BaseException | str | None) -> None:
        """The dial failed, or the connection ended."""
        found: OSError | None = None
        if error == "refused":
            found = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        elif isinstance(error, OSError):
            found = error
        elif error is not None:
            found = ConnectionResetError(errno.ECONNRESET, str(error))
        if self._up:
            self._ended, self._end = True, found
        else:
            self._error = found or ConnectionResetError(errno.ECONNRESET, "reset amid the dial")
        self._happened()

    def _happened(self) -> None:
        self.stamp = self._files.moment()

    # What a transport calls

    def fileno(self) -> int:
        """Its number."""
        return -1 if self._closed else self._number

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""
        if flag:
            raise ValueError("a socket of the simulation doesn't block")

    def setsockopt(self, *_: object) -> None:
        """Nothing."""

    def getsockopt(self, *_: object) -> int:
        """SO_ERROR: how the dial ended."""
        error, self._error = self._error, None
        if error is not None:
            self._ended, self._end = True, error
            return error.errno or errno.EIO
        return 0

    def connect(self, target: tuple[str, int]) -> None:
        """Begin to connect."""
        self._line.dial(target[0], target[1])
        raise BlockingIOError(errno.EINPROGRESS, os.strerror(errno.EINPROGRESS))

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        """Take bytes, and carry on the frames that are whole with them."""
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
        """Take nothing more: the peer doesn't read."""
        self._full = self._choked = True

    def _has_room(self) -> None:
        self._full = self._choked
        if not self._closed:
            self._happened()

    def recv_into(self, buffer: memoryview) -> int:
        """Give bytes; 0 at the end."""
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
        """Close it; the number may be given to another one from now on."""
        if not self._closed:
            self._closed = True
            self._files.closed(self._number)
            self._line.hang_up()

    def _check(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
