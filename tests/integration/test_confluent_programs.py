"""The same small programs, once with confluent-kafka and once with Odradek under its names.

What a program notices must be equal: reports, messages, callbacks, offsets, errors. Each runs
against a fresh `FakeCluster`, in real time.
"""

from __future__ import annotations

import asyncio
import gc
from importlib import import_module
from typing import Any

import confluent_kafka
import pytest
from tests.integration.confluent_aio_programs import AIO_PROGRAMS, AioProgram
from tests.integration.confluent_consumer_programs import CONSUMER_PROGRAMS
from tests.integration.confluent_programs import PROGRAMS, TOPICS, Program

import odradek.compat.confluent_kafka
from odradek.testing import FakeCluster

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")  # such programs don't close


def noticed(program: Program, library: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:
        program(library, cluster, lambda *said: found.append(said))
    gc.collect()  # what wasn't closed warns here, not in another test
    return found


ALL = (*PROGRAMS, *CONSUMER_PROGRAMS)


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.__name__)
def test_programs_notice_the_same(program: Program) -> None:
    ours = noticed(program, odradek.compat.confluent_kafka)
    theirs = noticed(program, confluent_kafka)
    assert ours
    assert ours == theirs


def noticed_in_a_loop(program: AioProgram, library: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    aio = import_module(f"{library.__name__}.aio")
    with FakeCluster(brokers=1, topics=TOPICS) as cluster:
        asyncio.run(program(library, aio, cluster, lambda *said: found.append(said)))
    gc.collect()
    return found


@pytest.mark.parametrize("program", AIO_PROGRAMS, ids=lambda program: program.__name__)
def test_asyncio_programs_notice_the_same(program: AioProgram) -> None:
    ours = noticed_in_a_loop(program, odradek.compat.confluent_kafka)
    theirs = noticed_in_a_loop(program, confluent_kafka)
    assert ours
    assert ours == theirs
