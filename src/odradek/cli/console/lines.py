"""Parse lines of standard input as records, by the properties of Kafka's line reader.

In: bytes of one line. Out: key, value and headers, as bytes. Separators are compared as UTF-8
bytes, so that values that aren't UTF-8 remain unchanged. Must not: read or send anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.cli.console.properties import refuse, truth

Headers = tuple[tuple[str, bytes | None], ...]

PROPERTIES = (
    "parse.key",
    "parse.headers",
    "ignore.error",
    "key.separator",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
)
"""Properties for `--reader-property`; `topic` isn't supported, because it is a flag."""


class LineError(Exception):
    """A line can't be parsed or encoded."""


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """One record to send."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class LineParser:
    """Parses lines of the form `[headers<delimiter>][key<separator>]value`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Read the properties, and check that separators and the null marker are different."""
        self._parse_key = truth(settings, "parse.key")
        self._parse_headers = truth(settings, "parse.headers")
        self._ignore_errors = truth(settings, "ignore.error")
        defaults = {
            "key.separator": "\t",
            "headers.delimiter": "\t",
            "headers.separator": ",",
            "headers.key.separator": ":",
        }
        parts = {name: settings.get(name, default) for name, default in defaults.items()}
        for name, text in parts.items():
            if not text:
                refuse(f"{name} mustn't be empty")
        self._check(parts, "headers.delimiter", "headers.separator")
        self._check(parts, "headers.delimiter", "headers.key.separator")
        self._check(parts, "headers.separator", "headers.key.separator")
        marker = settings.get("null.marker")
        if marker is not None:
            for name in parts:
                self._check({**parts, "null.marker": marker}, "null.marker", name)
        self._null = marker.encode() if marker is not None else None
        self._key_separator = parts["key.separator"].encode()
        self._headers_delimiter = parts["headers.delimiter"].encode()
        self._headers_separator = parts["headers.separator"].encode()
        self._headers_key_separator = parts["headers.key.separator"].encode()

    @staticmethod
    def _check(parts: Mapping[str, str], one: str, other: str) -> None:
        if parts[one] == parts[other]:
            refuse(f"{one} and {other} can't both be {parts[one]!r}")

    def parse(self, line: bytes) -> ParsedLine:
        """Parse a line without its line break. Raises `LineError`, unless errors are ignored."""
        headers, rest = None, line
        if self._parse_headers:
            headers, rest = self._cut(rest, self._headers_delimiter, "headers.delimiter")
        key = None
        if self._parse_key:
            key, rest = self._cut(rest, self._key_separator, "key.separator")
        return ParsedLine(
            self._or_null(key),
            self._or_null(rest),
            self._headers(headers) if headers is not None and headers != self._null else (),
        )

    def _cut(self, text: bytes, separator: bytes, name: str) -> tuple[bytes | None, bytes]:
        first, found, rest = text.partition(separator)
        if found:
            return first, rest
        if self._ignore_errors:
            return None, text
        raise LineError(f"no {name} ({separator.decode()!r}) found")

    def _or_null(self, field: bytes | None) -> bytes | None:
        return None if field == self._null else field

    def _headers(self, text: bytes) -> Headers:
        pairs = text.split(self._headers_separator)
        while len(pairs) > 1 and not pairs[-1]:  # "a:1," has one header, as in Kafka's tool
            pairs.pop()
        return tuple(self._header(pair) for pair in pairs)

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        key, found, value = pair.partition(self._headers_key_separator)
        if not found and not self._ignore_errors:
            separator = self._headers_key_separator.decode()
            raise LineError(f"no headers.key.separator ({separator!r}) in header {_shown(pair)}")
        if key == self._null:
            raise LineError(f"header {_shown(pair)}: a header's key can't be the null marker")
        try:
            return key.decode(), self._or_null(value) if found else None
        except UnicodeDecodeError:
            raise LineError(f"header {_shown(pair)}: its key isn't UTF-8") from None


def _shown(text: bytes) -> str:
    return repr(text.decode(errors="replace"))
