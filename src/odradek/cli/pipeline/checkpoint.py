"""Read a query's checkpoint without Spark: the newest batches, and their end offsets.

In: the path or URL of a checkpoint. Out: a `Checkpoint`; one that isn't on this machine's disks
(`s3a:`, `hdfs:` …) can't be read. Must not: write, or read data that only Spark understands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from odradek.spark.driver.progress import positions

SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """State of a checkpoint: Spark writes `offsets/N` at the start of batch N, then `commits/N`."""

    committed: int | None = None
    begun: int | None = None
    positions: Mapping[str, int] = field(default_factory=dict)
    """Next offset of each partition after the newest committed batch."""
    seen: bool = True
    """False if the checkpoint isn't on this machine and can't be read."""

    @property
    def is_new(self) -> bool:
        """Whether the checkpoint can be read and no query has used it."""
        return self.seen and self.begun is None

    @property
    def repeats(self) -> int | None:
        """Number of a batch that has no commit, which the query's next run repeats; else None."""
        return self.begun if self.begun != self.committed else None


def local_path(place: str) -> Path | None:
    """Return the local path of a checkpoint without a scheme or with `file:`; else None."""
    scheme = SCHEME.match(place)
    if scheme is None:
        return Path(place)
    if scheme[1].lower() != "file":
        return None
    rest = place[scheme.end() :]
    if rest.startswith("//"):
        rest = rest[2:].removeprefix("localhost")
    return Path(rest) if rest.startswith("/") else None


def look(place: str) -> Checkpoint:
    """Read the state of a query's checkpoint."""
    folder = local_path(place)
    if folder is None:
        return Checkpoint(seen=False)
    committed, begun = _newest(folder / "commits"), _newest(folder / "offsets")
    return Checkpoint(committed, begun, _ends(folder / "offsets" / str(committed)))


def _newest(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    return max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=None)


def _ends(file: Path) -> dict[str, int]:
    where: dict[str, int] = {}
    with suppress(OSError, ValueError):  # a running query may delete the file
        for line in file.read_text().splitlines()[2:]:
            found = positions(json.loads(line)) if line.startswith("{") else {}
            where |= {str(tp): offset for tp, offset in found.items()}
    return where
