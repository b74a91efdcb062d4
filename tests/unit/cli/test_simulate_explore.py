"""Test `odradek simulate explore` and `replay`, which run random fault schedules."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from odradek.cli.simulate import app
from odradek.network.cluster_connection_states import ClusterConnectionStates
from odradek.simulation.coordinators.committed_offsets import StoredGroupOffsets
from odradek.simulation.runs.random_schedules import random_schedule
from odradek.simulation.runs.schedule import load
from odradek.testing.virtual.virtual_loop import VirtualLoop

HOSTS = ("simulated", "asyncio", "moody-asyncio")


def call(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_explore_runs_and_counts_the_fault_schedules_of_a_range_of_seeds() -> None:
    found = call("explore", "--seeds", "3..12", "--family", "plain", "--json")
    assert found.exit_code == 0
    result = json.loads(found.stdout)
    assert (result["first_seed"], result["schedules"], result["failed"]) == (3, 10, [])
    assert result["dials"] > 10
    assert sum(result["faults"]["drawn"].values()) >= 10
    assert (
        "10 schedules from seed 3 on"
        in call("explore", "--seeds", "3..12", "--family", "plain").stdout
    )


@pytest.mark.slow
def test_faults_that_took_effect_are_counted() -> None:
    found = call("explore", "--seeds", "1..6", "--family", "groups", "--json")
    faults = json.loads(found.stdout)["faults"]
    assert faults["took_effect"]["coordinator moved and loaded its state"] > 0
    assert "faults took effect: " in call("explore", "--seeds", "1..6", "--family", "groups").stdout


def test_explore_can_run_long_schedules_and_stop_after_a_time() -> None:
    assert (
        json.loads(call("explore", "--seeds", "7", "--family", "plain", "--long", "--json").stdout)[
            "schedules"
        ]
        == 1
    )
    result = json.loads(call("explore", "--seconds", "0", "--json").stdout)
    assert result["schedules"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["explore"],
        ["explore", "--seeds", "a..b"],
        ["explore", "--seeds", "9..3"],
        ["explore", "--seconds", "-1"],
        ["replay"],
        ["replay", "nothing.json"],
        ["replay", "nothing.json", "--seed", "1"],
        ["explore", "--seeds", "1", "--host", "uvloop"],
        ["replay", "--seed", "1", "--host", "uvloop"],
    ],
)
def test_wrong_arguments_are_rejected(words: list[str]) -> None:
    assert call(*words).exit_code == 2


def test_the_directory_for_failures_is_checked_before_the_first_schedule(tmp_path: Path) -> None:
    for place, status in ((tmp_path / "new" / "folder", 0), (tmp_path / "file", 2)):
        (tmp_path / "file").touch()
        assert call("explore", "--seeds", "7", "--directory", str(place)).exit_code == status
    assert (tmp_path / "new" / "folder").is_dir()


@pytest.mark.slow
def test_schedules_have_the_same_result_on_the_asyncio_host() -> None:
    seeds = ("explore", "--seeds", "3..8", "--family", "plain", "--json")
    found = {host: json.loads(call(*seeds, "--host", host).stdout) for host in HOSTS}
    for host, result in found.items():
        assert (result["host"], result["failed"]) == (host, [])
    same = ("schedules", "virtual_seconds", "dials", "requests", "records")
    for name in same:
        assert found["asyncio"][name] == found["simulated"][name], name
    traces = [
        json.loads(call("replay", "--seed", "3", "--trace", "--json", "--host", host).stdout)
        for host in HOSTS
    ]
    assert [one["host"] for one in traces] == list(HOSTS)
    assert traces[0]["trace"] == traces[1]["trace"]


@pytest.mark.slow
def test_a_schedule_that_fails_only_on_the_asyncio_host_is_shrunk_and_replayed_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The failure is an event loop that never reports readable sockets."""

    def deaf(*_: object) -> None:
        """Never report that a socket is readable."""

    monkeypatch.setattr(VirtualLoop, "add_reader", deaf)
    commands = sys.modules["odradek.cli.simulate.explore"]
    monkeypatch.setattr(commands, "SHRINK_SECONDS", 0.5)
    directory = ("--directory", str(tmp_path))
    assert call("explore", "--seeds", "3", *directory).exit_code == 0
    found = call("explore", "--seeds", "3", "--host", "asyncio", *directory)
    assert found.exit_code == 1
    assert "replay it: odradek simulate replay --seed 3 --host asyncio\n" in found.stdout
    path = tmp_path / "failing-seed-3.json"
    assert f"shrunk: odradek simulate replay {path} --host asyncio\n" in found.stdout
    for host, status in (("asyncio", 1), ("simulated", 0)):
        assert call("replay", str(path), "--host", host).exit_code == status


