"""Run `odradek groups lag --prometheus`: export groups' lag until the command is stopped.

In: a run of a command, groups, seconds between measurements. Out: metrics at an HTTP endpoint. The
main thread measures, so a scrape sends nothing to a cluster and doesn't wait for one; it returns
the last measurement and its age. Must not: end while the cluster is unavailable.

Names and labels are those of kafka_exporter; `odradek_lag_…` are about the measurements themselves.

Strimzi and cloud providers run kafka_exporter, so most dashboards read its names, and none of its
labels changes with a member. kafka-lag-exporter has member ids among its labels, so each rebalance
would begin new series.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import count as count_from
from typing import NamedTuple

from odradek.cli.console.waiting import in_words, say, terminable
from odradek.cli.frame.commands import AdminRun
from odradek.cli.frame.results import Result
from odradek.cli.groups import rendering
from odradek.cli.groups.endpoint import MetricsEndpoint
from odradek.cli.groups.lag_times import LogTimes
from odradek.cli.groups.lookup import GroupSelection, GroupSnapshot, LookFailed, offsets_at
from odradek.clients.metrics.metric import Kind
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.monitoring.names import Measured
from odradek.monitoring.prometheus import (
    PrometheusFamily,
    PrometheusSeries,
    prometheus_text,
    text_of,
)

QUESTIONS = 4
"""Maximum number of lookups by time in one measurement; the next measurement does the rest."""
MOST_ROWS = 50_000
"""Maximum number of exported partitions of groups; partitions with the least lag are left out."""
KINDS = {"group": str, "partition": TopicPartition, "broker": int}
"""Types of items that may fail in a measurement, by their labels."""
OWN = "odradek_lag_"
UNTIL_NEXT = 15.0
"""Default interval of measurements in seconds."""


class _Row(NamedTuple):
    """Partition of a group.

    `offset` is None without a committed offset. `end` is None for share groups, for which brokers
    only report the lag.
    """

    group: str
    at: TopicPartition
    offset: int | None
    end: int | None
    lag: int | None


class LagExporter:
    """Measures groups, and returns the last measurement in Prometheus's format."""

    def __init__(
        self,
        groups: GroupSelection,
        interval: float,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._groups, self._interval = groups, interval
        self._wall, self._monotonic = wall, monotonic
        self._times: dict[TopicPartition, LogTimes] = {}
        self._looks: Mapping[str, GroupSnapshot] = {}
        self.failed: LookFailed = {}
        """Errors of the last measurement."""
        self._up = False
        self._counts = (0, 0)
        """Numbers of measurements, and of failed ones."""
        self._told = b""
        """Text of the last successful measurement, which all readers share."""
        self._looked: float | None = None
        self._took = 0.0

    @property
    def looked(self) -> bool:
        """Whether any measurement has succeeded."""
        return self._looked is not None

    def look(self, run: AdminRun) -> None:
        """Measure once. Raises an error that concerns all groups."""
        began = self._monotonic()
        looks, failed = self._counts
        self._counts = (looks + 1, failed)
        run.again()
        try:
            self._take(run)
        except BaseException:
            self._up, self._counts = False, (looks + 1, failed + 1)
            raise
        self._looked = self._monotonic()
        self._took, self._up = self._looked - began, True

    def _take(self, run: AdminRun) -> None:
        self._looks, self.failed = self._groups.look(run)
        now, rows = self._wall(), list(_rows(self._looks))
        self.failed.update(self._learn(run, rows, now).items())
        self._told = _encoded(text_of(self._families(rows, now)))

    def _learn(
        self, run: AdminRun, rows: Iterable[_Row], now: float
    ) -> dict[TopicPartition, KafkaError]:
        """Look up when the groups' unread records were written; return errors by partition."""
        read: dict[TopicPartition, list[int]] = {}
        ends: dict[TopicPartition, int] = {}
        for row in rows:
            if row.offset is not None and row.end is not None:
                read.setdefault(row.at, []).append(row.offset)
                ends[row.at] = row.end
        self._times = {at: self._times.get(at) or LogTimes(2 * self._interval) for at in read}
        for at, offsets in read.items():
            self._times[at].seen(ends[at], now)
            self._times[at].keep(min(offsets))
        wanted, failed = set(read), dict[TopicPartition, KafkaError]()
        for _ in range(QUESTIONS):
            asked = {at: self._times[at].question(read[at], now) for at in wanted}
            questions = {at: int(time * 1000) for at, time in asked.items() if time is not None}
            found, errors = offsets_at(run, questions)
            failed |= errors
            for at, listing in found.items():
                written = listing.timestamp_ms
                self._times[at].answered(
                    questions[at] / 1000,
                    listing.offset,
                    None if written is None else written / 1000,
                )
            wanted = set(found)
        return failed

    def pieces(self, admin: Measured) -> list[bytes]:
        """Return the metrics text: the last measurement, its age, client metrics."""
        looked, (looks, failed) = self._looked, self._counts
        own = [
            _single("up", "Whether the last measurement succeeded.", int(self._up)),
            _single("looks_total", "Measurements started.", looks, "counter"),
            _single("looks_failed_total", "Measurements failed.", failed, "counter"),
        ]
        if looked is not None:
            age = self._monotonic() - looked
            own.append(_single("age_seconds", "Age of the reported data. Unit: s.", age))
        return [_encoded(text_of(own)), self._told, _encoded(prometheus_text(admin))]

    def _families(self, rows: list[_Row], now: float) -> Iterator[PrometheusFamily]:
        left_out = max(len(rows) - MOST_ROWS, 0)
        if left_out:
            rows = nlargest(MOST_ROWS, rows, key=lambda row: row.lag or 0)
        offsets = [(row, row.offset) for row in rows if row.offset is not None]
        lags = [(row, row.lag) for row in rows if row.lag is not None]
        seconds = [(row, behind) for row in rows if (behind := self._behind(row, now)) is not None]
        ends = {row.at: row.end for row in rows if row.end is not None}
        states = {g: seen.group for g, seen in self._looks.items()}
        kinds = Counter(map(type, self.failed))
        for name, text, told in (
            ("current_offset", "Committed offset of the group.", offsets),
            ("lag", "Offsets between the committed offset and the log's end.", lags),
            ("lag_seconds", "Seconds since the first unread record was written.", seconds),
        ):
            series = [(_labels(row), value) for row, value in told]
            yield _family(f"kafka_consumergroup_{name}", text, series)
        members = {g: len(d.members) for g, d in states.items()}
        yield _family(
            "kafka_consumergroup_members",
            "Members of the group.",
            [({"consumergroup": g}, count) for g, count in members.items()],
        )
        yield _family(
            "kafka_consumergroup_state",
            "1 for the current state of the group.",
            [({"consumergroup": g, "state": d.state}, 1) for g, d in states.items()],
        )
        yield _family(
            "kafka_topic_partition_current_offset",
            "Log end offset: the offset of the next record.",
            [({"topic": a.topic, "partition": str(a.partition)}, n) for a, n in ends.items()],
        )
        yield _family(
            f"{OWN}errors",
            "Groups, partitions and brokers without data in the last measurement.",
            [({"of": of}, kinds[kind]) for of, kind in KINDS.items()],
        )
        yield _single("look_seconds", "Duration of the last measurement. Unit: s.", self._took)
        text = f"Partitions that are left out, as there are more than {MOST_ROWS}."
        yield _single("partitions_left_out", text, left_out)

    def _behind(self, row: _Row, now: float) -> float | None:
        if row.lag is not None and row.lag <= 0:
            return 0.0
        if row.offset is None or row.at not in self._times:
            return None
        written = self._times[row.at].written(row.offset)
        return None if written is None else max(now - written, 0.0)

    def answer(self, *, told_to_end: bool = False) -> Result:
        """Return the last measurement, as `groups lag` shows it.

        With `told_to_end` (a stopped service), an incomplete measurement isn't an error.
        """
        looks = self._looks.items()
        document = {g: {"state": s.group.state, **rendering.read(s)} for g, s in looks}
        return Result(
            {"groups": document},
            [rendering.sums(self._looks.values())],
            {} if told_to_end else self.failed,
        )


def export(
    run: AdminRun, exporter: LagExporter, where: tuple[str, int], interval: float, count: int | None
) -> Result:
    """Measure and serve until Ctrl-C or SIGTERM, or `count` times; return the last measurement."""
    admin, told = run.admin, set[str]()
    with (
        terminable() as end,
        MetricsEndpoint(*where, lambda: exporter.pieces(admin)) as endpoint,
    ):
        say(f"{run.tool}: serving metrics at {endpoint.url}")
        try:
            for turn in count_from(1):
                began = time.monotonic()
                told = _look(run, exporter, told, last=turn == count)
                run.close()
                if turn == count:
                    break
                time.sleep(max(began + interval - time.monotonic(), 0.0))
        except KeyboardInterrupt:
            if not end.terminated:
                raise
    return exporter.answer(told_to_end=end.terminated)


def _look(run: AdminRun, exporter: LagExporter, told: set[str], *, last: bool = False) -> set[str]:
    """Measure once; print an error once while it persists.

    An error other than a timeout ends the command before the first success, because it could go
    unnoticed; so does any error of the last measurement if none has succeeded.
    """
    try:
        exporter.look(run)
        errors = list(exporter.failed.values())
    except KafkaError as error:
        if not exporter.looked and (last or not isinstance(error, KafkaTimeoutError)):
            raise
        errors = [error]
    # Compare only the first line: others contain attempts and ages, which always differ.
    wrong = {text.partition("\n")[0]: text for text in map(in_words, errors)}
    for text in sorted(wrong[first] for first in wrong.keys() - told):
        say(f"{run.tool}: {text}")
    return set(wrong)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _rows(looks: Mapping[str, GroupSnapshot]) -> Iterator[_Row]:
    for group, seen in looks.items():
        for row in seen.rows:
            yield _Row(group, row.partition, row.committed, row.end, row.lag)
        for at, shared in seen.shared.items():
            yield _Row(group, at, shared.start_offset, None, shared.lag)


def _labels(row: _Row) -> dict[str, str]:
    topic, partition = row.at
    return {"consumergroup": row.group, "topic": topic, "partition": str(partition)}


def _family(
    name: str, text: str, series: Iterable[tuple[dict[str, str], float]], kind: Kind = "gauge"
) -> PrometheusFamily:
    return PrometheusFamily(name, kind, text, [PrometheusSeries(*one) for one in series])


def _single(name: str, text: str, value: float, kind: Kind = "gauge") -> PrometheusFamily:
    return _family(OWN + name, text, [({}, value)], kind)
