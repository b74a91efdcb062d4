"""Wrap texts that no output may show: passwords, private keys, tokens.

In: a text, from a configuration or a token function. Out: the text, only from `reveal()`, which
code calls where it needs the text. Must not: show the text in repr, str, format, logs or errors. A
`Secret` can be pickled (Spark's tasks need credentials); the unpickled object is a `Secret` again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

HIDDEN = "[hidden]"
COROUTINE = 0x80
"""Value of `inspect.CO_COROUTINE`, to avoid importing `inspect`."""


class Secret:
    """A text that prints as `[hidden]`: a password, a private key or a token.

    It is immutable, comparable and hashable.
    """

    __slots__ = ("_text",)

    _text: str

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "_text", text)

    def reveal(self) -> str:
        """Return the text itself; callers must not put it into a message."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, specification: str) -> str:
        return format(HIDDEN, specification)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # imported late: most clients don't need it

        return compare_digest(_bytes(self._text), _bytes(other._text))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a secret can't be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a secret can't be changed")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)


class NotText:
    """Placeholder for a value that was set as a secret but isn't text; it drops the value."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


def hidden(value: object) -> Secret | NotText | None:
    """Wrap a value of any type that was set as a secret; return None for None."""
    if value is None or isinstance(value, Secret | NotText):
        return value
    if isinstance(value, bytes):
        try:
            return Secret(value.decode())
        except UnicodeDecodeError:
            return NotText("bytes that aren't UTF-8 text")
    return Secret(value) if isinstance(value, str) else NotText(type(value).__name__)


def private(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function with secret arguments: tracebacks of its errors show no local variables.

    A decorated coroutine function remains a coroutine function.
    """

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        handled = sys.exception()
        try:
            return function(*args, **keywords)
        except BaseException as error:
            del args, keywords  # a traceback shows this frame, too
            clear_locals(error, handled)
            raise

    @wraps(function)
    async def awaited(*args: P.args, **keywords: P.kwargs) -> Any:
        called: Any = function
        handled = sys.exception()
        try:
            return await called(*args, **keywords)
        except BaseException as error:
            del args, keywords
            clear_locals(error, handled)
            raise

    if function.__code__.co_flags & COROUTINE:
        return cast("Callable[P, R]", awaited)
    return call


def clear_locals(error: BaseException | None, handled: BaseException | None = None) -> None:
    """Clear the local variables of Odradek's frames in the tracebacks of an error and its causes.

    `handled` is the error that the program was handling before. Its frames are skipped: some may be
    of generators that other clients use, which clearing would end.
    """
    done = {id(handled)}
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is None or id(error) in done:
            continue
        done.add(id(error))
        waiting += [error.__cause__, error.__context__]
        trace = error.__traceback__
        while trace is not None:
            if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] == "odradek":
                with suppress(RuntimeError):  # the generator still runs
                    trace.tb_frame.clear()
            trace = trace.tb_next


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
