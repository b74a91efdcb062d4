"""Handle unclosed clients: warn when a client is dropped, and flush clients at exit.

In: new clients. Out: for each client that is dropped without `close`, a `ResourceWarning` with the
line that created it (R-HO-4). When `atexit` calls this module, no further record is accepted,
buffered records are sent and open transactions aborted within `close.timeout.ms`, and stderr names
the records that were lost. A forked child of `multiprocessing` exits without `atexit`; there, its
last finalizer does this. Must not: do anything for a parent's clients in a forked child, keep a
client alive, or wait in a finalizer, which may run at any point of any thread.

The `atexit` handler is registered when a client's class is imported, so handlers that the program
registers later run before it. Records that `logging.shutdown` or handlers registered earlier send
afterwards are rejected, and not lost silently.
"""

from __future__ import annotations

import atexit
import logging
import sys
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from odradek.common.errors import ClientClosedError, KafkaError
from odradek.runtime.hosts.io_log import io_log

if TYPE_CHECKING:
    from odradek.clients.client_engine import ClientEngine
    from odradek.clients.producer.batch import ProducerBatch
    from odradek.clients.producer.producer_engine import ProducerEngine
    from odradek.clients.producer.transaction_manager import TransactionManager
    from odradek.network.flow import Completion
    from odradek.network.host import Host

logger = logging.getLogger("odradek")

GRACE = 0.05
"""Seconds after its deadline for which a flush is still awaited."""
LAST = -(1 << 30)
"""Priority with which `multiprocessing` calls a finalizer after all others."""


class OpenClient:
    """State of a client that is needed after the client was garbage-collected."""

    def __init__(
        self, kind: str, name: str, host: Host, engine: ClientEngine, timeout: float | None
    ) -> None:
        """Set `timeout`, the seconds for sending a producer's records; None for other clients."""
        self.kind = kind
        self.name = name
        self.host = host
        self.engine = engine
        self.timeout = timeout
        self.file, self.line = _made_at()
        self.ending: LastFlush | None = None
        """The flush of this client's records; None before it starts."""
        self.end_events: Callable[[], object] | None = None
        """Function that ends the thread that publishes the client's events; it doesn't wait."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (created at {self.file}:{self.line})"

    @property
    def used(self) -> bool:
        """Whether a socket or thread is open, and this process has opened it."""
        return not self.host.cut_off and self.host.in_use

    @property
    def producer(self) -> ProducerEngine | None:
        """The engine of a producer that hasn't ended; None for other clients."""
        if self.timeout is None or self.engine.ended is not None:
            return None
        return cast("ProducerEngine", self.engine)

    def warn(self) -> None:
        """Issue a `ResourceWarning` with the line that created the client."""
        cure = "call close(), or use it in a `with` block"
        if self.kind.startswith("Async"):
            cure = "call `await close()`, or use it in an `async with` block"
        warnings.warn_explicit(f"unclosed {self}: {cure}", ResourceWarning, self.file, self.line)

    def closed(self) -> None:
        """Stop watching the client, because `close` was called."""
        if (watch := _open.pop(self, None)) is not None:
            watch.detach()

    def shut(self) -> None:
        """End the client without waiting."""
        self.engine.shut()
        self.host.drop()
        self.shut_events()

    def shut_events(self) -> None:
        """End the publication of the client's events without waiting."""
        if self.end_events is not None:
            self.end_events()

    def report_lost_records(self, say: Callable[[str], object]) -> None:
        """Log a callback's error that no call of the program has raised (R-HO-5)."""
        try:
            self.host.check()
        except BaseException as error:
            say(
                f"a callback of {self} raised {error!r} after the last call, so no call could "
                "raise it"
            )


_open: dict[OpenClient, weakref.finalize[..., Any]] = {}
"""Unclosed clients that the program still refers to, and dropped producers that still send."""
_in_children = False


def opened(client: object, what: OpenClient) -> None:
    """Watch a client until `OpenClient.closed` is called."""
    _open[what] = when_collected(client, _dropped, what)
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None and not _in_children:  # multiprocessing is used
        # A forked child drops the parent's finalizers, so register again there.
        util.register_after_fork(_watch_child, _watch_child)
        _watch_child()


def when_collected(
    owner: object, call: Callable[..., object], *arguments: object
) -> weakref.finalize[..., Any]:
    """Call a function when `owner` is garbage-collected, but not at the program's exit."""
    watch = weakref.finalize(owner, call, *arguments)
    watch.atexit = False
    return watch


def _made_at() -> tuple[str, int]:
    """Return file and line of the code that creates a client, outside of this package."""
    frame = sys._getframe(1)  # noqa: SLF001  # `inspect` would read the sources
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _is_ours(module: str) -> bool:
    return module == "odradek" or module.startswith("odradek.")


def _dropped(what: OpenClient) -> None:
    """Handle a client that was garbage-collected: its thread sends the remaining records."""
    if not what.used:
        _open.pop(what, None)
        what.shut_events()
        return
    what.report_lost_records(logger.error)
    producer = what.producer
    if producer is not None and (producer.incomplete() or _transaction(producer)):
        what.ending = LastFlush(what, producer)
        what.ending.done.when_done(lambda _: _ended(what))
        what.host.wake()
    else:
        _open.pop(what, None)
        what.shut()
    what.warn()


