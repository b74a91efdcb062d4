"""Use the keeper: start processes that end when the process that started them ends.

In: commands. Out: `Child` objects, which are notified of their process's end. Must not: signal a
pid by itself; only the keeper, which is the parent, knows whether a pid still belongs to the child.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from odradek.runtime.system_clock import monotonic
from odradek.testing.brokers import keeper
from odradek.testing.errors import KeeperError

_ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Exit:
    """How and when a process ended: `status` as in `subprocess`, times by the keeper's clocks."""

    status: int
    wall: float
    monotonic: float


@dataclass(slots=True, eq=False)
class Child:
    """A process that the keeper has started, running or ended."""

    pid: int
    log: Path
    ended: threading.Event = field(default_factory=threading.Event)
    exit: Exit | None = None
    on_exit: Callable[[Exit], None] | None = None

    @property
    def alive(self) -> bool:
        """Whether the keeper hasn't reported the process's end."""
        return not self.ended.is_set()


class Keeper:
    """Starts the keeper process, passes requests to it and listens for exits in one thread."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        # -I -S: the user's environment and site packages can't slow the keeper down or break it.
        # The keeper has its own session, so that Ctrl-C in a terminal reaches only the owner.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(self._owner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._answers: dict[int, dict[str, Any]] = {}
        self._children: dict[int, Child] = {}
        self._early: dict[int, Exit] = {}  # exits reported before `spawn` got the pid
        self._calls = 0
        self._gone = False
        self._directories: list[Path] = []
        self._listener = threading.Thread(target=self._listen, name="keeper", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The process id of the keeper itself."""
        return self._process.pid

    def spawn(
        self,
        command: Sequence[str],
        *,
        stdout: Path,
        stderr: Path | None = None,
        stdin: Path | None = None,
        cwd: Path | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> Child:
        """Start a program; `on_exit` runs in the keeper's listening thread."""
        with self._lock:
            self._calls += 1
            call = self._calls
        self._send(
            do="spawn", call=call, command=list(command), stdin=str(stdin or os.devnull),
            stdout=str(stdout), stderr=str(stderr or ""), cwd=str(cwd or Path.cwd()),
        )  # fmt: skip
        with self._answered:
            self._answered.wait_for(lambda: call in self._answers or self._gone, _ANSWER_TIMEOUT_S)
            answer = self._answers.pop(call, {"error": "the brokers' parent process has ended"})
            if "error" in answer:
                raise KeeperError(f"can't start {command[0]}: {answer['error']}")
            child = Child(answer["pid"], stdout, on_exit=on_exit)
            early = self._early.pop(child.pid, None)
            if early is None:
                self._children[child.pid] = child
        if early is not None:
            _finish(child, early)
        return child

    def signal(self, child: Child, number: signal.Signals) -> None:
        """Send a signal to a child's process unless the process has ended."""
        if child.alive:
            self._send(do="signal", pid=child.pid, number=int(number))

    def remove_at_end(self, directory: Path) -> None:
        """Let the keeper remove a directory when it is closed or the owning process ends."""
        self._directories.append(directory)
        self._send(do="remove", directory=str(directory))

    def close(self) -> None:
        """Kill all running processes, remove the directories, and end the keeper."""
        if os.getpid() != self._owner or self._process.returncode is not None:
            return  # a forked process must not end its parent's brokers
        with contextlib.suppress(KeeperError):  # the keeper has ended already
            self._send(do="quit")
        self._process.wait()
        self._listener.join(timeout=5)
        for directory in self._directories:  # needed if the keeper was killed
            shutil.rmtree(directory, ignore_errors=True)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # the keeper was killed, and data is unsent
                    pipe.close()

    def _send(self, **request: Any) -> None:
        pipe: IO[bytes] | None = self._process.stdin
        try:
            if pipe is None or pipe.closed:
                raise KeeperError("the process that keeps the brokers running has ended")
            with self._lock:
                pipe.write(json.dumps(request).encode() + b"\n")
                pipe.flush()
        except OSError as error:
            raise KeeperError("the process that keeps the brokers running has ended") from error

    def _listen(self) -> None:
        pipe = self._process.stdout
        if pipe is None:
            return
        for line in pipe:
            message = json.loads(line)
            if "call" in message:
                with self._answered:
                    self._answers[message["call"]] = message
                    self._answered.notify_all()
                continue
            ended = Exit(message["status"], message["wall"], message["monotonic"])
            with self._lock:
                child = self._children.pop(message["exited"], None)
                if child is None:
                    self._early[message["exited"]] = ended
            if child is not None:
                _finish(child, ended)
        with self._answered:
            self._gone = True
            left = list(self._children.values())
            self._children.clear()
            self._answered.notify_all()
        for child in left:  # the brokers end with the keeper
            _finish(child, Exit(-signal.SIGKILL, time.time(), monotonic()))


def _finish(child: Child, ended: Exit) -> None:
    child.exit = ended
    if child.on_exit is not None:
        child.on_exit(ended)
    child.ended.set()
