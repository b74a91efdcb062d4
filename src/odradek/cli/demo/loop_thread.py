"""A thread of the demo that runs an event loop for asyncio's clients.

In: a coroutine. Out: its error, if it had one. Must not: outlive its `with` block by long.
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
"""Maximum number of seconds that a stopped event loop takes to end."""


class LoopThread(threading.Thread):
    """Made of another thread by inheriting from this first: `main` runs, and not its `run`."""

    error: BaseException | None
    _cancel: Callable[[], object] | None = None

    @abstractmethod
    async def main(self) -> None:
        """Do the work; it is cancelled if the `with` block ends first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._cancel is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._cancel()
            self.join(END_S)

    def run(self) -> None:
        """Run the event loop."""
        try:
            asyncio.run(self._cancellable())
        except asyncio.CancelledError:  # it was told to end
            pass
        except BaseExceptionGroup as several:
            self.error = several.exceptions[0]
        except BaseException as error:  # reported to the main thread
            self.error = error

    async def _cancellable(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        await self.main()
