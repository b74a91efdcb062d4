"""Test options, output and exit statuses of `odradek simulate recovery` and `fleet`."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from odradek.cli.simulate import app
from odradek.cli.simulate.collector import ALLOCATIONS, seldom_collecting
from odradek.simulation.measurements.fleet import Load
from odradek.simulation.measurements.fleet_slices import FleetPlan, Slice
from odradek.simulation.world.world import EPOCH

runner = CliRunner()


def said(*words: str, status: int = 0) -> str:
    result = runner.invoke(app, words)
    assert result.exit_code == status, result.output
    return result.stdout


def found(*words: str, status: int = 0) -> Any:
    return json.loads(said(*words, "--json", status=status).strip().splitlines()[-1])


def test_the_recovery_times_of_one_setting_are_printed_as_json() -> None:
    one = found("recovery", "--brokers", "2", "--fault", "refused", "--runs", "3")
    assert one["settings"]["runs"] == one["runs"] == 3
    assert (one["brokers"], one["fault"], one["strategy"]) == (2, "refused", "odradek")
    assert 0 < one["contact"]["p50"] <= one["contact"]["p99"] <= one["ack"]["p99"] < 2
    assert one["dials"]["p50"] >= 2
    assert 1 <= one["dials"]["max_per_s"] <= 6
    assert one["metadata_requests"]["p50"] >= 1


@pytest.mark.slow
def test_the_recovery_times_of_several_settings_are_printed_as_a_table() -> None:
    words = ("--brokers", "1,2", "--fault", "refused,dns-moved", "--strategy", "odradek,java")
    text = said("recovery", *words, "--runs", "2")
    assert len(text.splitlines()) == 1 + 8


def test_a_recovery_goal_that_is_missed_fails_the_command() -> None:
    """Within a limit of 1 s no client can recover, so the client counts as never recovered."""
    words = ("recovery", "--brokers", "1", "--fault", "silent", "--runs", "1", "--limit", "1")
    assert found(*words, status=1)["never"] == 1
    assert found(*words, "--strategy", "java")["missed"]  # goals apply only to odradek's strategy


@pytest.mark.parametrize(
    "words",
    [
        ("recovery", "--fault", "sunshine"),
        ("recovery", "--strategy", "hope"),
        ("recovery", "--brokers", "many"),
        ("recovery", "--brokers", "0"),
        ("fleet", "--policy", "hope"),
        ("fleet", "--picture", "picture.gif"),
        ("fleet", "--set", "retry.backoff.ms"),
        ("fleet", "--set", "retry.backoff.ms=soon"),
        ("fleet", "--set", "retry.backof.ms=100"),
    ],
)
def test_wrong_arguments_are_rejected(words: tuple[str, ...]) -> None:
    said(*words, status=2)


@pytest.mark.slow
def test_the_result_of_a_fleet_simulation_is_printed_as_json_and_drawn(tmp_path: Path) -> None:
    file = tmp_path / "fleet.svg"
    words = ("--clients", "20", "--outage", "5", "--policy", "odradek,java")
    both = found("fleet", *words, "--picture", str(file))["results"]
    assert [one["policy"] for one in both] == ["odradek", "java"]
    assert both[0]["missed"] == []
    for phase in ("before", "during", "after"):
        assert [broker["broker"] for broker in both[0][phase]] == [1, 2, 3]
    assert sum(broker["dials_per_s"]["mean"] for broker in both[0]["during"]) > 10
    assert file.read_text().startswith("<svg")


@pytest.mark.slow
def test_the_progress_of_a_fleet_simulation_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first group of simulated clients must be small, so that progress is printed early."""
    monkeypatch.setattr(sys.modules["odradek.cli.simulate.fleet"], "SHOWN_EVERY", 0.0)
    words = ("fleet", "--clients", "200", "--outage", "1", "--brokers", "1")
    shown = runner.invoke(app, words).stderr.splitlines()
    assert shown[0] == "0 of 200 clients"
    assert shown[1].startswith("2 of 200 clients, ")
    assert len(shown) == 101


def test_the_result_of_a_fleet_simulation_is_printed_as_text() -> None:
    text = said("fleet", "--clients", "10", "--outage", "2", "--brokers", "1")
    assert "connection attempts per client" in text
    assert "10 clients back" in text


FEW = ("--clients", "6", "--outage", "2", "--brokers", "2", "--slice", "2")


@pytest.mark.slow
def test_an_interrupted_fleet_simulation_continues_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fleet", *FEW, "--set", "reconnect.backoff.max.ms=1000,5000")
    folder = tmp_path / "tables"
    kept = (*words, "--tables", str(folder))
    run, limit = FleetPlan.run, 4
    done: list[int] = []

    def noted(plan: FleetPlan, part: Slice) -> Load:
        if len(done) == limit:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:  # Spark's Arrow reader hides the interrupt like this
                raise RuntimeError("no answer from the server") from None
        done.append(part.number)
        return run(plan, part)

    with monkeypatch.context() as patched:
        patched.setattr(FleetPlan, "run", noted)
        stopped = runner.invoke(app, kept)
    assert stopped.exit_code == 130
    assert "to continue from" in stopped.stderr
    assert done == [0, 1, 2, 3]
    said(
        "fleet", *FEW, "--tables", str(folder), status=2
    )  # the tables belong to another simulation
    with monkeypatch.context() as patched:
        patched.setattr(FleetPlan, "run", noted)
        limit = 6
        taken_up = found(*kept)["results"]
    assert done == [0, 1, 2, 3, 4, 5]
    for one, other in zip(taken_up, found(*words)["results"], strict=True):
        for name in ("seconds", "ms_per_client"):
            one.pop(name), other.pop(name)
        assert one == other
    assert sorted(path.name for path in folder.iterdir()) == [
        "load.parquet",
        "recovery.parquet",
        "tries.parquet",
    ]
    load = pq.read_table(folder / "load.parquet").to_pylist()
    assert set(load[0]) == {
        *("policy", "setting", "broker", "window_s", "accepted", "refused", "metadata")
    }
    assert all((row["refused"] == 0) == (not 0 <= row["window_s"] < 2) for row in load)
    back = pq.read_table(folder / "recovery.parquet").to_pylist()
    assert {row["setting"] for row in back} == {
        f"reconnect.backoff.max.ms={ms}" for ms in (1000, 5000)
    }
    assert sum(row["clients"] for row in back) == 12


def test_events_of_simulated_clients_have_the_format_of_real_clients(tmp_path: Path) -> None:
    text = said(
        "fleet", *FEW, "--events", str(tmp_path), "--sample", "3", "--policy", "java,odradek"
    )
    assert "half back" in text  # the table that compares the policies
    files = sorted(tmp_path.iterdir())
    lines = [json.loads(line) for line in files[1].read_text().splitlines()]
    assert {line["client"] for line in lines} == {"odradek-0", "odradek-2", "odradek-4"}
    assert {"dial", "dial_failed", "first_ack"} <= {line["kind"] for line in lines}
    assert all(line["time"] > EPOCH for line in lines)


def test_the_garbage_collectors_threshold_is_restored_after_a_simulation() -> None:
    before = gc.get_threshold()
    with seldom_collecting():
        assert gc.get_threshold()[0] >= ALLOCATIONS
    assert gc.get_threshold() == before
