"""The soak's checker can fail: a lost, duplicated or unread record is found and reported.

Other faults of a history are found by the history checker: `unit/simulation/test_history.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import pytest
from tests.soak import soak, witness
from tests.soak.judgement import Judge, Rows
from tests.soak.troubles import MORE_TROUBLES, TROUBLES
from tests.unit.tools.loading import load_tool

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, CallResult, History

ROOT = Path(__file__).resolve().parents[3]
IN, OUT = TopicPartition("in", 0), TopicPartition("out-classic", 0)
GROUP = "chain-classic"


class World:
    """A history of four source records, two transactions and a reader, and its topics' logs."""

    def __init__(self) -> None:
        self.history = History(time.monotonic)
        self.logs: dict[str, Rows] = {"in": {0: []}, "out-classic": {0: []}}
        self.ours: dict[str, Rows] | None = None
        self.committed = 4
        self.seen: set[int] = set()
        for n in range(4):
            made = self.history.sent("source", IN, f"s/{n}")
            made.acknowledged(n)
            self.logs["in"][0].append((n, f"s/{n}"))
        for first in (0, 2):
            made = self.history.begin("chain", 1, group=GROUP)
            seen: list[tuple[int, str]] = []
            for n in (first, first + 1):
                self.history.read("chain's consumer", IN, [(n, f"s/{n}")])
                made.consumed(IN, n)
                offset = n + first // 2  # a transaction marker lies between the transactions
                made.wrote(OUT, f"o/{n}").offset = offset
                seen.append((offset, f"o/{n}"))
                self.logs["out-classic"][0].append((offset, f"o/{n}"))
                self.seen.add(offset)
            made.commits()
            made.ended()
            self.history.read("reader", OUT, seen)

    # Methods with which `Judge` reads the cluster

    def rows(self, topic: str) -> Rows:
        return self.logs[topic]

    def our_rows(self, topic: str) -> Rows:
        return (self.ours or self.logs)[topic]

    def offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        assert group == GROUP
        return {IN: (self.committed, 4)}

    def judged(self) -> list[str]:
        judge = Judge(self.history, self, ["in", "out-classic"])
        judge.read()
        judge.compare([GROUP])
        behind = judge.not_worked_off([GROUP])
        unread = judge.unread("out-classic", [{OUT: self.seen}, {}])
        return [*judge.failures, *filter(None, [behind]), *(f"unread: {u}" for u in unread)]


def test_a_soak_without_faults_has_no_failure() -> None:
    assert World().judged() == []


def lose(world: World, topic: str, at: int) -> None:
    del world.logs[topic][0][at]


def double(world: World, topic: str) -> None:
    offset, value = world.logs[topic][0][-1]
    world.logs[topic][0].append((offset + 2, value))


def never(world: World) -> None:
    """Add an acknowledged record that is in no log and was never read."""
    made = world.history.sent("source", IN, "s/4")
    made.acknowledged(4)


def miss(world: World) -> None:
    world.ours = deepcopy(world.logs)
    del world.ours["out-classic"][0][2]


def forget(world: World) -> None:
    """Remove the records of a transaction whose commit was acknowledged to the producer."""
    made = world.history.transactions[-1]
    world.logs["out-classic"][0] = world.logs["out-classic"][0][:2]
    world.history.polls[-1].seen.clear()
    assert made.result is CallResult.OK


def no_unknown(world: World) -> None:
    world.logs["in"][0].append((4, "nobody's"))


def empty(world: World) -> None:
    world.logs["out-classic"][0].clear()


PLANTS: dict[str, tuple[Callable[[World], object], str]] = {
    "an acknowledged record that never was": (never, "lost write"),
    "a lost record of the source": (lambda w: lose(w, "in", 1), "skipped 's/1'"),
    "a lost record at the end": (lambda w: lose(w, "in", 3), "skipped 's/3'"),
    "a lost record of a chain": (lambda w: lose(w, "out-classic", 1), "'o/1'"),
    "a lost transaction": (forget, "lost write"),
    "a doubled record of the source": (lambda w: double(w, "in"), "duplicate"),
    "a doubled record of a chain": (lambda w: double(w, "out-classic"), "duplicate"),
    "a record that our reader misses": (miss, "odradek#0 at out-classic-0: skipped"),
    "a record that no producer wrote": (no_unknown, "unwritten read"),
    "a group that doesn't get to the end": (
        lambda w: setattr(w, "committed", 3),
        "chain-classic in-0 3 of 4",
    ),
    "a record that no reader of a group has read": (
        lambda w: w.seen.discard(3),
        "unread: out-classic-0 at 3",
    ),
    "a topic with nothing in it": (empty, "out-classic is empty"),
}


@pytest.mark.parametrize("name", PLANTS)
def test_each_artificial_fault_in_a_history_is_found(name: str) -> None:
    plant, expected = PLANTS[name]
    world = World()
    plant(world)
    found = world.judged()
    assert any(expected in failure for failure in found), found


