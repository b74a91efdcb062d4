"""The same small programs with aiokafka and with the module in its place do the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from tests.integration.aiokafka_programs import PROGRAMS, Program, Scene

from odradek.testing import FakeCluster

OURS, THEIRS = "odradek.compat.aiokafka", "aiokafka"
TIMEOUT = 60.0
numbers = itertools.count(100)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


def said(program: Program, library: str, cluster: FakeCluster) -> list[str]:
    async def run(scene: Scene) -> None:
        async with asyncio.timeout(TIMEOUT):
            await program(scene)

    scene = Scene(library, cluster, next(numbers))
    try:
        asyncio.run(run(scene))
    finally:
        cluster.heal()
    return scene.said


@pytest.mark.filterwarnings("default")  # of aiokafka's own
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_does_the_same(program: Program, cluster: FakeCluster) -> None:
    theirs = said(program, THEIRS, cluster)
    assert theirs
    assert said(program, OURS, cluster) == theirs
