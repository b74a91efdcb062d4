"""confluent-kafka's `KafkaError` and `KafkaException`.

In: a code, optionally a text. Out: a `KafkaError`, compared by its code, and a `KafkaException`
whose `args[0]` is the `KafkaError`. Must not: know Odradek's errors; `translated_errors` does.
"""

from __future__ import annotations

import builtins

from odradek.compat.confluent_kafka.error_codes import ErrorCodes, name_of, words_for


class KafkaError(ErrorCodes):
    """Error as an object that isn't an exception: it has a code, a name and a text.

    `fatal()`: the client has failed. After a failed transactional call, `retriable()` means to make
    the same call again, and `txn_requires_abort()` to call `abort_transaction()`.
    """

    __slots__ = ("_code", "_fatal", "_requires_abort", "_retriable", "_text")

    def __init__(
        self,
        error: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = int(error)
        self._text = words_for(self._code) if reason is None else reason
        self._fatal = bool(fatal)
        self._retriable = bool(retriable)
        self._requires_abort = bool(txn_requires_abort)

    def code(self) -> int:
        """Return the code: Kafka's number, or one of librdkafka's below -100."""
        return self._code

    def name(self) -> builtins.str:
        """Return the name of the code, for example `_TIMED_OUT`."""
        return name_of(self._code)

    def str(self) -> builtins.str:
        """Return the text."""
        return self._text

    def fatal(self) -> bool:
        """Return whether the client has failed and must be recreated."""
        return self._fatal

    def retriable(self) -> bool:
        """Return whether the same transactional call may be retried."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Return whether the transaction has to be aborted, after which the producer continues."""
        return self._requires_abort

    def __str__(self) -> builtins.str:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self._text}"}}'

    __repr__ = __str__

    def __hash__(self) -> int:
        return self._code

    def __eq__(self, other: object) -> bool:
        return _code(other) == self._code

    def __lt__(self, other: KafkaError | int) -> bool:
        return self._code < _number(other)

    def __le__(self, other: KafkaError | int) -> bool:
        return self._code <= _number(other)

    def __gt__(self, other: KafkaError | int) -> bool:
        return self._code > _number(other)

    def __ge__(self, other: KafkaError | int) -> bool:
        return self._code >= _number(other)


def _code(other: object) -> object:
    return other._code if isinstance(other, KafkaError) else other


def _number(other: KafkaError | int) -> int:
    return other._code if isinstance(other, KafkaError) else int(other)


class KafkaException(Exception):
    """Raised by failed calls; `args[0]` is the `KafkaError`."""