def test_a_group_whose_offsets_cannot_be_read_is_a_failure_and_hides_no_other_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offsets(group: str) -> dict[TopicPartition, tuple[int, int]]:
        raise OSError("NOT_COORDINATOR")

    world = World()
    lose(world, "out-classic", 1)
    monkeypatch.setattr(world, "offsets", offsets)
    assert "can't be read" in Judge(world.history, world, ["in"]).not_worked_off([GROUP])
    first, *others = world.judged()
    assert "NOT_COORDINATOR" in first
    assert any("'o/1'" in other for other in others)


def test_a_soak_in_which_no_record_was_read_fails() -> None:
    world = World()
    judge = Judge(world.history, world, ["in", "out-classic"])
    judge.compare([GROUP])
    assert judge.failures != []


class FakeRun:
    """A replacement of `tests.soak.soak.run` that returns prepared reports and records plans."""

    def __init__(self, *reports: soak.Report) -> None:
        self.reports, self.plans, self.kept = list(reports), list[soak.Plan](), list[Path]()

    def __call__(self, plan: soak.Plan, say: Callable[[str], None], keep: Path) -> soak.Report:
        self.plans.append(plan)
        self.kept.append(keep)
        say("a line")
        report = self.reports.pop(0)
        report.seed = plan.seed
        return report


def told(
    run: FakeRun, monkeypatch: pytest.MonkeyPatch, path: Path, *args: str
) -> tuple[int, dict[str, Any]]:
    tool: Any = load_tool("soak")
    monkeypatch.setattr(tool, "run", run)
    monkeypatch.setattr("sys.argv", ["soak.py", "--seed", "5", "--json", str(path), *args])
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(path.read_text())


