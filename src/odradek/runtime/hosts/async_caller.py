"""Run the caller's part of a call (`clients/calls`) in a coroutine.

In: a flow (a generator that yields what to wait for or to call), and the client's I/O host in the
running event loop. Out: the flow's result. Must not: decide anything, or abandon a flow without its
cleanup: a cancellation is raised in the flow at its current `yield`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from inspect import isawaitable
from types import coroutine
from typing import Any, Protocol, TypeVar

from odradek.clients.caller_flow import (
    BREATH,
    CallerFlow,
    Do,
    RaisedGeneratorExitError,
    shorten,
)
from odradek.common.errors import KafkaError
from odradek.network.flow import START, Completion, Wait
from odradek.network.host import LoopHost
from odradek.runtime.hosts.caller import BEGIN, BODY, COMMIT, left_open

T = TypeVar("T")


class AsyncTransactionClient(Protocol):
    """A producer with transactions whose methods are awaited."""

    async def begin_transaction(self) -> None:
        """Begin a transaction."""


P = TypeVar("P", bound=AsyncTransactionClient)


@asynccontextmanager
async def block(
    producer: P,
    before: Callable[[], Coroutine[Any, Any, None]],
    end: Callable[[BaseException | None], Coroutine[Any, Any, None]],
) -> AsyncIterator[P]:
    """Run a transaction's `async with` block.

    `before` ends an earlier transaction. `end` ends the new one; its argument is the error of the
    body or the commit, or a cancellation.
    """
    await before()
    stage = BEGIN
    try:
        await producer.begin_transaction()
        stage = BODY
        yield producer
        stage = COMMIT
        await end(None)
    except GeneratorExit:  # the generator was dropped, so nothing can be awaited
        raise
    except BaseException as error:
        if left_open(stage, error):
            await end(error)
        raise


def this_task() -> object:
    """Return the running task; None if there is none."""
    return asyncio.current_task()


async def carried_out(flow: CallerFlow[T], host: LoopHost, *, closing: bool = False) -> T:
    """Do what a flow yields (wait, or call a function) until the flow ends; return its result.

    An error that occurs meanwhile (a cancellation, an error of a user's callback) is raised in the
    flow.
    """
    resume: Callable[[Any], Wait | Do] = flow.send
    given: Any = None
    try:
        host.enter(closing=closing)
        while True:
            wanted = resume(given)
            try:
                if wanted is START:
                    pass
                elif wanted is BREATH:
                    await host.breathe()
                elif isinstance(wanted, Do):
                    await _done(wanted)
                elif wanted.on:
                    await waited(host, wanted.on[0], wanted.deadline)  # type: ignore[arg-type]
                else:
                    host.drive()
                resume, given = flow.send, host.now()
            except GeneratorExit:  # the loop is closed, so nothing can be awaited
                raise
            except BaseException as error:
                resume, given = flow.throw, error
    except StopIteration as end:  # the flow has ended with this result
        result: T = end.value
        return result
    except RaisedGeneratorExitError as error:
        raise error.raised from None
    except KafkaError as error:
        shorten(error)
        raise
    finally:
        given = wanted = None  # type: ignore[assignment]  # an error's frames would hold it
        flow.close()


async def _done(wanted: Do) -> None:
    """Call a function, in a thread if it blocks, and await its result if that is awaitable."""
    if wanted.blocks:
        await asyncio.to_thread(wanted.action)
        return
    try:
        outcome = wanted.action()
    except GeneratorExit as error:
        raise RaisedGeneratorExitError(error) from None
    if isawaitable(outcome):
        await _own(_awaited(outcome))


async def _awaited(outcome: Awaitable[object]) -> None:
    await outcome


@coroutine
def _own(awaited: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Await a coroutine; convert a `GeneratorExit` that it raises itself to another error."""
    resume: Callable[[Any], Any] = awaited.send
    given: Any = None
    while True:
        try:
            wanted = resume(given)
        except StopIteration:
            return
        except GeneratorExit as error:
            raise RaisedGeneratorExitError(error) from None
        try:
            resume, given = awaited.send, (yield wanted)
        except GeneratorExit:
            awaited.close()
            raise
        except BaseException as error:
            resume, given = awaited.throw, error


async def waited(host: LoopHost, completion: Completion[Any], deadline: float | None) -> None:
    """Wait until the completion is done or the deadline has passed.

    Raises a user's callback's error, if one waits to be raised by a call of the program.
    """
    loop = asyncio.get_running_loop()
    while not completion.done:
        left = None if deadline is None else deadline - host.now()
        if host.gone:
            return
        if left is not None and left <= 0:
            host.overslept(deadline)  # type: ignore[arg-type]  # then there is one
            return
        arrived: asyncio.Future[None] = loop.create_future()

        def tell(_: object = None, arrived: asyncio.Future[None] = arrived) -> None:
            if not (arrived.done() or loop.is_closed()):
                arrived.set_result(None)

        timer = None if left is None else loop.call_later(left, tell)
        completion.when_done(tell)
        host.waiters[tell] = None
        try:
            await arrived
        finally:
            host.waiters.pop(tell, None)
            completion.forget(tell)
            if timer is not None:
                timer.cancel()
        if not completion.done:
            host.check()
