"""Build a pipeline in Spark: a session, views of all inputs, a writer for each sink.

In: a checked `Pipeline`. Out: streaming queries, not started until `start`. Errors that only Spark
finds (SQL, schemas, formats) become a `SpecError` with the SPEC's line. Must not: produce output.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from odradek.cli.pipeline.document import Problems
from odradek.cli.pipeline.spec import AVAILABLE_NOW, OURS, Pipeline, Sink, Source, View
from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret

T = TypeVar("T")

NOT_CONNECTED = "connect back"
"""End of Spark's messages "… failed to connect back" and "Timed out while waiting for …"."""
_IN_STATEMENT = re.compile(r"\bline (\d+),? pos (\d+)")
ONCE_MORE = "a Python process of Spark failed to connect back; retrying once"
_WAY = "Traceback (most recent call last):"
_RAISED = re.compile(r"(?m)^(?=\w)")
"""Matches the error's line after a traceback, whose lines are indented."""
_NOISE = re.compile(r"(?s)(\n?== SQL.*|;\n'.*|\bSQLSTATE: \w+.*)")


def session(pipeline: Pipeline, log: Path | BinaryIO | None) -> Any:
    """Start Spark, or return the existing session; the JVM's output is written to the log.

    Raises `ConfigurationError` if it can't be started, because of the settings or of Java.
    """
    from pyspark.sql import SparkSession

    if "spark.remote" not in pipeline.spark:
        from odradek.testing import ensure_java_environment

        ensure_java_environment()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # PySpark logs each error that it raises; errors in SQL are reported with their line instead.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder: Any = SparkSession.builder.appName(pipeline.name)
    settings = {"spark.ui.showConsoleProgress": "false", **pipeline.spark}
    for name, value in settings.items():
        builder = builder.config(name, value)
    hint = f"; its log is {log}" if isinstance(log, Path) else ""
    try:
        with ExitStack() as stack:  # the JVM inherits this process's stderr
            if isinstance(log, Path):
                log.parent.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(log.open("ab"))
            if log is not None:
                stack.enter_context(_stderr_to(log))
            return builder.getOrCreate()
    except Exception as error:  # Spark and Py4J raise many classes
        raise ConfigurationError(f"Spark didn't start: {text_of(error)}{hint}") from error


