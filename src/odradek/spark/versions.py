"""Check the version of PySpark that the source and the sink need.

In: the installed version of PySpark. Out: nothing, or an error that names the missing features.
Must not: import pyspark, because this runs before any feature is imported that an old version
lacks.
"""

from __future__ import annotations

import re

LEAST = (4, 2)
LACKS = (
    ((4, 0), "data sources written in Python"),
    ((4, 1), "streaming sinks with Arrow batches, and filter pushdown"),
    ((4, 2), "micro-batch limits and Trigger.AvailableNow for sources written in Python"),
)
"""The features that each PySpark release added, oldest first."""


def check_version(version: str) -> None:
    """Raise ImportError if PySpark is too old, with the required version and the missing features.

    Accept a version that can't be parsed: some vendors use their own numbers.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return
    found = int(numbers[1]), int(numbers[2])
    lacking = [what for since, what in LACKS if found < since]
    if lacking:
        raise ImportError(
            f"Odradek needs PySpark {LEAST[0]}.{LEAST[1]} or newer, but this is PySpark "
            f"{version}, which lacks {'; '.join(lacking)}. Upgrade with: pip install --upgrade "
            "pyspark"
        )
