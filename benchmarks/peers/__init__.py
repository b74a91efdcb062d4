"""The measured clients: how the driver of each is built and started.

In: a lane (a client and its way of doing a task). Out: the command of its driver, or the reason why
there is none. A driver is a program for one library, in its language, that prints one measurement.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from benchmarks import building
from benchmarks.building import Built

HERE = Path(__file__).parent
GROUP = "benchmarks"
LOCK = HERE.parent / "requirements.lock"
# The heap has a fixed size of 1 GiB; the garbage collector is Java's default.
_JAVA_OPTIONS = ("-Xms1g", "-Xmx1g")
_JAVA_JARS = (*building.CLIENT_JARS, "at.yawk.lz4.", "com.github.luben.zstd", "org.xerial.snappy")
_OURS = ("odradek", "odradek-asyncio", "compat-aiokafka", "compat-confluent", "raw")
"""Clients whose drivers run in this project's own environment."""


@cache
def command(client: str, mode: str) -> Built:
    """Return the command of a client's driver for a mode."""
    if client in ("franz-go", "sarama"):
        built = building.go_driver(GROUP, HERE / "go")
        more = [client, mode]
    elif client == "java":
        built = building.java_driver(
            GROUP, HERE / "java" / "BenchDriver.java", _JAVA_OPTIONS, _JAVA_JARS
        )
        more = [mode]
    elif client == "librdkafka":
        built = building.librdkafka_driver(GROUP, HERE / "c" / "librdkafka_driver.c")
        more = [mode]
    else:
        ours = client in _OURS
        # The scorecard's environment with the other Python clients serves the benchmarks, too.
        built = Built([sys.executable]) if ours else building.python_with("scorecard", LOCK)
        program = HERE / "python" / f"{client.replace('-', '_')}_driver.py"
        more = [str(program), mode]
        if mode == "import":
            more = [str(HERE / "python" / "import_driver.py")]
        elif mode == "metadata":
            more = [str(HERE / "python" / "metadata_driver.py"), client]
    if built.command is None:
        return built
    return Built([*built.command, *more])
