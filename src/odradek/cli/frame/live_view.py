"""Show the progress of long commands: a picture that is redrawn, or plain lines.

In: lines of events; a subclass draws them with other data. Out: the picture on a terminal, else
each line as it is printed. Must not: know the command.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

PLAIN_INTERVAL = 5.0
"""Seconds between two plain lines about progress, where there is no terminal."""

NOTEBOOK = "JPY_PARENT_PID"
"""Environment variable of Jupyter's kernels.

`!odradek …` in a cell gets a terminal from them, but its cursor can't be moved up: each picture
would be added to those before.
"""


def has_pictures(console: Console) -> bool:
    """Whether what is written there can be drawn over: a terminal, and no notebook's cell."""
    return console.is_terminal and NOTEBOOK not in os.environ


class LiveView(ABC):
    """A picture of four times a second; only while it is entered."""

    def __init__(self, *, lines: int, to_stderr: bool) -> None:
        self.console = Console(stderr=to_stderr, highlight=False)
        self._lines: deque[Text] = deque(maxlen=lines)
        """The newest of what happened."""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if has_pictures(self.console):
            self._live = Live(console=self.console, refresh_per_second=4, get_renderable=self._draw)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()  # which draws it once more
            self._live = None

    @abstractmethod
    def _draw(self) -> RenderableType:
        """Make the picture, in a thread of rich: what may change meanwhile has to be copied."""

    def _add(self, line: Text) -> None:
        """Add a line."""
        self._lines.append(line)
        self._plainly(line)

    def _plainly(self, line: Text | str) -> None:
        """Print a line where there is no picture."""
        if self._live is None:
            self.console.print(line, soft_wrap=True)
