r"""Bytes of records on a terminal: nothing of them can steer it (R-IN-3).

In: bytes. Out: the same with control characters, and what isn't UTF-8, as `\x1b`. Must not: be used
for a pipe or a file; these get what the record has.
"""

from __future__ import annotations

from odradek.common.printable import printable


def for_terminal(data: bytes) -> bytes:
    """Bytes that can be written to a terminal; a tab stays."""
    text = data.decode("utf-8", "backslashreplace")
    return "\t".join(printable(part, limit=None) for part in text.split("\t")).encode()
