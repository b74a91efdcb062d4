"""What `produce()` is given, as our producer takes it.

In: text or bytes, a dict or a list of headers, a partition's number. Out: bytes, pairs, None for
what isn't chosen. Must not: look into what the bytes mean.
"""

from __future__ import annotations

from typing import Any

from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.translated_errors import raise_error

ANY_PARTITION = -1


def as_bytes(given: Any) -> bytes | None:
    """A key or value: text is encoded, None stays None."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, str):
        return given.encode()
    return bytes(memoryview(given))  # raises TypeError for what holds no bytes


def as_headers(given: Any) -> list[tuple[str, bytes | None]]:
    """Headers as pairs."""
    if given is None:
        return []
    if not isinstance(given, dict | list):
        raise TypeError("headers must be a dict or a list of pairs")
    pairs = given.items() if isinstance(given, dict) else given
    return [_header(pair) for pair in pairs]


def _header(pair: Any) -> tuple[str, bytes | None]:
    name, value = pair
    if not isinstance(name, str):
        raise TypeError(f"a header's name must be a str, not {type(name).__name__}")
    if not isinstance(value, str | bytes | bytearray | memoryview | None):
        raise TypeError(
            "expected header value to be None, binary, or unicode string, not "
            f"{type(value).__name__}"
        )
    return name, as_bytes(value)


def as_partition(number: int) -> int | None:
    """A partition's number; None where the partitioner chooses."""
    if number == ANY_PARTITION:
        return None
    if number < 0:
        raise_error(KafkaError._UNKNOWN_PARTITION, f"there is no partition {number}")
    return number
