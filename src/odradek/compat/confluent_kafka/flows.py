"""Calls written once for threads and event loops: generators that yield what they wait for.

In: a flow, which yields results of an Odradek client's calls: with a client for threads the result,
with an asyncio client an awaitable of it. It is resumed with the result, or the exception, in both
cases. Out: the flow's return value. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")
Flow = Generator[Any, Any, T]


def carried_out(flow: Flow[T]) -> T:
    """Return the result of a flow of a client for threads, which yields results."""
    outcome: Any = None
    try:
        while True:
            outcome = flow.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def awaited(flow: Flow[T]) -> T:
    """Return the result of a flow of an asyncio client, which yields awaitables or results."""
    resume: Callable[[Any], Any] = flow.send
    given: Any = None
    try:
        while True:
            try:
                asked = resume(given)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                given = await asked if isawaitable(asked) else asked
                resume = flow.send
            except GeneratorExit:  # the loop is gone: nothing can be awaited any more
                raise
            except BaseException as error:
                resume, given = flow.throw, error
    finally:
        given = None  # an error's frames would hold it
        flow.close()
