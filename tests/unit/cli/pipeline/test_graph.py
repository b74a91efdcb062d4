"""Test that Spark's errors are shown shortened, with the line in the pipeline's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odradek.cli.pipeline.document import SpecError, read
from odradek.cli.pipeline.graph import Graph, session, text_of
from odradek.cli.pipeline.spec import parse
from odradek.common.errors import ConfigurationError

EXAMPLES = Path(__file__).parents[4] / "examples" / "pipelines"
ANALYSIS = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `nosuch` cannot be resolved. SQLSTATE: 42703; "
    "line 2 pos 7;\n'Project ['nosuch]\n+- Relation\n"
)
SYNTAX = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'FRM'. SQLSTATE: 42601 (line 2, pos 4)\n\n"
    "== SQL ==\nSELECT 1\nFRM x\n----^^^\n"
)
IN_A_WORKER = """\
[STREAM_FAILED] Query copy terminated with exception: [PYTHON_EXCEPTION] An exception was thrown \
from the Python worker: Traceback (most recent call last):
  File "somewhere.py", line 3, in read
    ask()
    ^^^^^
ValueError: what it began with

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "somewhere.py", line 7, in read
    raise
odradek.spark.checkpoint_errors.OutageError: no broker answered
  in 3 s
 SQLSTATE: 38000
\tat org.apache.spark.Somewhere
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            IN_A_WORKER,
            "odradek.spark.checkpoint_errors.OutageError: no broker answered in 3 s",
        ),
        (ANALYSIS, "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `nosuch` cannot be resolved."),
        (SYNTAX, "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FRM'."),
        ("", "ValueError"),
    ],
)
def test_a_spark_error_is_shown_without_the_query_plan_and_the_sql_statement(
    error: str, said: str
) -> None:
    assert text_of(ValueError(error)) == said


class Spark:
    """A fake Spark session that accepts every source and rejects all SQL."""

    def __init__(self, error: str) -> None:
        self._error = error
        self.readStream = self.read = self

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self

    def sql(self, text: str) -> Any:
        raise ValueError(self._error)


@pytest.mark.parametrize("error", [ANALYSIS, SYNTAX])
def test_an_error_in_sql_names_the_line_in_the_pipelines_file(error: str) -> None:
    path = EXAMPLES / "copy.yml"
    pipeline = parse(read(path, {"KAFKA": "localhost:9092"}))
    second = path.read_text().splitlines().index("    SELECT key, value FROM orders") + 2
    with pytest.raises(SpecError, match=rf"copy\.yml:{second}: view large: \["):
        Graph(pipeline, Spark(error), None).analyse()


class Noting:
    """A fake Spark session that accepts everything and records the options of each `load()`."""

    def __init__(self) -> None:
        self.loaded: list[dict[str, str]] = []
        self._options: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self

    @property
    def read(self) -> Any:
        self._options = {}
        return self

    @property
    def readStream(self) -> Any:  # noqa: N802 - Spark's name
        return self.read

    def options(self, **given: str) -> Any:
        self._options |= given
        return self

    def load(self) -> Any:
        self.loaded.append(self._options)
        return self


def test_only_odradeks_sources_get_the_pause_file(tmp_path: Path) -> None:
    text = (EXAMPLES / "lookup.yml").read_text()
    file, pause = tmp_path / "lookup.yml", Path("/state/pause-1")
    for more, expected in (("", str(pause)), ("\n      pauseFile: /mine", "/mine")):
        file.write_text(text.replace("subscribe: orders", f"subscribe: orders{more}"))
        pipeline = parse(read(file, {"KAFKA": "localhost:9092"}))
        for given, found in ((pause, expected), (None, "/mine" if more else None)):
            spark = Noting()
            Graph(pipeline, spark, None, given).analyse()
            assert [options.get("pauseFile") for options in spark.loaded] == [found, None]


def test_the_error_of_a_failed_spark_start_is_short_and_names_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(builder: Any) -> Any:
        raise ValueError("[MASTER_URL_NOT_VALID] Could not parse Master URL: 'nonsense'\n\tat org")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    monkeypatch.setattr("odradek.testing.ensure_java_environment", lambda: None)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    pipeline = parse(read(EXAMPLES / "copy.yml", {"KAFKA": "localhost:9092"}))
    log = tmp_path / "new" / "spark.log"
    with pytest.raises(ConfigurationError, match="Spark didn't start: .*nonsense.*; its log is .*"):
        session(pipeline, log)
    assert log.exists()


def test_a_python_worker_that_did_not_connect_in_time_is_retried_once() -> None:
    class Busy(Noting):
        failures = 1

        def load(self) -> Any:
            if self.failures:
                self.failures -= 1
                raise ValueError("Timed out while waiting for the Python worker to connect back")
            return super().load()

    pipeline = parse(read(EXAMPLES / "copy.yml", {"KAFKA": "localhost:9092"}))
    said: list[str] = []
    spark = Busy()
    Graph(pipeline, spark, None, say=said.append).analyse()
    assert len(spark.loaded) == 1
    assert said == ["orders: a Python process of Spark failed to connect back; retrying once"]
    spark.failures = 2
    with pytest.raises(SpecError, match="connect back"):
        Graph(pipeline, spark, None, say=said.append).analyse()
