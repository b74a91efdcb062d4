"""Each command runs while the cluster moves; only the bootstrap address remains.

Each command also runs before and after the move, and while no broker is up. Commands that read
return their answer, commands that change something return it or a typed error, and all end within
`--timeout`.
"""

from __future__ import annotations

import json
import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.property.test_refused_verbs import TREE, VERBS, Scene
from tests.volume import PART, pairs

from odradek.cli.frame import commands
from odradek.simulation.brokers.cluster import OldAddresses

AWAY = 2.0
"""Seconds without any broker."""
PATIENCE = 30.0
"""The value of `--timeout`."""
GRACE = 0.1
MOMENTS = {"amid": None, "away": 0.0}
"""Seconds into the command at which the move starts; None chooses them randomly."""
FIRST = {" ".join(line.split()[:2]): line for line in reversed(VERBS)}
LINES = VERBS if PART == 1 else list(FIRST.values())[::2]


def test_every_command_is_tested() -> None:
    assert {" ".join(line.split()[:2]) for line in VERBS} == set(TREE)


class Moving(Scene):
    """A cluster that moves, and a command in virtual time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__(patch)
        time: Any = SimpleNamespace(monotonic=lambda: self.world.now)
        patch.setattr(commands, "time", time)

    def tried(self, line: str) -> tuple[int, dict[str, Any]]:
        """Run a command, which must end in time; return its exit status and last document."""
        begin = self.world.now
        done = self.run(line, timeout=PATIENCE)
        assert self.world.now - begin <= PATIENCE + GRACE, line
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        assert done.exit_code in (0, 1), done.output
        documents = [json.loads(each) for each in done.stdout.splitlines()]
        if done.exit_code:
            error = documents[-1].get("error")
            errors = [error] if error else [*documents[-1]["failed"].values()]
            assert errors, done.output
            assert all(e["error"].endswith("Error") and e["message"] for e in errors), errors
        return done.exit_code, documents[-1]


@pytest.mark.parametrize(("line", "moment"), pairs(LINES, MOMENTS))
def test_each_command_works_while_the_cluster_moves(
    line: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Moving(monkeypatch)
    line = " ".join(scene.spelt(line))  # leaders are unknown without brokers
    changes = TREE[" ".join(line.split()[:2])] and "--dry-run" not in line
    rng = random.Random(f"{line} {moment}")
    try:
        if not changes:
            assert scene.tried(line)[0] == 0, "before"
        after = MOMENTS[moment]
        old: OldAddresses = rng.choice(("refused", "blackholed"))
        go = partial(scene.cluster.move, after=AWAY, old=old)
        if after == 0.0:
            go()
        else:
            scene.world.after(rng.uniform(0.0, 0.08), go)
        status, found = scene.tried(line)
        assert changes or status == 0, found
        scene.world.advance(AWAY + 1.0)
        status, found = scene.tried(line)
        assert changes or status == 0, ("afterwards", found)
    finally:
        scene.close()
