"""A Spark session for `odradek simulate fleet --spark`, from its start to its end.

In: a plan, slices, a master. Out: loads as the waves of tasks end; the session is stopped after the
last one, or when whoever asks gives up (Ctrl-C), which ends the tasks, too.
Must not: change a session that somebody else runs; a command has a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.simulation.fleet import Load
    from odradek.simulation.fleet_slices import Plan, Slice


def on_spark(
    plan: Plan, todo: list[Slice], master: str | None, shards: int | None
) -> Iterator[tuple[list[Slice], list[Load]]]:
    """Simulate slices on Spark; after each wave of tasks the slices and their loads."""
    from odradek.spark.fleet_shards import default_shards, simulate_shards

    session = _session(master)
    try:
        yield from simulate_shards(session, plan, todo, shards or default_shards(session))
    finally:
        session.stop()


def _session(master: str | None) -> Any:
    from pyspark.sql import SparkSession

    from odradek.testing import ensure_java_environment

    builder: Any = SparkSession.builder
    builder = builder.appName("odradek-fleet").config("spark.ui.showConsoleProgress", "false")
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
    # PySpark's handler calls the JVM from within the signal; the plain one ends the run in order.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return session
