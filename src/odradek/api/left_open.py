"""Clients that nobody closed: let go of when they are dropped, flushed when the program ends.

In: clients as they are made. Out: a `ResourceWarning` that says where (R-HO-4); at the end of the
interpreter what producers hold is sent for `close.timeout.ms`, and stderr hears what was lost.
Must not: do anything in a forked child, keep a client alive, or wait in a finaliser, which may run
at any place of any thread.
"""

from __future__ import annotations

import atexit
import logging
import sys
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.errors import ClientForkedError, KafkaError

if TYPE_CHECKING:
    from odradek.clients.client_engine import ClientEngine
    from odradek.clients.producer.batch import ProducerBatch
    from odradek.clients.producer.producer_engine import ProducerEngine
    from odradek.network.flow import Completion
    from odradek.network.host import Host

logger = logging.getLogger("odradek")

GRACE = 0.05
"""Seconds beyond the deadline for a flush to end by itself."""


@dataclass(slots=True, eq=False)
class Opened:
    """What is left of a client when nobody knows it any more."""

    kind: str
    name: str
    host: Host
    engine: ClientEngine
    producer: ProducerEngine | None
    timeout: float
    file: str
    line: int

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

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (made at {self.file}:{self.line})"

    def warn(self) -> None:
        """Say where it was made."""
        text = f"unclosed {self}: close() it, or use it in a `with` block"
        warnings.warn_explicit(text, ResourceWarning, self.file, self.line)

    def shut(self) -> None:
        """Have it end by itself."""
        self.engine.shut()
        self.host.drop()


_open: dict[Opened, Callable[[], object]] = {}
"""All that aren't closed, each with how to take its finaliser back."""
_going: dict[Opened, Completion[None]] = {}
"""Producers that were dropped and still send."""
_hooks: list[Callable[[], None]] = []


def opened(client: object, what: Opened) -> None:
    """Watch over a client until `closed`."""
    finalizer = weakref.finalize(client, _dropped, what)
    finalizer.atexit = False
    _open[what] = finalizer.detach
    if not _hooks:
        _hooks.append(_at_exit)
        atexit.register(_at_exit)


def closed(what: Opened | None) -> None:
    """It was closed in order."""
    if what is not None and (detach := _open.pop(what, None)) is not None:
        detach()


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
    if what.producer is not None and what.held:
        batches, host = what.held, what.host
        flush = what.engine.start(what.producer.flush(host.now() + what.timeout))
        _going[what] = flush
        flush.when_done(lambda _: _sent(what, batches))
        host.wake()
    else:
        what.shut()
    what.warn()


def _sent(what: Opened, batches: list[ProducerBatch]) -> None:
    _going.pop(what, None)
    if text := _lost(what, batches):
        logger.error("%s", text)
    what.shut()


def _at_exit() -> None:
    """The interpreter ends; the threads of hosts still run."""
    waits = []
    for what in [*_open, *_going]:
        with suppress(KafkaError):
            if what.used and what.producer is not None and what.held:
                deadline = what.host.now() + what.timeout
                batches = what.held
                flush = what.engine.start(what.producer.flush(deadline))
                what.host.wake()
                waits.append((what, batches, flush, deadline + GRACE))
    try:
        for what, _, flush, deadline in waits:
            with suppress(KafkaError):
                what.host.run(flush, deadline)
    finally:
        for what, batches, _, _ in waits:
            if text := _lost(what, batches):
                sys.stderr.write(f"odradek: {text}\n")
        for what in list(_open):
            if what.used:
                what.warn()


def _lost(what: Opened, batches: list[ProducerBatch]) -> str:
    """What became of records that nobody waited for; empty where all is well."""
    leaves = [leaf for batch in batches for leaf in batch.leaves()]
    errors = [leaf.done.error for leaf in leaves if leaf.done.error is not None]
    lost = sum(leaf.count for leaf in leaves if not leaf.done.done or leaf.done.error is not None)
    if what.producer is not None and (manager := what.producer.transactions) and manager.open:
        return f"{what} ended amid a transaction: it is aborted. Commit it, then close()."
    if not lost:
        return ""
    why: BaseException = (
        errors[0] if errors else what.engine.timeout("acknowledgement", what.host.now())
    )
    return (
        f"{lost} records of {what} were lost: it wasn't closed, and close.timeout.ms "
        f"({what.timeout:g} s) was too short for them. {type(why).__name__}: {why}"
    )
