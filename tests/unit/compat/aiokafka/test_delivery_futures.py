"""Test aiokafka's futures of records, which are completed when the record's batch completes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

import odradek
from odradek.clients.producer.batch import BatchOutcome, Part, ProducerBatch
from odradek.common.errors import ClientClosedError, TransactionAbortedError
from odradek.compat.aiokafka import TopicPartition
from odradek.compat.aiokafka.errors import ProducerClosed
from odradek.compat.aiokafka.producer.delivery_futures import Outcome, Outcomes
from odradek.record import BatchBuilder


def batch() -> ProducerBatch:
    return ProducerBatch(odradek.TopicPartition("t", 2), BatchBuilder(1000, None), 0.0, 9.0)


def in_a_loop(program: Callable[[Outcomes], None], *, answered: bool = True) -> None:
    async def run() -> None:
        program(Outcomes(asyncio.get_running_loop(), answered=answered))

    asyncio.run(run())


def futures(outcomes: Outcomes, of: ProducerBatch, count: int) -> list[Outcome]:
    made = [outcomes.future(None, of, n, 50 + n) for n in range(count)]
    assert all(type(future) is asyncio.Future for future in made)
    return made


def test_each_future_returns_the_offset_and_timestamp_of_its_record() -> None:
    def program(outcomes: Outcomes) -> None:
        for appended, kind in ((-1, 0), (99, 1)):
            one = batch()
            found = futures(outcomes, one, 3)
            assert not any(future.done() for future in found)
            found[1].cancel()
            one.done.complete(BatchOutcome(10, appended))
            assert found[1].cancelled()
            for n in (0, 2):
                time = 50 + n if appended < 0 else appended
                place = TopicPartition("t", 2)
                assert found[n].result() == ("t", 2, place, 10 + n, time, kind, None)
        late = outcomes.future(None, one, 1, 7)
        assert late.done()

    in_a_loop(program)


def test_a_future_returns_the_offset_minus_1_if_the_offset_is_unknown() -> None:
    def program(outcomes: Outcomes) -> None:
        one = batch()
        (future,) = futures(outcomes, one, 1)
        one.done.complete(BatchOutcome(-1, -1))
        found: Any = future.result()
        assert found.offset == -1

    in_a_loop(program)


def test_the_futures_of_a_failed_batch_raise_separate_error_objects() -> None:
    def program(outcomes: Outcomes) -> None:
        one = batch()
        found = futures(outcomes, one, 2)
        one.done.fail(ClientClosedError("closed"))
        errors = [future.exception() for future in found]
        assert all(isinstance(error, ProducerClosed) for error in errors)
        assert errors[0] is not errors[1]

    in_a_loop(program)


@pytest.mark.parametrize("cause", [None, ClientClosedError("closed")])
def test_asyncio_logs_no_unretrieved_error_for_records_that_the_application_aborted(
    cause: Exception | None,
) -> None:
    complaints: list[Any] = []

    def program(outcomes: Outcomes) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        one = batch()
        outcomes.future(None, one, 0, 50)
        error = TransactionAbortedError("aborted")
        error.__cause__ = cause
        one.done.fail(error)
        gc.collect()

    in_a_loop(program)
    assert len(complaints) == (cause is not None)


def test_futures_of_a_split_batch_return_the_offsets_of_its_parts() -> None:
    def program(outcomes: Outcomes) -> None:
        whole, parts = batch(), (batch(), batch())
        found = futures(outcomes, whole, 3)
        whole.replaced([Part(0, 2, parts[0], 4), Part(2, 1, parts[1], 0)])
        parts[1].done.complete(BatchOutcome(200, -1))
        assert [future.done() for future in found] == [False, False, True]
        parts[0].done.complete(BatchOutcome(100, -1))
        results: list[Any] = [future.result() for future in found]
        assert [place.offset for place in results] == [104, 105, 200]

    in_a_loop(program)


@pytest.mark.parametrize("count", [0, 2])
def test_futures_with_acks_0_return_none(count: int) -> None:
    def program(outcomes: Outcomes) -> None:
        one = batch()
        found = futures(outcomes, one, count)
        one.done.complete(BatchOutcome(-1, -1))
        assert [future.result() for future in found] == [None] * count

    in_a_loop(program, answered=False)
