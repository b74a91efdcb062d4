"""Test `odradek pipeline resolve`: which sink is resolved, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from odradek.cli.pipeline import app, resolving
from odradek.cli.pipeline.lock import locked
from odradek.spark.sink.resolving import BatchState, Remedy, Resolution, TaskPart

PARTS = (TaskPart(0, "odradek-q-sink-0", 3, True), TaskPart(2, "odradek-q-sink-2", 1, False))
SPEC = """
name: n
storage: state
clusters: {main: {bootstrap.servers: "h:1"}}
sources: {s: {options: {subscribe: a}}}
sinks:
  one: {from: s, delivery: exactly_once, options: {topic: b, sinkName: mine}}
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    place = tmp_path / "state" / "checkpoints" / "one"
    (place / "offsets").mkdir(parents=True)
    (place / "offsets" / "4").write_text("v1\n")
    (place / "metadata").write_text('{"id":"q"}')
    (tmp_path / "spec.yml").write_text(SPEC)
    return place


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def resolve(options: Any, query: str, batch: int | None, choice: Remedy, **_: Any) -> Any:
        found.append((options.sink_name, options.transactional_id_prefix, query, batch, choice))
        outcome = BatchState.PARTLY if choice is Remedy.NONE else BatchState.ACCEPTED
        return Resolution(query, batch, outcome, PARTS)

    monkeypatch.setattr(resolving, "resolve", resolve)
    return found


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["resolve", *words])


def test_accept_loss_and_repeat_are_shown_with_the_rows_lost_or_repeated(
    checkpoint: Path, called: list[Any]
) -> None:
    there = ["--bootstrap-server", "h:1"]
    result = run(str(checkpoint), *there)
    assert (result.exit_code, called) == (1, [("sink", "odradek", "q", 4, Remedy.NONE)])
    assert "sink partition 0: 3 rows committed (odradek-q-sink-0)" in result.stdout
    assert "sink partition 2: 1 row not committed" in result.stdout
    assert "--accept-loss (lost: 1 row)" in result.stdout
    assert "--repeat (written a second time: 3 rows)" in result.stdout
    result = run(str(checkpoint), *there, "--accept-loss", "--sink-name", "x", "--json")
    assert (result.exit_code, called[1][0], called[1][4]) == (0, "x", Remedy.ACCEPT_LOSS)
    found = json.loads(result.stdout)
    assert (found["outcome"], found["committed_rows"], found["missing_rows"]) == ("accepted", 3, 1)
    assert found["parts"][1]["committed"] is False
    result = run(str(checkpoint), *there, "--accept-loss", "--repeat")
    assert result.exit_code == 2


def test_a_checkpoint_that_a_running_query_uses_is_rejected(
    checkpoint: Path, called: list[Any]
) -> None:
    there = ["--bootstrap-server", "h:1"]
    with locked([str(checkpoint)]):
        result = run(str(checkpoint), "--accept-loss", *there)
    assert result.exit_code == 1
    assert "another process is running a query with the checkpoint" in result.output
    assert called == []
    assert run(str(checkpoint), "--accept-loss", *there).exit_code == 0


def test_the_options_of_the_sink_are_read_from_the_pipelines_file(
    checkpoint: Path, called: list[Any], tmp_path: Path
) -> None:
    result = run(str(checkpoint), "--spec", str(tmp_path / "spec.yml"), "--repeat")
    assert (result.exit_code, called) == (0, [("mine", "odradek", "q", 4, Remedy.REPEAT)])
    other = tmp_path / "other"
    result = run(str(other), "--spec", str(tmp_path / "spec.yml"))
    assert result.exit_code == 2
    assert "is not the checkpoint of a query" in result.output
    assert "--query" in result.output
    other.mkdir()
    (other / "metadata").write_text('{"id":"q"}')
    result = run(str(other), "--spec", str(tmp_path / "spec.yml"))
    assert result.exit_code == 2
    assert "has no sink with the checkpoint" in result.output


def test_a_batch_job_is_selected_by_query_and_batch_instead_of_a_checkpoint(
    checkpoint: Path, called: list[Any], tmp_path: Path
) -> None:
    there = ["--bootstrap-server", "h:1"]
    result = run("--query", "job", "--batch", "7", *there)
    assert (result.exit_code, called) == (1, [("sink", "odradek", "job", 7, Remedy.NONE)])
    for words in ([], [str(checkpoint), "--query", "q"], [str(checkpoint), "--batch", "1"]):
        assert run(*words, *there).exit_code == 2
    assert run("--query", "q", "--spec", str(tmp_path / "spec.yml")).exit_code == 2
    assert len(called) == 1


@pytest.mark.parametrize("outcome", BatchState)
def test_every_state_of_a_batch_is_printed_with_the_next_step(outcome: BatchState) -> None:
    text = resolving.lines(Resolution("q", 4, outcome))[-1]
    assert "start the query" in text
    assert text.startswith("Batch 4")
    assert resolving.lines(Resolution("q", None, outcome))[-1].startswith("The sink")
