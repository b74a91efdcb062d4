"""Run one cell: one library, one row, one run, in its own process and network namespace.

In: a row's key and the driver's command. Out: one line of JSON on stdout with the figures. A cell
that can't run reports why; it never invents a figure.

    python -m benchmarks.scorecard.cell A -- java -cp … Driver
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.scorecard import namespace
from benchmarks.scorecard.brokers import Address, Network, Seen

ESTABLISHED_AFTER = 10
"""Number of records that brokers must have accepted before the fault starts."""
SETTLE = 1.0
PRODUCING = 5.0
"""Seconds for which a producer continues to send after those records.

A younger client would appear slower than the same client in a program that has been running:
franz-go waits 5 s between refreshes that aren't urgent."""
START_LIMIT = 45.0
TOPIC = "scorecard"
_MS = 1000.0


class CellError(Exception):
    """A library couldn't be run; the message says why."""


class Cell:
    """The brokers' network and one client, on which a row's script acts."""

    def __init__(self, network: Network, command: list[str], *, counts_dials: bool) -> None:
        self.network = network
        self.door = network.place("bootstrap")
        """The bootstrap address, which the selected broker serves."""
        self.events: list[dict[str, Any]] = []
        self.counts_dials = counts_dials
        """Whether connection attempts that reach no listener can be counted here."""
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the cell
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Return the present time on the clock of all events."""
        return time.monotonic()

    async def start(self, mode: str, **arguments: Any) -> None:
        """Start the library's driver in a mode."""
        options = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            mode,
            "--bootstrap",
            f"{self.door.host}:{self.door.port}",
            "--topic",
            TOPIC,
            *options,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._stderr,
            limit=1 << 20,
        )
        if self._process.stdout is not None:
            self._reading = asyncio.create_task(self._read(self._process.stdout))

    async def established(self) -> None:
        """Wait until brokers have accepted records, and some seconds longer."""
        await self.until(
            lambda: self.network.count("taken", 0.0) >= ESTABLISHED_AFTER,
            START_LIMIT,
            "records flow",
        )
        await asyncio.sleep(PRODUCING)

    async def waiting(self) -> None:
        """Wait until the driver reports that it waits for the command `go`."""
        await self.until(lambda: self.event("waiting") is not None, START_LIMIT, "it waits for go")
        await asyncio.sleep(SETTLE)

    def go(self) -> float:
        """Send the driver the command `go`, and return the time."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"go\n")
        return self.now()

    def event(self, name: str) -> dict[str, Any] | None:
        """Return the driver's first event with this name, or None."""
        return next((e for e in self.events if e["event"] == name), None)

    async def until(self, true: Any, limit: float, what: str) -> None:
        """Wait until a condition holds; raise `CellError` if it doesn't in time."""
        if not await self.comes(true, limit):
            raise CellError(f"within {limit:.0f} s it didn't come to this: {what}. {self.tail()}")

    async def comes(self, true: Any, limit: float) -> bool:
        """Return whether a condition becomes true within `limit` seconds."""
        deadline = self.now() + limit
        while not true():
            if self.now() >= deadline:
                return False
            if self._process is not None and self._process.returncode is not None:
                raise CellError(f"the driver ended by itself. {self.tail()}")
            await asyncio.sleep(0.02)
        return True

    async def first_taken(self, since: float, brokers: set[int], limit: float) -> float | None:
        """Return the seconds from `since` until one of these brokers accepted a record, or None."""

        def match(seen: Seen) -> bool:
            return seen.what == "taken" and seen.broker in brokers

        await self.comes(lambda: self.network.first(since, match) is not None, limit)
        return self.network.first(since, match)

    def first_request(self, since: float, brokers: set[int]) -> float | None:
        """Return the seconds from `since` to the first request to one of these brokers."""
        return self.network.first(since, lambda s: s.what != "dial" and s.broker in brokers)

    def all_addresses(self) -> list[Address]:
        """Return the addresses of all brokers and the bootstrap address."""
        return self.network.addresses

    def connection_attempts(self) -> int:
        """Return the number of connection attempts, including those that fill black holes."""
        return namespace.connection_attempts() if self.counts_dials else 0

    def tail(self) -> str:
        """Return the end of the driver's output as one line."""
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        errors = [str(e.get("what")) for e in self.events if e["event"] == "error"]
        return " | ".join([*errors[-2:], *lines[-2:]])[-400:]

    async def end(self) -> float:
        """End the driver and return its CPU seconds."""
        process = self._process
        if process is None:
            return 0.0
        used = _cpu_seconds(process.pid)
        if process.returncode is None:
            with suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 2.0)
            except TimeoutError:
                process.send_signal(signal.SIGKILL)
                await process.wait()
        if self._reading is not None:
            self._reading.cancel()
        return used

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    self.events.append({**event, "seen": self.now()})


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(key: str, command: list[str], *, counts_dials: bool) -> dict[str, Any]:
    """Run one library once through one row's script, and return the results."""
    from benchmarks.scorecard.rows import ROWS

    network = Network().__enter__()
    cell = Cell(network, command, counts_dials=counts_dials)
    result: dict[str, Any] = {"row": key, "figures": {}, "notes": {}, "error": None}
    begin = time.monotonic()
    try:
        figures, notes = await ROWS[key].script(cell)
        result["figures"], result["notes"] = figures, notes
    except CellError as error:
        result["error"] = str(error)
    finally:
        result["cpu_seconds"] = round(await cell.end(), 2)
        network.close()
    ready = cell.event("ready") or {}
    result["library"], result["version"] = ready.get("library"), ready.get("version")
    strange = {s.what for s in network.seen if s.what.startswith("not answered")}
    if network.unreadable:
        strange.add(f"unreadable: {network.unreadable}")
    if strange:
        result["notes"]["strange"] = sorted(strange)
    versions = {s.version for s in network.seen if s.what == "Metadata"}
    result["notes"]["metadata_version"] = max(versions, default=None)
    errors = [e.get("what") for e in cell.events if e["event"] == "error"]
    result["notes"]["errors"] = list(dict.fromkeys(errors))[:5]
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def main() -> None:
    """Parse the command line, run the cell (one library in one row), print its result."""
    key, _, *command = sys.argv[1:]
    counts_dials = namespace.enter()
    print(json.dumps(asyncio.run(run(key, command, counts_dials=counts_dials))), flush=True)


if __name__ == "__main__":
    main()
