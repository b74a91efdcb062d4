"""The same small programs, once with confluent-kafka and once with Odradek under its names.

What a program notices must be equal: reports, messages, callbacks, offsets, errors. Each runs
against a fresh `FakeCluster`, in real time.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from tests.integration.confluent_programs import PROGRAMS, TOPICS, Program

import odradek.compat.confluent_kafka
from odradek.testing import FakeCluster

pytestmark = pytest.mark.filterwarnings("ignore:unclosed Producer")  # such programs don't close


def noticed(program: Program, library: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:
        program(library, cluster, lambda *said: found.append(said))
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_notice_the_same(program: Program) -> None:
    ours = noticed(program, odradek.compat.confluent_kafka)
    theirs = noticed(program, confluent_kafka)
    assert ours
    assert ours == theirs
