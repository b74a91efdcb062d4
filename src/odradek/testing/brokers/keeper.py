"""Own every process of a cluster in one small process, so that none outlives its user.

In: JSON lines on standard input (`spawn`, `signal`, `remove`, `quit`) from `process.Keeper`. Out:
JSON lines on standard output: a pid for each spawn, the exact time of each exit. Must not: import
anything beyond the standard library, not even from this package, because it is run by its path.

If the owner ends for any reason (Ctrl-C, a crash, SIGKILL), the kernel makes the owner's pidfd
readable; then the children are killed and the temporary directories removed. A pipe alone isn't
enough, because a process that the owner forked would keep it open. If this process itself is
killed, the kernel kills the children (PR_SET_PDEATHSIG). Their parent is the only thread of this
process: the end of a worker thread of the user would count as the parent's death.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Keeper:
    def __init__(self, owner: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._directories: list[str] = []
        self._pending = b""
        self._done = False
        self._owner_fd = os.pidfd_open(owner)
        self._selector.register(self._owner_fd, selectors.EVENT_READ, self._stop)
        self._selector.register(0, selectors.EVENT_READ, self._read)
        if os.getppid() != owner:  # the owner died before, and its pid may be reused
            self._done = True

    def run(self) -> None:
        while not self._done:
            for key, _ in self._selector.select():
                key.data()
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)

    def stop(self, *_: object) -> None:
        self._done = True

    _stop = stop

    def _read(self) -> None:
        data = os.read(0, 65536)
        if not data:
            self._done = True
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            getattr(self, f"_do_{request.pop('do')}")(**request)

    def _say(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # the next select reports the owner's end
            os.write(1, json.dumps(message).encode() + b"\n")

    def _do_spawn(
        self, call: int, command: list[str], stdin: str, stdout: str, stderr: str, cwd: str
    ) -> None:
        try:
            with (
                open(stdin, "rb") as given,  # noqa: PTH123 - plain paths, and no import of pathlib
                open(stdout, "ab") as out,  # noqa: PTH123
                open(stderr or stdout, "ab") as err,  # noqa: PTH123
            ):
                child = subprocess.Popen(
                    command, stdin=given, stdout=out, stderr=err, cwd=cwd,
                    preexec_fn=_die_with_parent,  # safe, because this process has only one thread
                )  # fmt: skip
        except OSError as error:
            self._say(call=call, error=str(error))
            return
        self._children[child.pid] = child
        self._say(call=call, pid=child.pid)
        pidfd = os.pidfd_open(child.pid)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._exited(child.pid, pidfd))

    def _exited(self, pid: int, pidfd: int) -> None:
        wall, monotonic = time.time(), time.monotonic()
        self._selector.unregister(pidfd)
        os.close(pidfd)
        status = self._children.pop(pid).wait()
        self._say(exited=pid, status=status, wall=wall, monotonic=monotonic)

    def _do_signal(self, pid: int, number: int) -> None:
        # The child isn't reaped yet, so its pid can't be reused.
        if pid in self._children:
            self._children[pid].send_signal(number)

    def _do_remove(self, directory: str) -> None:
        self._directories.append(directory)

    def _do_quit(self) -> None:
        self._done = True


def main() -> None:
    """Serve the owning process, whose pid is the only argument."""
    keeper = _Keeper(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles Ctrl-C
    signal.signal(signal.SIGTERM, keeper.stop)
    keeper.run()


if __name__ == "__main__":
    main()
