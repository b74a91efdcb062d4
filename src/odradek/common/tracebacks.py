"""Shorten the tracebacks of the errors that users see.

In: an error that leaves a public call. Out: the same error without Odradek's frames below that
call; frames of the program's own callbacks remain. Must not: touch other errors than `KafkaError`,
which may be bugs.
"""

from __future__ import annotations

from types import TracebackType

from odradek.common.errors import KafkaError


def shorten(error: BaseException | None) -> None:
    """Remove Odradek's frames from the traceback of an error and of the errors that caused it."""
    done: set[int] = set()
    while isinstance(error, KafkaError) and id(error) not in done:
        done.add(id(error))
        error.__traceback__ = _without_ours(error.__traceback__)
        error = error.__cause__ or error.__context__


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    entries = []
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        if name != "odradek" and not name.startswith("odradek."):
            entries.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept
