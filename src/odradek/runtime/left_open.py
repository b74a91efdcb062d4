"""Clients that nobody closed: let go of when they are dropped, flushed when the program ends.

In: clients as they are made. Out: a `ResourceWarning` that says where (R-HO-4); at the end of the
interpreter, or of a child of `multiprocessing`, what producers hold is sent, an open transaction
aborted, for `close.timeout.ms`; stderr hears what was lost, and no record is taken any more.
Must not: do anything for a parent's clients in a forked child, keep a client alive, or wait in a
finaliser, which may run at any place of any thread.
"""

from __future__ import annotations

import logging
import sys
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.common.errors import ClientClosedError, ClientForkedError, KafkaError
from odradek.runtime.hosts.io_log import io_log

if TYPE_CHECKING:
    from odradek.clients.client_engine import ClientEngine
    from odradek.clients.producer.batch import ProducerBatch
    from odradek.clients.producer.producer_engine import ProducerEngine
    from odradek.clients.producer.transaction_manager import TransactionManager
    from odradek.network.flow import Completion
    from odradek.network.host import Host
    from odradek.runtime.process_end import ProcessEnd

logger = logging.getLogger("odradek")

GRACE = 0.05
"""Seconds beyond the deadline for a flush to end by itself."""


class Opened:
    """What is left of a client when nobody knows it any more."""

    __slots__ = (
        "engine", "file", "given_up", "host", "kind", "left", "line", "name", "producer", "timeout",
        "warned",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        name: str,
        host: Host,
        engine: ClientEngine,
        producer: ProducerEngine | None,
        timeout: float,
        file: str,
        line: int,
    ) -> None:
        self.kind = kind
        self.name = name
        self.host = host
        self.engine = engine
        self.producer = producer
        self.timeout = timeout
        self.file = file
        self.line = line
        self.left: float | None = None
        """Seconds of the timeout that are left once the program's end has waited; None: all."""
        self.given_up = False
        """The time was too short, and stderr has heard what was lost."""
        self.warned = False

    @property
    def used(self) -> bool:
        """Something is open, and this is the process that opened it."""
        try:
            self.host.check()
        except ClientForkedError:
            return False
        except BaseException:
            logger.exception("a callback of %s had raised", self)
        return self.host.in_use

    @property
    def held(self) -> list[ProducerBatch]:
        """Batches without an outcome."""
        if self.producer is None or self.producer.ended is not None:
            return []
        return self.producer.sender.incomplete()

    @property
    def transaction(self) -> TransactionManager | None:
        """Its transaction, if one is open: also where all records are acknowledged."""
        if self.producer is None or self.producer.ended is not None:
            return None
        manager = self.producer.transactions
        return manager if manager is not None and manager.open else None

    @property
    def works(self) -> ProducerEngine | None:
        """The producer, unless it has ended or was given up."""
        if self.producer is None or self.given_up or self.producer.ended is not None:
            return None
        return self.producer

    @property
    def unfinished(self) -> bool:
        """Something would be lost with it."""
        return not self.given_up and (bool(self.held) or self.transaction is not None)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (made at {self.file}:{self.line})"

    def warn(self) -> None:
        """Say where it was made, once."""
        if self.warned:
            return
        self.warned = True
        cure = "close() it, or use it in a `with` block"
        if self.kind.startswith("Async"):
            cure = "await its close(), or use it in an `async with` block"
        text = f"unclosed {self}: {cure}"
        warnings.warn_explicit(text, ResourceWarning, self.file, self.line)

    def closed(self) -> None:
        """It was closed in order."""
        if (detach := _open.pop(self, None)) is not None:
            detach()

    def refuse(self) -> None:
        """Take no more records: nobody would send them."""
        if self.producer is None or self.producer.ended is not None:
            return
        accumulator = self.producer.accumulator
        accumulator.refuse(ClientClosedError(f"{self} takes no more records: the program ends"))
        accumulator.close_all()  # `send` asks no open batch

    def shut(self) -> None:
        """Have it end by itself."""
        self.engine.shut()
        self.host.drop()


_open: dict[Opened, Callable[[], object]] = {}
"""All that aren't closed, each with how to take its finaliser back."""
_going: dict[Opened, _Ending] = {}
"""Producers that were dropped and still send."""
_process: list[ProcessEnd] = []


def opened(client: object, what: Opened) -> None:
    """Watch over a client until it is `closed`."""
    finalizer = weakref.finalize(client, _dropped, what)
    finalizer.atexit = False
    _open[what] = finalizer.detach
    if not _process:
        from odradek.runtime.process_end import ProcessEnd

        _process.append(ProcessEnd(_at_exit, _at_last, _concerned))
    _process[0].watch()


def made_at() -> tuple[str, int]:
    """The line outside of this package that makes a client."""
    frame = sys._getframe(1)  # noqa: SLF001  # `inspect` would read the sources
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _is_ours(module: str) -> bool:
    return module == "odradek" or module.startswith("odradek.")


def _dropped(what: Opened) -> None:
    """Nobody knows this client any more. This only records: its thread does what has to be done."""
    _open.pop(what, None)
    if not what.used:
        return
    if what.unfinished and what.producer is not None:
        _going[what] = end = _Ending(what, what.producer)
        end.done.when_done(lambda _: _sent(what, end))
        what.host.wake()
    else:
        what.shut()
    what.warn()


