"""Calls that are written once for threads and for event loops: generators that yield what they ask.

In: a flow, which yields what a call of ours gives: with a client for threads the outcome, with one
for a loop an awaitable of it. It gets the outcome, or what was raised, in both. Out: what the flow
returns. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")
Flow = Generator[Any, Any, T]


def carried_out(flow: Flow[T]) -> T:
    """What a flow of a client for threads returns: what it yields is an outcome already."""
    outcome: Any = None
    try:
        while True:
            outcome = flow.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def awaited(flow: Flow[T]) -> T:
    """What a flow of a client for a loop returns; what it yields may be an outcome, too."""
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
