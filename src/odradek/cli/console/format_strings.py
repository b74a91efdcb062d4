r"""`--format`, as kcat's users write it: `'%t [%p] %o: %k=%s\n'`.

In: a text with `%` and `\`, records. Out: bytes. Must not: add a line break by itself; neither does
kcat.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from odradek.cli.console.decoding import Decoder, as_bytes
from odradek.cli.console.properties import refuse
from odradek.cli.console.terminal import for_terminal
from odradek.clients.consumer.records import ConsumerRecord

TOKENS = {
    "t": "topic", "p": "partition", "o": "offset", "k": "key", "K": "length of the key",
    "s": "value", "S": "length of the value", "T": "timestamp in ms", "h": "headers", "%": "%",
}  # fmt: skip
"""Meanings of the letters after `%`; the length of null is -1."""
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECE = re.compile(r"%(?P<token>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)", re.DOTALL)

Piece = bytes | Callable[[ConsumerRecord], bytes]


class FormatString:
    """Formats records by a format string."""

    def __init__(
        self,
        text: str,
        key: Decoder | None = None,
        value: Decoder | None = None,
        *,
        null: bytes = b"",
        escaped: bool = False,
    ) -> None:
        """Parse a format; with `escaped`, escape records' terminal control characters (R-IN-3)."""
        self._key, self._value = key, value
        self._null, self._escaped = null, escaped
        self._pieces = self._parsed(text)

    def line(self, record: ConsumerRecord) -> bytes:
        """Return the text of a record. Raises `FormatError` if it can't be decoded."""
        return b"".join(p if isinstance(p, bytes) else p(record) for p in self._pieces)

    def _parsed(self, text: str) -> list[Piece]:
        known: dict[str, Piece] = {
            "t": lambda record: self._shown(record.topic.encode()),
            "p": lambda record: b"%d" % record.partition,
            "o": lambda record: b"%d" % record.offset,
            "k": lambda record: self._field(record.key, self._key),
            "K": lambda record: _length(record.key),
            "s": lambda record: self._field(record.value, self._value),
            "S": lambda record: _length(record.value),
            "T": lambda record: b"%d" % record.timestamp_ms,
            "h": self._headers,
            "%": b"%",
        }
        pieces: list[Piece] = []
        end = 0
        for match in _PIECE.finditer(text):
            pieces.append(text[end : match.start()].encode("utf-8", "surrogateescape"))
            end = match.end()
            token, digits, escape = match["token"], match["hex"], match["escape"]
            if digits is not None:
                pieces.append(bytes.fromhex(digits))
            elif escape is not None:
                if escape not in ESCAPES:
                    refuse(rf"--format: unknown escape {match[0]}; use \n \t \r \0 \xNN \\")
                pieces.append(ESCAPES[escape])
            elif token in known:
                pieces.append(known[token])
            else:
                there = ", ".join(f"%{letter} {what}" for letter, what in TOKENS.items())
                refuse(f"--format: unknown token {match[0]}; use {there}")
        pieces.append(text[end:].encode("utf-8", "surrogateescape"))
        return pieces

    def _headers(self, record: ConsumerRecord) -> bytes:
        return b",".join(
            self._shown(name.encode("utf-8", "surrogatepass")) + b"=" + self._field(value, None)
            for name, value in record.headers
        )

    def _field(self, data: bytes | None, decode: Decoder | None) -> bytes:
        if data is None:
            return self._null
        return self._shown(data if decode is None else as_bytes(decode(data)))

    def _shown(self, data: bytes) -> bytes:
        return for_terminal(data) if self._escaped else data


def _length(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))
