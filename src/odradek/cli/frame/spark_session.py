"""Create a Spark session for a command.

In: a master, a name. Out: a session that is quiet and, with a local master, listens on loopback.
Must not: change an existing session; a command has a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def spark_session(name: str, master: str | None) -> Iterator[Any]:
    """Start a session, or connect to one (`sc://…`); stop it and its tasks at the end."""
    session = _started(name, master)
    try:
        yield session
    finally:
        session.stop()


def _started(name: str, master: str | None) -> Any:
    from pyspark.sql import SparkSession

    from odradek.testing import ensure_java_environment

    builder: Any = SparkSession.builder
    builder = builder.appName(name).config("spark.ui.showConsoleProgress", "false")
    if master is not None and master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    ensure_java_environment()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.config("spark.log.level", "ERROR").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    if master is not None:
        builder = builder.master(master)
    session = builder.getOrCreate()
    # Replace PySpark's handler, which calls the JVM inside the signal handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return session
