"""One reader's process as the demo sees it.

In: a peer, where to read. Out: what it read when, what it complained of, how it ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from odradek.cli.demo.data import PARTITIONS, TOPIC
from odradek.cli.demo.versus.outcome import ReaderReport
from odradek.cli.demo.versus.peers import PeerLibrary

KILL_S = 10.0


class ReaderProcess:
    """A reader that runs, and what it has said so far."""

    def __init__(self, peer: PeerLibrary, bootstrap: str, log: Path, events: Path) -> None:
        self.peer = peer
        self.heard = ReaderReport(peer.title, peer.colour)
        command = [sys.executable, "-m", "odradek.cli.demo.versus.reader"]
        command += [peer.reader, bootstrap, TOPIC, str(PARTITIONS)]
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "ODRADEK_EVENTS_DIR": str(events)},
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its readers
            )
        self._log = log
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            item = json.loads(line)
            if "row" in item:
                self.heard.rows.append((item["at"], item["row"]))
            else:
                self.heard.errors.append((item["at"], item["error"]))

    def look(self) -> None:
        """Note it when the process has ended by itself."""
        status = self._process.poll()
        if status is not None and self.heard.ended is None:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            self.heard.ended = (time.time(), f"exit status {status}: {lines[-1] if lines else ''}")

    def end(self) -> None:
        """Kill it, if it is still there."""
        self._process.kill()
        self._process.wait(KILL_S)
        self._thread.join(KILL_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
