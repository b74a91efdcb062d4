"""Run one Spark in a separate process, with jobs one after the other.

In: a Python, its environment, jars, a master. Out: a result for each job. Must not: time anything;
`spark_jvm/timing.py`, which runs in that process, does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from benchmarks.spark_jvm import timing

Job = dict[str, Any]
Result = dict[str, Any]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}


class Spark:
    """A Spark in a separate process, which reads one job per line."""

    def __init__(
        self, python: str, variables: dict[str, str], jars: tuple[str, ...], master: str, log: Path
    ) -> None:
        settings = {**SETTINGS, "spark.master": master, "spark.jars": ",".join(jars)}
        settings["spark.sql.warehouse.dir"] = str(log.parent / "warehouse")
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, timing.__file__, json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=variables, cwd=log.parent,
                start_new_session=True,  # CPU time is summed by session
            )  # fmt: skip
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("pipes were asked for")
        self._given, self._told = self._process.stdin, self._process.stdout
        self._log = log
        self.version = ""
        try:
            self.version = self._answer()["spark"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: Job) -> Result:
        """Run one job and return its result, which contains the measured time."""
        self._given.write(json.dumps(job) + "\n")
        self._given.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._told.readline()
        if not line:
            raise RuntimeError(f"Spark died: {self._log.read_text()[-2000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        with suppress(OSError):  # the process may have ended
            self._given.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:  # a job still runs
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
