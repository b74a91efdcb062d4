"""Run the caller's part of a call (`clients/calls`) in the calling thread.

In: a flow (a generator that yields what to wait for or call), and the client's I/O host. Out: the
flow's result. Must not: abandon a flow without its cleanup, even after a signal (R-HO-1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Never, TypeVar

from odradek.clients.caller_flow import (
    BREATH,
    CallerFlow,
    Do,
    RaisedGeneratorExitError,
    as_thrown,
    shorten,
)
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.network.flow import START, Wait
from odradek.network.host import Host

if TYPE_CHECKING:
    from odradek.clients.calls.transaction_calls import TransactionClient

P = TypeVar("P", bound="TransactionClient")
T = TypeVar("T")


BEGIN, BODY, COMMIT = "begin", "body", "commit"


def left_open(stage: str, error: BaseException) -> bool:
    """Return whether a block that raised an error at this stage must end its transaction.

    It must not if `begin_transaction` failed, since an open transaction then is another caller's,
    or if the commit timed out, since the commit continues and can be repeated.
    """
    if not isinstance(error, KafkaError):
        return True
    return stage == BODY or (stage == COMMIT and not isinstance(error, KafkaTimeoutError))


def block(
    producer: P, before: Callable[[], None], end: Callable[[BaseException | None], None]
) -> Iterator[P]:
    """Run a transaction's `with` block.

    `before` ends an earlier transaction. `end` ends the new one; its argument is the error of the
    body or the commit, or `GeneratorExit` if the block was dropped.
    """
    before()
    stage = BEGIN
    try:
        producer.begin_transaction()
        stage = BODY
        yield producer
        stage = COMMIT
        end(None)
    except BaseException as error:
        if left_open(stage, error):
            end(error)
        raise


def carried_out(flow: CallerFlow[T], host: Host) -> T:
    """Do what a flow yields (wait, or call a function) until it ends; return its result.

    An error of a yielded function is raised in the flow. A callback's StopIteration reaches the
    caller, not a RuntimeError (PEP 479). A callback's GeneratorExit doesn't prevent the cleanup.
    """
    resume: Callable[[Any], Wait | Do] = flow.send
    given: Any = None
    stops: list[StopIteration] = []
    try:
        while True:
            try:
                _do_steps(flow, host, resume, given)
            except BaseException as error:
                if flow.gi_frame is not None:  # type: ignore[attr-defined]  # it hasn't ended
                    resume, given = flow.throw, as_thrown(error)
                    if isinstance(error, StopIteration):
                        stops.append(error)
                elif isinstance(error, StopIteration):
                    result: T = error.value
                    return result
                elif isinstance(error, RaisedGeneratorExitError):
                    raise error.raised from None
                elif isinstance(error.__cause__, StopIteration) and error.__cause__ in stops:
                    raise error.__cause__ from None
                else:
                    shorten(error)
                    raise
    finally:
        given = stops = None  # type: ignore[assignment]  # an error's frames would hold it
        flow.close()


def _do_steps(
    flow: CallerFlow[Any], host: Host, resume: Callable[[Any], Wait | Do], given: Any
) -> Never:
    """Do what a flow yields until the flow ends, or until an error is raised.

    Python checks for signals at the end of a loop's body, which no `try` within the loop covers. So
    this loop is a separate function, whose caller catches all errors.
    """
    try:
        while True:
            wanted = resume(given)
            if wanted is START or wanted is BREATH:
                pass
            elif isinstance(wanted, Do):
                wanted.action()
            elif wanted.on:
                host.run(wanted.on[0], wanted.deadline)  # type: ignore[arg-type]
            else:
                host.drive()
            resume, given = flow.send, host.now()
    finally:
        given = wanted = None  # type: ignore[assignment]  # an error's frames would hold it
