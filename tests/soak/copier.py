"""Run `odradek copy --follow`, stop, kill and restart its process, and compare the copy.

In: a source topic, client settings. Out: the numbers of starts, kills and SIGSTOPs, and the
differences between the copy and its source. Must not: know the rest of a soak.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ODRADEK = Path(sys.executable).parent / "odradek"
LIVES = (25.0, 60.0)
"""Seconds from a start, or the end of a SIGSTOP, to the next fault of the process."""
FROZEN = (5.0, 40.0)
"""Seconds of a SIGSTOP; transactions of a copy time out after 60 s by default."""
Rows = Mapping[int, Sequence[tuple[int, str]]]


class Copier:
    """Runs the copy command until `stop`, and restarts it whenever its process ends."""

    def __init__(self, source: str, target: str, config: Mapping[str, Any], folder: Path) -> None:
        self.source, self.target = source, target
        self.started = self.killed = self.frozen = 0
        self.failures: list[str] = []
        self.log = folder / "copy.log"
        self._properties = folder / "copy.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in config.items()))
        self._properties.chmod(0o600)
        self._rng = random.Random("copy")
        self._stopping = threading.Event()
        self._calm = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="copier")

    @property
    def pid(self) -> int | None:
        """Id of the current process."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        """Start the thread that runs the command."""
        self._thread.start()

    def calm(self) -> None:
        """Stop causing faults of the process."""
        self._calm.set()

    def stop(self) -> None:
        """End the command by SIGTERM, and wait for its end."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        *(str(ODRADEK), "copy", self.source, self.target, "--follow"),
                        *("--command-config", str(self._properties)),
                    ],
                    stdout=log,
                    stderr=log,
                )
            self.started += 1
            self._live(self._process)
        self._process = None

    def _live(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process ends: by a fault, by itself, or because of `stop`."""
        end = time.monotonic() + self._rng.uniform(*LIVES)
        while process.poll() is None and not self._stopping.wait(0.2):
            if time.monotonic() < end or self._calm.is_set():
                continue
            if self._rng.random() < 0.5:
                process.kill()
                self.killed += 1
                process.wait()
                return
            process.send_signal(signal.SIGSTOP)
            self.frozen += 1
            self._calm.wait(self._rng.uniform(*FROZEN))
            process.send_signal(signal.SIGCONT)
            end = time.monotonic() + self._rng.uniform(*LIVES)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            if process.poll() is None:
                process.kill()
                process.wait()
                self.failures.append("odradek copy didn't end within 60 s of SIGTERM")


def differences(source: Rows, target: Rows, most: int = 10) -> list[str]:
    """Return how a copy differs from its source, whose values must be in the same order."""
    found = []
    for partition, rows in source.items():
        wanted = [value for _, value in rows]
        got = [value for _, value in target.get(partition, ())]
        if wanted == got:
            continue
        n = next((n for n, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]),
                 min(len(wanted), len(got)))  # fmt: skip
        found.append(
            f"odradek copy: partition {partition} has {len(got)} records of {len(wanted)}; at "
            f"record {n}: {wanted[n : n + 1]} became {got[n : n + 1]}"
        )
    return found[:most]
