"""Show the progress of long commands: a picture that is redrawn, or plain lines.

In: lines of events; a subclass draws them with other data. Out: the picture on a terminal,
otherwise each line as soon as it is added. Must not: depend on a command.
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
"""Interval of progress lines without a terminal, in seconds."""

NOTEBOOK = "JPY_PARENT_PID"
"""Environment variable of Jupyter's kernels.

`!odradek …` in a cell has a terminal whose cursor can't be moved up, so each picture would be
printed below the earlier ones.
"""


def has_pictures(console: Console) -> bool:
    """Return whether the view can be redrawn in place: on a terminal, but not in a notebook."""
    return console.is_terminal and NOTEBOOK not in os.environ


class LiveView(ABC):
    """Picture that is redrawn four times a second inside its `with` block."""

    def __init__(self, *, lines: int, to_stderr: bool) -> None:
        self.console = Console(stderr=to_stderr, highlight=False)
        self._lines: deque[Text] = deque(maxlen=lines)
        """Latest lines of events."""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if has_pictures(self.console):
            self._live = Live(console=self.console, refresh_per_second=4, get_renderable=self._draw)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()  # also draws the final picture
            self._live = None

    @abstractmethod
    def _draw(self) -> RenderableType:
        """Return the picture. It is called in a thread of rich: copy data that may change."""

    def _add(self, line: Text) -> None:
        """Add a line."""
        self._lines.append(line)
        self._plainly(line)

    def _plainly(self, line: Text | str) -> None:
        """Print a line if there is no picture."""
        if self._live is None:
            self.console.print(line, soft_wrap=True)
