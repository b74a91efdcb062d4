"""Collect results from outside a host's loop: names, calls on worker threads.

In: a token, a deadline and the callback to the engine. Out: exactly one report for each token: the
result, or `TimeoutError` if it is late. Must not wait, or end a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Report = Callable[[Any, BaseException | None], None]


class ExternalResults:
    """Pending results by token. Any thread may call `answer`; the other methods are the host's."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.owed: dict[int, tuple[float, Report]] = {}

    def expect(self, token: int, deadline: float, report: Report) -> None:
        """Note that a result is due by `deadline`."""
        self.owed[token] = (deadline, report)

    def answer(self, token: int, result: Any, error: BaseException | None) -> None:
        """Report a result unless it is late; only the thread that removes the entry reports it."""
        entry = self.owed.pop(token, None)
        if entry is not None:
            entry[1](result, error)
            self._wake()

    def owes(self, token: int) -> bool:
        """Return whether the result is still needed."""
        return token in self.owed

    def next_deadline(self) -> float | None:
        """Return when the next result will be late."""
        if not self.owed:
            return None
        return min((deadline for deadline, _ in list(self.owed.values())), default=None)

    def expire(self, now: float) -> None:
        """Report a `TimeoutError` for each result that is late."""
        if not self.owed:
            return
        for token, (deadline, _) in list(self.owed.items()):
            if deadline <= now:
                self.answer(token, None, TimeoutError("no result in time"))

    def clear(self) -> None:
        """Drop all pending results."""
        self.owed.clear()

    def run(self, token: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Run a function and report its result or error; raise `KeyboardInterrupt` etc. again."""
        try:
            result = function(*arguments)
        except Exception as error:
            self.answer(token, None, error)
        except BaseException as error:
            self.answer(token, None, error)
            raise
        else:
            self.answer(token, result, None)

    def run_in_thread(
        self, token: int, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        """Run a function in a short-lived daemon thread."""
        try:
            threading.Thread(
                target=self.run,
                args=(token, function, arguments),
                name=f"odradek-call-{token}",
                daemon=True,
            ).start()
        except RuntimeError as error:
            self.answer(token, None, error)
