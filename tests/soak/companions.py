"""Run groups of processes, a copy, a proxy and samples of resources beside the chains of a soak.

In: a cluster, a plan of groups. Out: client settings with the proxy and with tokens that expire; at
the end failures, counts of the kinds of events, and samples of resources. Must not: judge records
other than the copy's.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.soak import group_soak
from tests.soak.copier import ODRADEK, Copier, differences
from tests.soak.coverage import Coverage
from tests.soak.group_soak import GroupPlan, GroupReport, GroupUnderTest
from tests.soak.judgement import Witness
from tests.soak.lossy_proxy import END_TXN, PRODUCE, TXN_OFFSET_COMMIT, ProxyProcess
from tests.soak.slopes import WARM_UP, Sampler, Samples, objects_of_clients, of_process

from odradek.testing import LocalCluster
from odradek.testing.brokers.security import unsecured_token

EVENTS_DIR = "ODRADEK_EVENTS_DIR"
SAMPLE = 10.0
OBJECTS = 60.0
"""Seconds between two counts of this process's objects: the history makes each count slow."""
TOKEN = 30.0
"""Seconds for which an OAuth token is valid."""
COPIED = "in-copied"
COPIED_WITHIN = 240.0


class LogLines(logging.Handler):
    """Counts the lines that Odradek's clients of this process log."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line."""
        self.count += 1


