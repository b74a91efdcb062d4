"""Spark's own cluster on loopback: a master and a worker, each a process, with a folder of theirs.

PySpark's package has the classes but not the scripts that start them; `spark-class` does it, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.soak.spark_driver import processes, spark_home

from odradek.testing import ensure_java_environment

DEPLOY = "org.apache.spark.deploy"


class StandaloneSpark:
    """A `spark://` cluster of one worker with so many cores; close() ends all its processes."""

    def __init__(self, folder: Path, cores: int = 2) -> None:
        ensure_java_environment()
        self.folder, self.home = folder, spark_home(folder)
        self._running: list[subprocess.Popen[bytes]] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            quiet = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            self._start(f"{DEPLOY}.master.Master", *quiet)
            self.url = self._said("Master", r"(spark://127\.0\.0\.1:\d+)")
            self._start(
                f"{DEPLOY}.worker.Worker", *quiet,
                "--cores", str(cores), "--memory", "2g", "--work-dir", str(self.work), self.url,
            )  # fmt: skip
            self._said("Worker", r"(Successfully registered with master)")
            undo.pop_all()

    @property
    def work(self) -> Path:
        """Where executors run and log."""
        return self.folder / "work"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        for variable in ("PYSPARK_PYTHON", "PYTHONPATH"):  # executors know what the program brings
            environment.pop(variable, None)
        with self._log(name).open("wb") as log:
            command = [str(self.home / "bin" / "spark-class"), name, *arguments]
            self._running.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.rpartition('.')[2]}.log"

    def _said(self, name: str, pattern: str) -> str:
        deadline = time.monotonic() + 60
        while True:
            text = self._log(name).read_text()
            if found := re.search(pattern, text):
                return found[1]
            assert self._running[-1].poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.1)

    def close(self) -> None:
        """End master, worker and whatever executors are left."""
        for process in reversed(self._running):
            while pids := set(processes(process.pid)) - {process.pid} | (
                {process.pid} if process.poll() is None else set()
            ):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
            process.wait(30)
        self._running = []
