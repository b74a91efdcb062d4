"""Start a driver process of the Spark soak, read its reports, and kill its parts.

In: a plan for `spark_job`. Out: batches and failures that the driver reported, and the process ids
of its parts: driver JVM, executors, Python workers and planners. All of them belong to the process
session that the driver leads, so no other process of the machine can be killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pyspark

JOB = Path(__file__).parent / "spark_job.py"
INSTALLED = Path(pyspark.__file__).parent
Part = Literal["jvm", "executor", "worker", "planner"]


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc describes it."""

    pid: int
    parent: int
    session: int
    command: str


def processes(session: int) -> dict[int, Process]:
    """Return the live processes of a process session by id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            after = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(after[3]) == session and after[0] != "Z":
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(entry.name)] = Process(int(entry.name), int(after[1]), session, command)
    return found


def part_of(process: Process, others: dict[int, Process]) -> Part | None:
    """Return the kind of a driver's process; None if the soak doesn't kill this kind."""
    parent = others.get(process.parent)
    if "CoarseGrainedExecutorBackend" in process.command:
        return "executor"
    if "org.apache.spark.deploy.SparkSubmit" in process.command:
        return "jvm"
    if parent is None:
        return None
    if "python_streaming_source_runner" in process.command and "java" in parent.command:
        return "planner"
    if "pyspark.daemon" in process.command and "pyspark.daemon" in parent.command:
        grandparent = others.get(parent.parent)
        below_executor = grandparent is not None and part_of(grandparent, others) == "executor"
        return "worker" if below_executor else "planner"
    return None


def spark_home(folder: Path, *, python: bool = True, installed: Path = INSTALLED) -> Path:
    """Create a home of the installed Spark in a folder, where executors then write their files.

    Without `python` every Python process imports the installed, compiled pyspark instead of
    compiling the archive in the home, which costs each of them a second of CPU time.
    """
    home = folder / "spark-home"
    if not home.exists():
        home.mkdir(parents=True)
        for name in ("bin", "jars", "sbin", *(["python"] if python else [])):
            (home / name).symlink_to(installed / name)
    return home


class Driver:
    """A running `spark_job`.

    Only `close` reaps the process, when its session isn't needed any more: until then the system
    can't reuse the process id, which is also the session's.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        folder = Path(plan["folder"])
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home(folder, python=False)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.batches: Counter[str] = Counter()
        """Number of batches that each query reported as committed."""
        self.begun: dict[str, float] = {}
        """Begin of the newest batch of each query, in seconds of Unix time."""
        self.failures: list[tuple[str, str]] = []
        """Names of failed queries with their errors."""
        self.said: dict[str, dict[str, Any]] = {}
        """The last report of each kind."""
        self._log = (folder / "drivers.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(JOB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            env=environment,
        )
        self._ears = threading.Thread(target=self._listen, name="driver's words")
        self._ears.start()
        self.tell(json.dumps(plan))

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, line: str) -> None:
        """Send a command; nothing happens if the driver has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # a line that was cut off by a kill
                said = json.loads(line)
                self.said[said["event"]] = said
                if said["event"] == "batch":
                    self.batches[said["query"]] += 1
                    self.begun[said["query"]] = datetime.fromisoformat(said["begun"]).timestamp()
                elif said["event"] == "failed":
                    self.failures.append((said["query"], said["text"]))

    @property
    def alive(self) -> bool:
        if self._process.returncode is not None:
            return False
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, how) is None

    def ended(self, seconds: float) -> bool:
        """Wait for the driver's end; return whether it came within this time."""
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.alive:
            return False
        self._ears.join(10)
        return True

    def parts(self, kind: Part) -> list[int]:
        """Return the process ids of the parts of one kind."""
        every = processes(self.pid)
        return sorted(p.pid for p in every.values() if part_of(p, every) == kind)

    def kill_all(self) -> None:
        """Kill driver, JVM, executors and workers, as if their machine crashed."""
        if self._process.returncode is not None:
            return  # the system may have reused the process id
        for _ in range(50):
            pids = set(processes(self.pid)) | ({self.pid} if self.alive else set())
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.close()

    def kill_driver(self) -> None:
        """Kill the driver and its JVM; executors are zombies until they notice it."""
        for pid in [*self.parts("jvm"), self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.ended(30)

    def close(self) -> None:
        """Reap the process and close its pipes."""
        self._process.wait(30)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._ears.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
