"""One driver process that the soak of Spark starts, listens to, and kills part by part.

In: a plan for `spark_job`. Out: what it said (batches, failures), and the process ids of its parts:
driver JVM, executors, Python workers and planners. All of them are in the session (of processes)
that the driver leads, and found through it: nothing else on the machine is ever touched.
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
    """What /proc says of a process."""

    pid: int
    parent: int
    session: int
    command: str


def processes(session: int) -> dict[int, Process]:
    """All live processes of a session of processes."""
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
    """What a process of a driver is, if it is one that the soak kills."""
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
    """A home of an installed Spark whose `work`, where executors' files go, is in a folder of ours.

    Without `python` every Python process takes pyspark from where it is installed, compiled,
    instead of compiling what is in the archive there: a second of CPU less for each of them.
    """
    home = folder / "spark-home"
    if not home.exists():
        home.mkdir(parents=True)
        for name in ("bin", "jars", "sbin", *(["python"] if python else [])):
            (home / name).symlink_to(installed / name)
    return home


class Driver:
    """A running `spark_job`.

    It is reaped by `close` alone, after the last look at its session: until then its process id,
    which is the session's, can't be given to another program.
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
        """Batches that each query committed, and were heard of."""
        self.begun: dict[str, float] = {}
        """When the newest of them began, in seconds of Unix time."""
        self.failures: list[tuple[str, str]] = []
        """Queries that failed, with the text."""
        self.said: dict[str, dict[str, Any]] = {}
        """The last line of each kind."""
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
        """Send a command; one that died hears nothing."""
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
        """Wait for its end; whether it came in time."""
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.alive:
            return False
        self._ears.join(10)
        return True

    def parts(self, kind: Part) -> list[int]:
        """The process ids of its parts of one kind."""
        every = processes(self.pid)
        return sorted(p.pid for p in every.values() if part_of(p, every) == kind)

    def kill_all(self) -> None:
        """SIGKILL driver, JVM, executors, workers: as a machine that vanishes."""
        if self._process.returncode is not None:
            return  # the number may be another program's by now
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
        """SIGKILL driver and its JVM; executors find out by themselves, and are zombies so long."""
        for pid in [*self.parts("jvm"), self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.ended(30)

    def close(self) -> None:
        """Reap it and forget its pipes."""
        self._process.wait(30)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._ears.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
