"""Build and start the scorecard's drivers for Java and Go.

In: the sources in this folder. Out: commands that take `MODE --bootstrap …`, or the reason why
there is none. `python -m benchmarks.scorecard.drivers.build` builds all and prints the commands.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import building
from benchmarks.building import Built

HERE = Path(__file__).parent
GROUP = "scorecard"
GO_LIBRARIES = ("franz-go", "sarama")
# A dozen drivers run at the same time: they should start fast and stay small.
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")


def java_command() -> Built:
    """Return the command of the Java driver, compiled if necessary."""
    return building.java_driver(GROUP, HERE / "java" / "ScorecardDriver.java", _JAVA_OPTIONS)


def go_command(library: str) -> Built:
    """Return the command of a Go library's driver, built if necessary."""
    if library not in GO_LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(GO_LIBRARIES)}, not {library}")
    built = building.go_driver(GROUP, HERE / "go")
    return built if built.command is None else Built([*built.command, library])


if __name__ == "__main__":
    for label, built in [
        ("java", java_command()),
        *((library, go_command(library)) for library in GO_LIBRARIES),
    ]:
        print(json.dumps({"driver": label, "command": built.command, "reason": built.reason}))