@pytest.mark.slow
def test_a_failing_schedule_is_shrunk_and_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ClusterConnectionStates, "backoff_left", lambda *_: 0.0)
    found = call("explore", "--seeds", "0..99", "--directory", str(tmp_path))
    assert found.exit_code == 1
    (path,) = tmp_path.glob("failing-seed-*.json")
    seed = int(path.stem.split("-")[-1])
    assert f"replay it: odradek simulate replay --seed {seed}\n" in found.stdout
    small, whole = load(path), random_schedule(seed)
    assert len(small.to_json()) < len(whole.to_json())
    for words in (("--seed", str(seed)), (str(path),)):
        again = call("replay", *words)
        assert again.exit_code == 1
        assert "too soon" in again.stdout
    monkeypatch.undo()
    assert call("replay", str(path)).exit_code == 0


def test_replay_prints_the_trace_on_request() -> None:
    plain = call("replay", "--seed", "3")
    assert plain.exit_code == 0
    assert "every invariant held" in plain.stdout
    assert " ready address=" not in plain.stdout
    assert " ready address=" in call("replay", "--seed", "3", "--trace").stdout
    result = json.loads(call("replay", "--seed", "3", "--json", "--trace").stdout)
    assert result["schedule"]["seed"] == 3
    assert result["violation"] is None
    assert len(result["trace"]) > 5


def test_replay_lists_the_faults_of_the_schedule() -> None:
    text = call("replay", "--verbs").stdout
    assert "partition: cut one client off from one broker\n    i: a broker's id" in text


@pytest.mark.slow
@pytest.mark.parametrize("family", ["groups", "read-process-write", "operators"])
def test_failing_schedules_of_other_families_are_shrunk_and_can_be_replayed(
    family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert call("explore", "--seeds", "3", "--family", family).exit_code == 0
    commit = StoredGroupOffsets.commit

    def further(self: StoredGroupOffsets, partition: Any, committed: Any) -> None:
        commit(self, partition, type(committed)(committed.offset + 50))

    commands = sys.modules["odradek.cli.simulate.explore"]  # a function has the module's name
    monkeypatch.setattr(commands, "SHRINK_SECONDS", 0.2)
    monkeypatch.setattr(StoredGroupOffsets, "commit", further)
    if family == "read-process-write":  # offsets of transactions are stored by another method
        monkeypatch.setattr(StoredGroupOffsets, "pend", nothing_pends)
    last = 3 if family == "read-process-write" else 12
    words = ("explore", "--seeds", f"3..{last}", "--family", family, "--directory", str(tmp_path))
    found = call(*words)
    assert found.exit_code == 1
    (path,) = tmp_path.glob("failing-seed-*.json")
    seed = int(path.stem.split("-")[-1])
    assert f"replay it: odradek simulate replay --seed {seed} --family {family}\n" in found.stdout
    assert call("replay", "--seed", str(seed), "--family", family).exit_code == 1
    assert call("replay", str(path)).exit_code == 1
    monkeypatch.undo()
    assert call("replay", str(path), "--trace").exit_code == 0


def nothing_pends(self: StoredGroupOffsets, *_: Any) -> None:
    """Store no offsets of transactions, as a bug would."""
