"""Arguments of `produce()`, converted for Odradek's producer.

In: text or bytes, a dict or a list of headers, a partition's number. Out: bytes, pairs, None for
any partition. Must not: interpret the bytes.
"""

from __future__ import annotations

from operator import index
from typing import Any

from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.translated_errors import raise_error

ANY_PARTITION = -1


def as_bytes(given: Any) -> bytes | None:
    """Convert a key or value to bytes: text is encoded as UTF-8, None is kept."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, str):
        return given.encode()
    return bytes(memoryview(given))  # `memoryview` raises TypeError for other types


def as_headers(given: Any) -> list[tuple[str, bytes | None]]:
    """Convert headers to a list of (name, bytes or None) pairs."""
    if given is None:
        return []
    if not isinstance(given, dict | list):
        raise TypeError("headers must be a dict or a list of pairs")
    pairs = given.items() if isinstance(given, dict) else given
    return [_header(pair) for pair in pairs]


def _header(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"a header must be a pair of name and value, not {pair!r}")
    name, value = pair
    if not isinstance(name, str):
        raise TypeError(f"a header's name must be a str, not {type(name).__name__}")
    if not isinstance(value, str | bytes | bytearray | memoryview | None):
        raise TypeError(
            "expected header value to be None, binary, or unicode string, not "
            f"{type(value).__name__}"
        )
    return name, as_bytes(value)


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """Check the messages of a batch; raises `TypeError` with the index of the first invalid one."""
    if not isinstance(messages, list):
        raise TypeError(f"messages must be a list of dicts, not {type(messages).__name__}")
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"messages[{at}] must be a dict, not {type(message).__name__}")
        try:
            as_bytes(message.get("value"))
            as_bytes(message.get("key"))
            index(message.get("partition", ANY_PARTITION))
        except TypeError as error:
            raise TypeError(f"messages[{at}]: {error}") from None
    return messages


def as_partition(number: int) -> int | None:
    """Check a partition's number; return None if the partitioner is to choose."""
    if number == ANY_PARTITION:
        return None
    found = int(index(number))  # True is 1 here, as in confluent-kafka
    if found < 0:
        raise_error(KafkaError._UNKNOWN_PARTITION, f"invalid partition {number}")
    return found
