"""`odradek simulate groups` as it is called."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from odradek.cli.simulate import app
from odradek.simulation.committed_offsets import CommittedOffsets


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["groups", *words])


def test_seeds_are_run_and_counted() -> None:
    found = call("--seeds", "3..7")
    assert found.exit_code == 0
    assert "5 groups from seed 3 on" in found.stdout
    assert "0 violated an invariant" in found.stdout
    assert "0 groups from seed" in call("--seconds", "0").stdout


def test_one_run_in_full() -> None:
    found = call("--seeds", "3", "--trace")
    assert found.exit_code == 0
    assert found.stdout.startswith("seed 3: 3 brokers")
    assert "state=stable" in found.stdout
    assert found.stdout.endswith("every invariant held\n")


@pytest.mark.parametrize("words", [[], ["--seeds", "a..b"], ["--seeds", "9..3"]])
def test_wrong_use(words: list[str]) -> None:
    assert call(*words).exit_code == 2


def test_a_violation_is_shown_with_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = CommittedOffsets.commit

    def further(self: CommittedOffsets, partition: Any, committed: Any) -> None:
        commit(self, partition, type(committed)(committed.offset + 50))

    monkeypatch.setattr(CommittedOffsets, "commit", further)
    found = call("--seeds", "3..4")
    assert found.exit_code == 1
    assert "is the end of what was handed out" in found.stdout
    assert "\nseed 3: 3 brokers" in found.stdout
    assert call("--seeds", "3", "--trace").exit_code == 1
