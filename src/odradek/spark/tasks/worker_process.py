"""Shorten the time between two tasks of a Python worker, which dominates small tasks.

In: a call at the beginning of each task. Out: nothing. A worker is forked by Spark's daemon, runs
one task after the other and collects garbage after each. Compared with a Python source that does
nothing (docs/performance.md, "Spark"), this causes two waits, and both are removed:

- The collection walks through every object of every module that was imported, 10 to 50 ms, and the
  next task waits for it. Objects that are alive when the second task begins have just survived a
  collection, so they are set aside (`gc.freeze`), once.
- Spark's JVM sends a task in several small writes. Its socket sends the second write only after the
  first is acknowledged, and the worker's kernel delays the acknowledgement by 40 ms. So the kernel
  is told after each task to acknowledge at once. It has to be told again for each task, and the
  only hook between two tasks is a callback of the garbage collection. With
  `spark.python.unix.domain.socket.enabled` there is no TCP and no such wait.

Must not: do anything in a process that isn't such a worker.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from typing import Any

from odradek.runtime.process_sockets import acknowledge_at_once, tcp_connections

REUSED = "SPARK_REUSE_WORKER"
"""Set by Spark's JVM for workers that get more than one task; its daemon reads it, too."""
FULL = 2
"""Oldest generation of the garbage collector; Spark's daemon collects it after each task."""


class WorkerProcess:
    """State of a Python worker that Spark reuses: number of tasks, and connections to Spark."""

    __slots__ = ("_connections", "_environment", "_freeze", "_tasks")

    def __init__(
        self, environment: Mapping[str, str] = os.environ, freeze: Callable[[], None] = gc.freeze
    ) -> None:
        self._environment, self._freeze = environment, freeze
        self._tasks = 0
        self._connections: tuple[int, ...] = ()

    def task_begins(self) -> None:
        """Prepare the process for a task; call it before the task opens connections."""
        if REUSED not in self._environment:
            return
        self._tasks += 1
        if self._tasks == 1:
            self._connections = tcp_connections()
            if self._connections:
                gc.callbacks.append(self._collected)
        elif self._tasks == 2:
            self._freeze()

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "stop" and info["generation"] == FULL:
            acknowledge_at_once(self._connections)


_WORKER = WorkerProcess()


def task_begins() -> None:
    """Prepare this process for a task; has no effect unless Spark reuses its workers."""
    _WORKER.task_begins()
