"""Run each scripted case on the asyncio I/O host too: the same expectations, the same trace.

The traces are equal including their times. By default every eighth file runs once (in a whole run
each file), with one of its clients and variants in turn; `ODRADEK_SPEC_SEEDS=5` runs all of them,
as often as the engine's own tests do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spec.cases import clients, load, scripted, variants
from tests.spec.script import Script
from tests.spec.world import World
from tests.volume import some

from odradek.simulation import assert_same
from odradek.simulation.world.world import HostMaker
from odradek.testing.virtual.world_host import WorldAsyncioHost

pytestmark = pytest.mark.slow
SEEDS = int(os.environ.get("ODRADEK_SPEC_SEEDS", "0"))
FILES = scripted()


def runs(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the cases of a file, each with a seed."""
    found = [{**v, "client": c} for v in variants(load(path)) for c in clients(v)]
    if SEEDS:
        yield from ((case, seed) for case in found for seed in range(SEEDS))
    else:
        yield found[FILES.index(path) % len(found)], 0


def run_script(case: dict[str, Any], seed: int, hosts: HostMaker | None = None) -> World:
    script = Script(case, seed, last=False, hosts=hosts, resets_together=False)
    script.run()
    return script.world


@pytest.mark.parametrize(
    "path", some(FILES, len(FILES) // 8), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_case(path: Path) -> None:
    for case, seed in runs(path):
        plain, real = run_script(case, seed), run_script(case, seed, WorldAsyncioHost)
        assert real.asked or not plain.asked
        names = ("the engine alone", f"asyncio, {case['client']}, seed {seed}")
        assert_same(plain.lines(), real.lines(), names)
