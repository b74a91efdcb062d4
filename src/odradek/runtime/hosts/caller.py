"""Run the caller's part of a call (`clients/calls`) in the calling thread.

In: a flow that runs in the caller, and the client's host. Out: its result. Must not: decide
anything, or abandon a flow without its cleanup, at whichever bytecode this is interrupted (R-HO-1).
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
    """Return whether a block that raised at this stage must end its transaction.

    It must not if `begin_transaction` was refused, since an open transaction then belongs to
    another caller, or if the commit timed out, since it continues and can be called again.
    """
    if not isinstance(error, KafkaError):
        return True
    return stage == BODY or (stage == COMMIT and not isinstance(error, KafkaTimeoutError))


def block(
    producer: P, before: Callable[[], None], end: Callable[[BaseException | None], None]
) -> Iterator[P]:
    """Run a transaction's `with` block.

    `before` ends an earlier transaction. `end` ends this one; its argument is the error of the body
    or the commit, or `GeneratorExit` if the block was dropped.
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
    """Carry out what a flow yields until the flow ends; raise errors in between in the flow.

    The caller gets a callback's StopIteration unchanged, not as a RuntimeError of the flow (PEP
    479). A callback's GeneratorExit doesn't end the flow before its cleanup.
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
    """Carry out what a flow yields until the flow ends, or anything else raises an error.

    Python checks for signals at the end of a loop's body, which no `try` within that loop covers.
    So this loop is a function, whose caller catches all errors that it raises.
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