class Companions:
    """Context manager, entered once the cluster is open; then `start`, `calm`, `join`, `cover`."""

    def __init__(self, cluster: LocalCluster, plan: GroupPlan, *, proxied: bool) -> None:
        self.cluster, self.plan = cluster, plan
        self.proxy: ProxyProcess | None = ProxyProcess() if proxied else None
        self.groups: list[GroupUnderTest] = []
        self.copier: Copier | None = None
        self.samples = Samples()
        self.tokens = 0
        """OAuth tokens that clients have fetched."""
        self.failures: list[str] = []
        self.clients = 1
        """Clients of this process: the bound of log lines is for each of them."""
        self._events = plan.folder / "events"
        self._lines = LogLines()
        self._threads: list[threading.Thread] = []
        self._stack = ExitStack()
        self._begun = self._objects_at = 0.0
        self._classes_before: Counter[str] = Counter()
        """Objects of this process by class at the end of the warm-up, and at the last count."""
        self._classes: Counter[str] = Counter()
        self._log_sizes: dict[Path, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        self._events.mkdir(parents=True, exist_ok=True)
        os.environ[EVENTS_DIR] = str(self._events)
        self._stack.callback(os.environ.pop, EVENTS_DIR)
        logger = logging.getLogger("odradek")
        logger.addHandler(self._lines)
        self._stack.callback(logger.removeHandler, self._lines)
        if self.proxy is not None:
            self._stack.enter_context(self.proxy)
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes that still run, also after Ctrl-C."""
        self._stack.close()
        if self.copier is not None:
            self.copier.stop()
        for group in self.groups:
            for member in group.members:
                member.process.kill()

    def loop_config(self) -> dict[str, Any]:
        """Return settings for the clients in the event loop, with short tokens and the proxy."""
        if self.cluster.security != "SASL_PLAINTEXT":
            return self.cluster.client_config()
        found = self.cluster.client_config(mechanism="OAUTHBEARER")
        found["sasl.oauthbearer.token.provider"] = self._token
        if self.proxy is not None:
            found["proxy.url"] = self.proxy.url
        return found

    def _token(self) -> tuple[str, float]:
        self.tokens += 1
        return unsecured_token("alice", TOKEN)

    def start(self, source: str, partitions: int) -> None:
        """Start the copy and the groups; the source's topic must exist."""
        self._begun = time.monotonic()
        self.cluster.create_topic(COPIED, partitions=partitions)
        self.copier = Copier(source, COPIED, self.cluster.client_config(), self.plan.folder)
        self.copier.start()
        proxy = None if self.proxy is None else self.proxy.url
        for n, kind in enumerate(self.plan.kinds):
            through = proxy if n % 2 else None
            self.groups.append(GroupUnderTest(kind, self.cluster, self.plan, through))
        for group in self.groups:
            thread = threading.Thread(target=group.run, name=group.kind, daemon=True)
            thread.start()
            self._threads.append(thread)
        self._stack.enter_context(Sampler(self._sample, SAMPLE))

    # Samples

    def _sample(self) -> None:
        at = time.monotonic() - self._begun
        values = of_process(os.getpid())
        values["log_lines"] = self._lines.count / self.clients
        if at - self._objects_at >= OBJECTS:
            self._objects_at = at
            classes = objects_of_clients()
            values["objects"] = classes.total()
            if at < WARM_UP or not self._classes_before:
                self._classes_before = classes
            self._classes = classes
        del values["memory_mb"]  # the history grows in this process
        self.samples.add("soak", at, values)
        for group in self.groups:
            for member in group.members:
                values = of_process(member.process.pid)
                if values and not member.frozen:
                    values["log_lines"] = self._log_lines(member.log)
                    self.samples.add(member.name, at, values)

    def _log_lines(self, path: Path) -> int:
        size, count = self._log_sizes.get(path, (0, 0))
        with path.open("rb") as file:
            file.seek(size)
            more = file.read()
        self._log_sizes[path] = size + len(more), count + more.count(b"\n")
        return count + more.count(b"\n")

    def _sample_objects(self) -> None:
        for group in self.groups:
            for member in group.members:
                for line in member.lines:
                    if line["kind"] == "objects":
                        at = line["at"] - self._begun
                        self.samples.add(member.name, at, {"objects": line["count"]})

    # The end

    @property
    def _copier(self) -> Copier:
        assert self.copier is not None
        return self.copier

    def calm(self) -> None:
        """Stop the faults of the copy and of the groups."""
        if self.copier is not None:
            self.copier.calm()
        for group in self.groups:
            group.calm.set()

    def join(self, faults: Iterable[tuple[float, float]]) -> GroupReport:
        """Wait until the groups have processed the rest, and return their report."""
        for thread in self._threads:
            thread.join()
        spans = list(faults)
        for group in self.groups:
            group.conclude(spans)
        self._sample_objects()
        return group_soak.conclude(self.groups)

    def growing(self) -> list[str]:
        """Return the resources that grow faster than their bounds, with the classes of objects."""
        most = (self._classes - self._classes_before).most_common(8)
        added = ", ".join(f"{count} more of {name}" for name, count in most)
        return [
            f"{text}; {added}" if text.startswith("objects of soak") else text
            for text in self.samples.failures()
        ]

    def judge_copy(self, witness: Witness, source: str) -> None:
        """Let the copy reach the end, and compare it with its source."""
        self._copier.stop()
        self.failures += self._copier.failures
        command = [
            *(str(ODRADEK), "copy", source, COPIED, "--json"),
            *("--command-config", str(self.plan.folder / "copy.properties")),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COPIED_WITHIN)
        except subprocess.TimeoutExpired:
            self.failures.append(f"odradek copy didn't reach the end within {COPIED_WITHIN:g} s")
            return
        if done.returncode:
            self.failures.append(f"odradek copy failed at the end: {done.stderr[-500:]}")
            return
        self.failures += differences(witness.rows(source), witness.rows(COPIED))

    def cover(self, coverage: Coverage, groups: GroupReport) -> None:
        """Add the counts of faults and events to the coverage."""
        found: Mapping[str, int] = {
            "members stopped": groups.frozen,
            "topics recreated": groups.topics - len(self.groups),
            "partitions added": groups.grown,
            "commits refused": sum(groups.refused.values()),
            "partitions lost": groups.lost,
            "copies restarted": self._copier.killed,
            "copies stopped": self._copier.frozen,
            "slopes": sum(map(len, self.samples.judged().values())),
            **{f"records handed to {s}": groups.styles.get(s, 0) for s in styles(self.plan)},
        }
        for kind, count in found.items():
            coverage.add(kind, count)
        if self.proxy is not None:
            lost = self.proxy.lost
            coverage.add("answers lost", lost.total())
            coverage.add("produce answers lost", lost[PRODUCE])
            coverage.add("transaction answers lost", lost[END_TXN] + lost[TXN_OFFSET_COMMIT])
        coverage.read_events(self._events)


def styles(plan: GroupPlan) -> list[str]:
    """Return the styles of all members of a plan."""
    return sorted({style for kind in plan.kinds for style in group_soak.STYLES[kind]})