def _sent(what: Opened, end: _Ending) -> None:
    end.tell(lambda text: logger.error("%s", text))
    _going.pop(what, None)  # last: the program's end may stop this thread anywhere
    what.shut()


def _concerned() -> bool:
    """Some client belongs to this process, and not to the one that forked it."""
    return any(not what.host.forked for what in [*_open, *_going])


def _at_exit() -> None:
    """The interpreter ends; the threads of hosts still run, and exit handlers may go on sending."""
    ends = []
    for what in [*_open, *_going]:
        with suppress(KafkaError):
            # One that has nothing left to send may be amid the callbacks of what it has sent.
            if what.used and what.works:
                what.host.surfacing = False  # nothing of a callback's may end this
                ends.append(_going.get(what) or _Ending(what, what.works))
                what.host.wake()
    try:
        for end in ends:
            with suppress(KafkaError):
                end.what.host.run(end.done, end.deadline + GRACE)
            end.waited()
    finally:
        for end in ends:
            end.over(lambda text: sys.stderr.write(f"odradek: {text}\n"))
            _tell_of_callbacks(end.what)
        for what in list(_open):
            if what.used:
                what.warn()
        io_log.drain()


def _at_last() -> None:
    """No exit handler is left: what they have sent is the last that is taken."""
    for what in [*_open, *_going]:
        if not what.host.forked:
            what.refuse()
    _at_exit()


def _tell_of_callbacks(what: Opened) -> None:
    """What callbacks raised meanwhile that was meant for the program (R-HO-5): it has no call."""
    what.host.surfacing = True
    while True:
        try:
            what.host.check()
            return
        except KafkaError:
            return
        except BaseException as error:
            sys.stderr.write(
                f"odradek: a callback of {what} raised {error!r} while the program ended, "
                "which no longer changes how it ends\n"
            )


class _Ending:
    """The end of a producer that nobody closed: what it holds is sent, or its transaction ended."""

    def __init__(self, what: Opened, producer: ProducerEngine) -> None:
        self.what = what
        self.told = False
        self.producer = producer
        self.batches = what.held
        left = what.timeout if what.left is None else what.left
        self.deadline = deadline = what.host.now() + left
        self.transaction = what.transaction
        pending = None if self.transaction is None else self.transaction.pending
        self.committing = pending is not None and pending.name == "commit_transaction"
        if self.transaction is None:
            flow = producer.flush(deadline)
        elif self.committing:  # nobody waits for it any more, and it goes on
            flow = self.transaction.commit(deadline)
        else:
            flow = self.transaction.abort(deadline)
        self.done: Completion[None] = what.engine.start(flow)

    def waited(self) -> None:
        """So long has the program's end waited; what exit handlers send later has the rest."""
        what = self.what
        what.left = max(0.0, self.deadline - what.host.now()) if self.done.done else 0.0

    def over(self, say: Callable[[str], object]) -> None:
        """Nobody waits any more. A producer that has lost something takes no more records."""
        if not self.done.done or self.done.error is not None:
            self.what.refuse()
            known = {*self.batches, *(b for batch in self.batches for b in batch.leaves())}
            self.batches += [batch for batch in self.what.held if batch not in known]
            self.what.given_up = True
        self.tell(say)

    def tell(self, say: Callable[[str], object]) -> None:
        """Say what was lost; at the program's end rather twice than not at all."""
        if not self.told and (text := self.lost()):
            say(text)
            self.told = True

    def lost(self) -> str:
        """What became of records that nobody waited for; empty where all is well."""
        if self.transaction is not None:
            return self._not_committed(self.transaction)
        what = self.what
        leaves: dict[ProducerBatch, int] = {}
        for batch in self.batches:
            leaves |= batch.leaves()
        errors = [leaf.done.error for leaf in leaves if leaf.done.error is not None]
        lost = sum(
            count
            for leaf, count in leaves.items()
            if not leaf.done.done or leaf.done.error is not None
        )
        if not lost:
            return ""
        why: BaseException = (
            errors[0] if errors else self.producer.undelivered("acknowledgement", what.host.now())
        )
        hurried = any(not leaf.done.done for leaf in leaves)
        blame = (
            "its event loop had ended"
            if what.host.gone
            else f"close.timeout.ms ({what.timeout:g} s) was too short for them"
            if hurried
            else "nobody asked what became of them"
        )
        text = f"{lost} records of {what} were lost: it wasn't closed, and {blame}. "
        if what.host.gone and not errors:  # nothing was tried after that
            return f"{text}Use it in an `async with` block, which waits for what was sent."
        return f"{text}{type(why).__name__}: {why}"

    def _not_committed(self, transaction: TransactionManager) -> str:
        """What became of the transaction that was open, as far as that is known."""
        name, ended = f"transaction {transaction.transactional_id!r}", self.done.done
        if self.committing and ended and self.done.error is None:
            return ""
        text = f"{self.what} ended amid its {name}"
        if self.committing:
            text += ", whose commit hadn't ended: it isn't known whether that is carried out."
        elif ended and self.done.error is None:
            text += ": it was aborted, so none of its records is committed."
        else:
            seconds = self.what.engine.config["transaction.timeout.ms"]
            text += (
                ": none of its records is committed. It couldn't be aborted; its coordinator does "
                f"that {seconds:g} s after its begin (transaction.timeout.ms)."
            )
        if (error := self.done.error) is not None:
            text += f" {type(error).__name__}: {error}"
        return f"{text} Call commit_transaction(), then close()."
