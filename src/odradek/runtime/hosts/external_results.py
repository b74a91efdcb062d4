"""Collect results from other threads for an I/O host: resolved names, results of calls.

In: a token, a deadline and the function that reports to the engine. Out: one report for each token:
the result, or `TimeoutError` after the deadline. Must not: wait, or end a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Report = Callable[[Any, BaseException | None], None]


class ExternalResults:
    """Pending results by token. Any thread may call `answer`, only the host the other methods."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.owed: dict[int, tuple[float, Report]] = {}

    def expect(self, token: int, deadline: float, report: Report) -> None:
        """Note that the result of a token is due by `deadline`."""
        self.owed[token] = (deadline, report)

    def answer(self, token: int, result: Any, error: BaseException | None) -> None:
        """Report a token's result unless it is late; of several threads, only one reports it."""
        entry = self.owed.pop(token, None)
        if entry is not None:
            entry[1](result, error)
            self._wake()

    def owes(self, token: int) -> bool:
        """Return whether the result of a token hasn't been reported yet."""
        return token in self.owed

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of the pending results."""
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
        """Run a function; report its result or error. `KeyboardInterrupt` is raised, too."""
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
