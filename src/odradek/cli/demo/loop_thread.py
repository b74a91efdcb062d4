"""Thread of the demo that runs an event loop for the asyncio clients.

In: a coroutine. Out: the coroutine's exception, if any. Must not: outlive its context for long.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

END_S = 30.0
"""Maximum time in seconds to wait for the event loop's end after the cancellation."""


class LoopThread(threading.Thread):
    """Mixin for a thread class: its `run` is replaced by an event loop that runs `main`."""

    error: BaseException | None
    _cancel: Callable[[], object] | None = None

    @abstractmethod
    async def main(self) -> None:
        """Do the thread's work; cancelled if the `with` block ends before the work."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._cancel is not None:
            with suppress(RuntimeError):  # the loop has already ended
                self._cancel()
            self.join(END_S)

    def run(self) -> None:
        """Run `main` in a new event loop, and store its exception in `error`."""
        try:
            asyncio.run(self._cancellable())
        except asyncio.CancelledError:  # `__exit__` has cancelled `main`
            pass
        except BaseExceptionGroup as several:
            self.error = several.exceptions[0]
        except BaseException as error:  # the main thread reports the error
            self.error = error

    async def _cancellable(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        await self.main()
