"""Which PySpark the source and the sink need, and what older ones lack.

In: the version of the PySpark that is there. Out: nothing, or an error that says what is missing.
Must not import pyspark: this is asked before anything that an old one lacks is imported.
"""

from __future__ import annotations

import re

LEAST = (4, 2)
LACKS = (
    ((4, 0), "data sources written in Python"),
    ((4, 1), "streaming sinks that take Arrow batches, and filters handed to a source"),
    ((4, 2), "limits of a micro-batch and Trigger.AvailableNow for sources written in Python"),
)
"""What came with which release, oldest first."""


def check_version(version: str) -> None:
    """Raise ImportError when PySpark is too old, with the least version and what it lacks.

    A version that can't be read is let through: some vendors number theirs otherwise.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return
    found = int(numbers[1]), int(numbers[2])
    lacking = [what for since, what in LACKS if found < since]
    if lacking:
        raise ImportError(
            f"Odradek needs PySpark {LEAST[0]}.{LEAST[1]} or newer, and this is PySpark {version}, "
            f"which lacks {'; '.join(lacking)}"
        )
