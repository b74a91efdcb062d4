"""Flows: generators with which a call is written once, for threads and for event loops.

In: a flow, which yields what a call of an Odradek client returns: with a blocking client the
result, with an asyncio client an awaitable. In both cases the flow is resumed with the result or
the exception. Out: the flow's return value. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")
Flow = Generator[Any, Any, T]


def carried_out(flow: Flow[T]) -> T:
    """Run a flow of a blocking client, which yields results; return the flow's result."""
    outcome: Any = None
    try:
        while True:
            outcome = flow.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def awaited(flow: Flow[T]) -> T:
    """Run a flow of an asyncio client, which yields awaitables or results; return its result."""
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
            except GeneratorExit:  # the event loop is closed: nothing can be awaited
                raise
            except BaseException as error:
                resume, given = flow.throw, error
    finally:
        given = None  # a traceback that refers to this frame would keep the object alive
        flow.close()