@pytest.mark.parametrize("failures", [[], ["lost write: a record"]])
def test_the_exit_status_and_the_report_show_the_result(
    failures: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = FakeRun(soak.Report(trouble_seconds=120.0, failures=failures))
    code, document = told(run, monkeypatch, tmp_path / "deep" / "soak.json", "--minutes", "2")
    assert code == (1 if failures else 0)
    [one] = document["rounds"]
    assert (document["ok"], one["failures"], one["seed"]) == (not failures, failures, 5)
    [plan] = run.plans
    assert (plan.seconds, set(plan.troubles)) == (120.0, {*TROUBLES, *MORE_TROUBLES})
    assert (tmp_path / "deep" / "soak.html").read_text().startswith("<!DOCTYPE html>")
    assert ("FAILED" in capsys.readouterr().out) == bool(failures)


def test_a_long_soak_fails_if_a_required_kind_of_fault_never_happened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The faults of all rounds are counted; a short soak needn't have each kind of fault."""
    counts = [{"kill": 3, "move": 0, "roll": 0}, {"kill": 0, "move": 2, "roll": 0}]
    for minutes, code, missed in (("14", 0, 0), ("60", 1, 1)):
        seconds = float(minutes) * 30
        run = FakeRun(*(soak.Report(trouble_seconds=seconds, coverage=one) for one in counts))
        ended, document = told(run, monkeypatch, tmp_path / "soak.json", "--minutes", minutes)
        assert (ended, document["ok"], len(document["missed"])) == (code, not code, missed)
        assert all("roll" in text for text in document["missed"])
        assert document["coverage"] == {"kill": 3, "move": 2, "roll": 0}


def test_a_long_soak_is_split_into_rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If a round ends early, because Kafka lost a group, another round replaces the lost time."""
    lost = {"chain-consumer": "java.lang.IllegalStateException"}
    run = FakeRun(
        soak.Report(trouble_seconds=1800.0),
        soak.Report(trouble_seconds=600.0, lost_groups=lost),
        soak.Report(trouble_seconds=1800.0),
        soak.Report(trouble_seconds=600.0),
    )
    code, document = told(run, monkeypatch, tmp_path / "soak.json", "--minutes", "80")
    assert (code, document["ok"]) == (0, True)
    assert [plan.seconds for plan in run.plans] == [1800.0, 1800.0, 1800.0, 600.0]
    assert [plan.seed for plan in run.plans] == [5, 6, 7, 8]
    assert [path.name for path in run.kept] == [f"soak-{n}.json" for n in range(4)]
    assert [one["lost_groups"] for one in document["rounds"]] == [{}, lost, {}, {}]


@pytest.mark.parametrize("seconds", [0, 30])
def test_a_short_soak_has_one_round_and_a_remainder_of_seconds_is_dropped(
    seconds: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a round of a few seconds, no record would be read, and the round would fail."""
    run = FakeRun(soak.Report(trouble_seconds=0.0 if not seconds else 1770.0))
    minutes = "30" if seconds else "0"
    code, document = told(run, monkeypatch, tmp_path / "soak.json", "--minutes", minutes)
    assert (code, len(document["rounds"])) == (0, 1)


def test_a_long_soak_ends_with_the_first_failed_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = FakeRun(
        soak.Report(trouble_seconds=1800.0), soak.Report(trouble_seconds=3.0, failures=["lost"])
    )
    code, document = told(run, monkeypatch, tmp_path / "soak.json", "--minutes", "120")
    assert (code, document["ok"], len(run.plans)) == (1, False, 2)
    assert [one["ok"] for one in document["rounds"]] == [True, False]


FAILED = (
    "2026-11-23T11:05:42,504 ERROR o.a.k.c.c.r.CoordinatorRuntime Failed to load metadata from "
    "__consumer_offsets-2 with epoch 79 due to {why}.\n{class_name}: {why}\n\tat L.main(L.java:3)\n"
)
"""A line of a broker's log: Kafka 4.3.1 can't load a group."""
GONE = FAILED.format(
    why="Cannot set the epoch of y0m5-2 to 2 because the partition is still owned at epoch 759",
    class_name="java.lang.IllegalStateException",
)
REPLAYING = (
    "2026-11-24T01:44:51,077 ERROR o.a.k.c.c.r.CoordinatorRuntime [Group id=2] Failed to "
    "load metadata from __consumer_offsets-2 with epoch 72 due to {why} failed..\n"
    "java.lang.RuntimeException: {why} failed.\n"
    "\tat org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl.lambda$0(L.java:292)\n"
    "\tat java.base/java.util.Optional.ifPresent(Optional.java:178)\n"
    "Caused by: java.lang.IllegalStateException: Cannot set the epoch of BJMw-3 to 2 because the "
    "partition is still owned at epoch 759\n\t... 9 more\n"
).format(why="Replaying record CoordinatorRecord(key=K(groupId='chain-consumer'), value=V(a=2))")
"""A line of a broker's log in a real soak, with the record and a wrapped cause."""
BUSY = FAILED.format(
    why="gone", class_name="org.apache.kafka.common.errors.NotLeaderOrFollowerException"
)


LOADED_TWICE = (
    "2026-12-03T06:17:50,112 INFO [GroupCoordinator id=1] Scheduling loading of metadata from "
    "__consumer_offsets-2 with epoch {first}\n"
    "2026-12-03T06:17:50,531 INFO [GroupCoordinator id=1] Finished unloading metadata for "
    "__consumer_offsets-2 with epoch OptionalInt[35].\n"
    "2026-12-03T06:17:51,237 INFO [GroupCoordinator id=1] Scheduling loading of metadata from "
    "__consumer_offsets-2 with epoch 36\n"
    "2026-12-03T06:17:52,864 INFO [GroupCoordinator id=1] Finished loading of metadata from "
    "__consumer_offsets-2 with epoch {first} in 2534ms where 2252ms was spent in the scheduler.\n"
)
"""Lines of a soak on Kafka 4.4.0. The coordinator then returned no offsets, and later old ones."""


class FakeCluster:
    """A fake cluster of which only the brokers' logs are read."""

    broker_addresses = ("a:1", "b:2")

    def __init__(self, *logs: str) -> None:
        self._logs = logs

    def client_config(self) -> dict[str, object]:
        return {}

    librdkafka_config = client_config

    def logs(self, i: int) -> str:
        return self._logs[i]


@pytest.mark.parametrize(
    ("log", "lost"),
    [
        ("", []),
        (BUSY, []),
        (GONE, ["chain-consumer"]),
        (BUSY + GONE, ["chain-consumer"]),
        (REPLAYING, ["chain-consumer"]),
        (LOADED_TWICE.format(first=34), ["chain-consumer"]),
        (LOADED_TWICE.format(first=36), []),
    ],
)
def test_groups_that_kafka_lost_are_found_in_its_logs(
    log: str, lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeConsumer:
        def __init__(self, config: object) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def partitions_for(self, topic: str, timeout: float) -> range:
            assert topic == "__consumer_offsets"
            return range(5)

    monkeypatch.setattr(witness, "Consumer", FakeConsumer)
    there: Any = FakeCluster("all is well\n", log)
    found = witness.ClusterWitness(there, "in", 1, 1.0).lost_groups(
        # The last group's hash is negative, and its partition 1.
        ["chain-classic", "chain-consumer", "group-cooperative"]
    )
    assert list(found) == lost
    reasons = ("still owned at epoch 759", "load for leader epoch 34 has activated")
    assert all(any(reason in line for reason in reasons) for line in found.values())


def test_several_threads_can_write_to_one_history() -> None:
    clock = iter(range(1 << 30))
    history = soak.SharedHistory(lambda: next(clock) // 100)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            names = [f"client-{number}" for number in range(4)] * 100
            list(pool.map(lambda name: history.invoke(CallKind.POLL, name).ended(), names))
    finally:
        sys.setswitchinterval(before)
    made = history.operations
    assert [one.number for one in made] == list(range(400))
    times = [one.invoked for one in made]
    assert times == sorted(set(times))
