r"""Escape bytes of records for a terminal, so that they can't control it (R-IN-3).

In: bytes. Out: the bytes with control characters, and bytes that aren't UTF-8, escaped as `\x1b`.
Must not: be used for a pipe or a file, which get the record's bytes unchanged.
"""

from __future__ import annotations

from odradek.common.printable import printable


def for_terminal(data: bytes) -> bytes:
    """Escape bytes for a terminal, except tabs."""
    text = data.decode("utf-8", "backslashreplace")
    return "\t".join(printable(part, limit=None) for part in text.split("\t")).encode()