def _ended(what: OpenClient) -> None:
    if what in _open and what.ending is not None:  # else `_at_exit` reports the records
        what.ending.tell(logger.error)
        _open.pop(what, None)  # last, as exit may stop the thread before
        what.shut()


@atexit.register
def _at_exit() -> None:
    """Flush all clients at the interpreter's exit, while I/O threads still run.

    `atexit` handlers that were registered earlier run later; `send` raises in them.
    """
    known: dict[OpenClient, bool] = {}
    """By client: whether the program still refers to it."""
    try:
        for what in list(_open):
            if not what.host.cut_off and (watch := _open.pop(what, None)) is not None:
                known[what] = watch.detach() is not None
                _end(what)
        for what in known:
            if what.ending is not None:
                with suppress(KafkaError):
                    what.host.run(what.ending.done, what.ending.deadline + GRACE)
    finally:
        for what, was_known in known.items():
            if what.ending is not None:
                what.ending.tell(_to_stderr)
            what.host.surfacing = True
            what.report_lost_records(_to_stderr)
            if was_known and what.host.in_use:
                what.warn()
        io_log.drain()


def _end(what: OpenClient) -> None:
    """Refuse further records, and send all accepted records."""
    if (producer := what.producer) is None:
        return
    ends = ClientClosedError(f"{what} accepts no more records, because the program is ending")
    producer.accumulator.refuse(ends)
    producer.accumulator.close_all()  # `send` checks nothing for open batches
    if what.host.in_use:
        what.host.surfacing = False  # callbacks' errors mustn't be raised here
        # A client with nothing left to send may still run the callbacks of its records.
        what.ending = what.ending or LastFlush(what, producer)
        what.host.wake()


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"odradek: {text}\n")


def _watch_child(_: object = None) -> None:
    global _in_children
    _in_children = True
    sys.modules["multiprocessing.util"].Finalize(None, _child_ends, exitpriority=LAST)


def _child_ends() -> None:
    """Flush clients in a child process; do nothing in the parent, where `atexit` flushes."""
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        _at_exit()


def _transaction(producer: ProducerEngine) -> TransactionManager | None:
    """Return the state of the producer's open transaction, even if all records are acknowledged."""
    manager = producer.transactions
    return manager if manager is not None and manager.open else None


class LastFlush:
    """The flush of an unclosed producer: buffered records are sent, or a transaction is ended."""

    def __init__(self, what: OpenClient, producer: ProducerEngine) -> None:
        self.what = what
        self.batches = producer.incomplete()
        self.deadline = deadline = what.host.now() + (what.timeout or 0.0)
        self.transaction = manager = _transaction(producer)
        pending = None if manager is None else manager.pending
        self.committing = pending is not None and pending.name == "commit_transaction"
        if manager is None:
            flow = producer.flush(deadline)
        elif self.committing:  # continue a commit for which no call waits
            flow = manager.commit(deadline)
        else:
            flow = manager.abort(deadline)
        self.done: Completion[None] = producer.start(flow)

    def tell(self, say: Callable[[str], object]) -> None:
        """Log which records were lost, or what happened to the open transaction."""
        if text := self._lost() if self.transaction is None else self._of(self.transaction):
            error = self.done.error
            say(text if error is None else f"{text} {type(error).__name__}: {error}")

    def _lost(self) -> str:
        what = self.what
        leaves: dict[ProducerBatch, int] = {}
        for batch in self.batches:
            leaves |= batch.leaves()
        open_still = {leaf: count for leaf, count in leaves.items() if not leaf.done.done}
        refused = {leaf: count for leaf, count in leaves.items() if leaf.done.error is not None}
        lost = open_still | refused
        if not lost:
            return ""
        # Imported here, because this is only needed if records were lost.
        from odradek.clients.producer.uncertain_writes import (
            counted,
            were,
        )

        if what.host.gone:
            blame = "its event loop had already ended; use an `async with` block"
        elif open_still:
            blame = f"close.timeout.ms ({what.timeout:g} s) was too short for its records"
        else:
            blame = "the program didn't check the result"
        sent = {leaf for leaf in open_still if leaf.attempts}
        perhaps = sum(count for leaf, count in lost.items() if leaf.doubtful or leaf in sent)
        also = f" ({perhaps} of them may have been written)" if perhaps else ""
        total = sum(lost.values())
        text = (
            f"{counted(total)} {were(total)} lost{also}, because {what} wasn't closed, and {blame}."
        )
        for leaf in refused:
            return f"{text} {type(leaf.done.error).__name__}: {leaf.done.error}"
        return text

    def _of(self, transaction: TransactionManager) -> str:
        """Return a text that says what is known of the open transaction's outcome."""
        ended = self.done.done and self.done.error is None
        if self.committing and ended:
            return ""
        if self.committing:
            how = "the result of its commit is unknown"
        elif ended:
            how = "it was aborted, so none of its records is committed"
        else:
            seconds = self.what.engine.config["transaction.timeout.ms"]
            how = (
                "it couldn't be aborted, so none of its records is committed; the coordinator "
                f"aborts it {seconds:g} s after it began (transaction.timeout.ms)"
            )
        name = f"transaction {transaction.transactional_id!r}"
        return (
            f"{self.what} ended with {name} still open: {how}. Call commit_transaction(), then "
            "close()."
        )
