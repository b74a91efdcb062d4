"""`odradek simulate explore` and `replay` as they are called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from odradek.cli.simulate import app
from odradek.network.cluster_connection_states import ClusterConnectionStates
from odradek.simulation.schedule import load, random_schedule


def call(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_seeds_are_explored_and_counted() -> None:
    found = call("explore", "--seeds", "3..12", "--family", "plain", "--json")
    assert found.exit_code == 0
    result = json.loads(found.stdout)
    assert (result["first_seed"], result["schedules"], result["failed"]) == (3, 10, [])
    assert result["dials"] > 10
    assert (
        "10 schedules from seed 3 on"
        in call("explore", "--seeds", "3..12", "--family", "plain").stdout
    )


def test_long_schedules_and_a_limit_by_time() -> None:
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
    ],
)
def test_wrong_use(words: list[str]) -> None:
    assert call(*words).exit_code == 2


def test_a_failure_is_shrunk_and_can_be_replayed(
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


def test_a_replay_shows_what_happened() -> None:
    plain = call("replay", "--seed", "3")
    assert plain.exit_code == 0
    assert "every invariant held" in plain.stdout
    assert " ready address=" not in plain.stdout
    assert " ready address=" in call("replay", "--seed", "3", "--trace").stdout
    result = json.loads(call("replay", "--seed", "3", "--json", "--trace").stdout)
    assert result["schedule"]["seed"] == 3
    assert result["violation"] is None
    assert len(result["trace"]) > 5


def test_the_verbs_are_listed() -> None:
    text = call("replay", "--verbs").stdout
    assert "partition: cut one client off from one broker\n    i: a broker's id" in text
