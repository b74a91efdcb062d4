"""Start Spark's own programs on loopback as processes: a `spark://` cluster, a server.

PySpark's package has the classes but not all scripts that start them; `spark-class` starts them
too.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.soak.spark_driver import processes, spark_home
from tests.spark.class_archives import java_options

from odradek.testing import ensure_java_environment

DEPLOY = "org.apache.spark.deploy"


class Programs:
    """Processes whose logs contain their addresses; close() kills them and their children."""

    def __init__(self, folder: Path) -> None:
        ensure_java_environment()
        self.folder, self.home = folder, spark_home(folder)
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str, command: list[str], more: Mapping[str, str]) -> None:
        environment = {**os.environ, "SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": "127.0.0.1"}
        for variable in ("PYSPARK_PYTHON", "PYTHONPATH"):  # executors use the program's values
            environment.pop(variable, None)
        with self.log(name).open("wb") as log:
            self._running.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**environment, **more},
                    cwd=self.folder,
                    start_new_session=True,
                )
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _said(self, name: str, pattern: str) -> str:
        deadline = time.monotonic() + 120
        while True:
            text = self.log(name).read_text()
            if found := re.search(pattern, text):
                return found[1]
            assert self._running[-1].poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.1)

    def close(self) -> None:
        """Kill the programs and all remaining executors."""
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


class StandaloneSpark(Programs):
    """A `spark://` cluster of one worker with `cores` cores."""

    def __init__(self, folder: Path, cores: int = 2) -> None:
        super().__init__(folder)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            quiet = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            self._daemon("Master", *quiet)
            self.url = self._said("Master", r"(spark://127\.0\.0\.1:\d+)")
            self._daemon(
                "Worker", *quiet, "--cores", str(cores), "--memory", "2g",
                "--work-dir", str(self.work), self.url,
            )  # fmt: skip
            self._said("Worker", r"(Successfully registered with master)")
            undo.pop_all()

    @property
    def work(self) -> Path:
        """Folder in which executors run and log."""
        return self.folder / "work"

    def _daemon(self, name: str, *arguments: str) -> None:
        small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": java_options()}
        program = f"{DEPLOY}.{name.lower()}.{name}"
        command = [str(self.home / "bin" / "spark-class"), program, *arguments]
        self._start(name, command, small)


class ConnectServer(Programs):
    """Server of Spark Connect, started by a separate command, with its settings in a file.

    A separate server can use any port, while one that PySpark's client starts uses 15002.
    """

    def __init__(
        self, folder: Path, command: str, settings: Mapping[str, str], python: str
    ) -> None:
        super().__init__(folder)
        configuration = folder / "conf"
        configuration.mkdir()
        anywhere = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        }
        lines = [f"{name} {value}\n" for name, value in {**settings, **anywhere}.items()]
        (configuration / "spark-defaults.conf").write_text("".join(lines))
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._start(
                "Connect",
                ["bash", "-euc", command],
                {
                    "PATH": f"{self.home / 'sbin'}{os.pathsep}{os.environ['PATH']}",
                    "PYSPARK_PYTHON": python,
                    "SPARK_CONF_DIR": str(configuration),
                    "SPARK_LOG_DIR": str(folder / "logs"),
                    "SPARK_NO_DAEMONIZE": "1",
                    "SPARK_PID_DIR": str(folder),
                },
            )
            port = self._said("Connect", r"Spark Connect server started at: \S*:(\d+)")
            self.url = f"sc://localhost:{port}"
            self.interface = "http://127.0.0.1:" + self._said(
                "Connect", r"started service 'SparkUI' on port (\d+)"
            )
            undo.pop_all()