@contextmanager
def _stderr_to(file: BinaryIO) -> Iterator[None]:
    """Redirect the standard error of processes that the block starts to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def end_session(spark: Any) -> None:
    """Stop Spark, and the JVM if this process started it."""
    spark.stop()
    context = getattr(spark, "_sc", None)
    gateway = getattr(context, "_gateway", None)
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:  # the JVM isn't this process's child
        return
    gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(20)
    except Exception:  # the JVM hasn't ended in time
        process.kill()


class Graph:
    """Views and writers of one pipeline in one session."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: Any,
        events: Path | None,
        pause: Path | None = None,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        """Set folders and callbacks.

        `events`: folder for the events of each cluster's clients; `pause`: file whose existence
        prevents our sources from beginning another batch; `say`: called with a text about each
        retry.
        """
        self._pipeline, self._spark, self._events = pipeline, spark, events
        self._pause, self._say = pause, say
        self._problems: Problems = pipeline.problems

    def analyse(self) -> dict[str, Any]:
        """Create all views and return the DataFrame of each sink; raise all problems together."""
        for source in self._pipeline.sources.values():
            self._loaded(source, self._spark.readStream.options(**self._pausing(source)))
        for lookup in self._pipeline.lookups.values():
            self._loaded(lookup, self._spark.read)
        self._problems.check()
        for view in self._pipeline.views.values():
            self._viewed(view)
        self._problems.check()
        frames = {name: self._spark.table(s.reads) for name, s in self._pipeline.sinks.items()}
        for name, sink in self._pipeline.sinks.items():
            self._fits(sink, frames[name])
        self._problems.check()
        return frames

    def start(self, frames: Mapping[str, Any]) -> dict[str, Any]:
        """Start a query for each sink; if one fails to start, stop the earlier ones."""
        started: dict[str, Any] = {}
        for name, sink in self._pipeline.sinks.items():
            try:
                started[name] = self.start_one(name, frames[name])
            except Exception as error:  # Spark and the sink may raise any class
                self._problems.add(sink.line_of(text_of(error)), f"sink {name}: {text_of(error)}")
                for query in started.values():
                    query.stop()
                break
        self._problems.check()
        return started

    def start_one(self, name: str, frame: Any) -> Any:
        """Start the query of one sink; raises Spark's exceptions."""
        writer = self._writer(self._pipeline.sinks[name], frame)
        return self._connected(f"sink {name}", writer.start)

    def _connected(self, what: str, attempt: Callable[[], T]) -> T:
        """Call `attempt`; repeat it once if a Python process of Spark was too slow to connect."""
        try:
            return attempt()
        except Exception as error:  # Spark and Py4J raise many classes
            if not is_not_connected(error):
                raise
            self._say(f"{what}: {ONCE_MORE}")
            return attempt()

    def _loaded(self, source: Source, reader: Any) -> None:
        made = reader.format(source.format).options(**self._plain(source))
        if source.schema is not None:
            try:
                made = made.schema(source.schema)
            except Exception as error:
                self._problems.add(source.schema_line, f"schema of {source.name}: {text_of(error)}")
                return
        try:
            frame = self._connected(source.name, made.load)
            frame.createOrReplaceTempView(source.name)
        except Exception as error:
            text = text_of(error)
            self._problems.add(source.line_of(text), f"{source.name}: {text}")

    def _pausing(self, source: Source) -> dict[str, str]:
        """Return the option pauseFile for Odradek's source: the file prevents another batch."""
        if source.format != OURS or self._pause is None or source.option("pauseFile") is not None:
            return {}
        return {"pauseFile": str(self._pause)}

    def _plain(self, place: Source | Sink) -> dict[str, str]:
        found = {name: _plain_text(value) for name, value in place.options.items()}
        events = self._events
        cluster = place.cluster if place.format == OURS else None
        if events is not None and cluster is not None and place.option("eventsDir") is None:
            found["eventsDir"] = str(events / cluster.name)
        return found

    def _viewed(self, view: View) -> None:
        try:
            frame = self._spark.sql(view.sql)
        except Exception as error:
            message = text_of(error, whole=True)
            found = _IN_STATEMENT.search(message)
            line = view.sql_line + (int(found[1]) - 1 if found else 0)
            self._problems.add(line, f"view {view.name}: {text_of(error)}")
        else:
            frame.createOrReplaceTempView(view.name)

    def _fits(self, sink: Sink, frame: Any) -> None:
        if not frame.isStreaming:
            self._problems.add(
                sink.reads_line,
                f"sink {sink.name}: {sink.reads} reads only lookups, no source",
            )
        for column in sink.partition_by:
            if column not in frame.columns:
                self._problems.add(
                    sink.line_of("partitionBy"),
                    f"sink {sink.name}: partitionBy: {sink.reads} has no column {column}; its "
                    f"columns are {', '.join(frame.columns)}",
                )

    def _writer(self, sink: Sink, frame: Any) -> Any:
        writer = frame.writeStream.format(sink.format).outputMode(sink.mode).queryName(sink.name)
        writer = writer.options(**self._plain(sink))
        writer = writer.option("checkpointLocation", self._pipeline.checkpoint(sink))
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        if sink.trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=sink.trigger)


def is_not_connected(error: BaseException) -> bool:
    """Return whether a Python process that Spark started was too slow to connect.

    It happens on busy machines, and the failed call can be repeated.
    """
    return NOT_CONNECTED in str(error)


def _plain_text(value: Any) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)


def text_of(error: BaseException, *, whole: bool = False) -> str:
    """Return the essential lines of a Spark error, without the SQL text and the plan.

    For an exception of a Python process of Spark, return that exception without its traceback.
    """
    text = str(error)
    if whole:
        return text
    _, way, rest = text.rpartition(_WAY)
    if way and (found := _RAISED.search(rest)):
        text = rest[found.start() :]
    lines = [line for line in _NOISE.sub("", text).splitlines() if line.strip()]
    return " ".join(line.strip() for line in lines[:4]) or type(error).__name__
