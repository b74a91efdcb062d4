"""Run queries given as data with any connector, and return their results.

In: cases, one JSON object a line (`Case` in the tests defines them). Out: for each case its schema,
partitions, rows, the end of each micro-batch, or the error's text. Runs as a separate program with
Spark 4.2.0 and as a function in the tests' own session; imports only pyspark. Must not: know which
connector it runs.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import types
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("queries")
Case = dict[str, Any]
ERROR_CHARACTERS = 6000
PATIENCE_S = 90
AT_ONCE = 3
"""Number of parallel streams: each starts a Python process, for which Spark waits at most 10 s."""
NOT_CONNECTED = "Python worker failed to connect back"
"""Spark's error if a Python process took longer; the stream is then started once more."""
_COLUMNS = (
    "hex(key)", "hex(value)", "topic", "partition", "offset", "unix_micros(timestamp)",
    "timestampType",
)  # fmt: skip
_HEADERS = "transform(headers, h -> struct(h.key, hex(h.value)))"


def run_all(spark: SparkSession, cases: list[Case], folder: Path) -> dict[str, Any]:
    """Run the cases: some streams in parallel, since they mostly wait; all others one by one."""
    streams = [case for case in cases if case["kind"] == "stream"]
    others = [case for case in cases if case["kind"] != "stream"]
    found: dict[str, Any] = {}
    for at in range(0, max(1, len(streams)), AT_ONCE):
        some = streams[at : at + AT_ONCE]
        running = {case["name"]: _attempt(_start, spark, case, folder) for case in some}
        for case in others:  # while the first streams wait
            found[case["name"]] = _attempt(_KINDS[case["kind"]], spark, case, folder)
        others = []
        for case in some:
            query = running[case["name"]]
            failed = isinstance(query, dict)
            result = query if failed else _attempt(_finish, spark, case, folder, query)
            if NOT_CONNECTED in result.get("error", ""):
                query = _start(spark, case, folder)
                result = _attempt(_finish, spark, case, folder, query)
            found[case["name"]] = result
    return found


def _attempt(function: Any, spark: SparkSession, case: Case, *more: Any) -> Any:
    """Call a function and return its result, or the error's text as a result."""
    begin = time.monotonic()
    try:
        return function(spark, case, *more)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]}
    finally:
        logger.info("%s: %s %.1f s", case["name"], function.__name__, time.monotonic() - begin)


def _batch(spark: SparkSession, case: Case, folder: Path) -> dict[str, Any]:
    frame = spark.read.format(case["format"]).options(**case["options"]).load()
    found: dict[str, Any] = {"schema": frame.schema.jsonValue(), "rows": rows_of(frame)}
    if case.get("count_partitions"):
        found["partitions"] = frame.rdd.getNumPartitions()
    return found


def rows_of(frame: DataFrame) -> list[Any]:
    """Return a frame's rows in the order of their offsets, as JSON values."""
    columns = [*_COLUMNS, *([_HEADERS] if "headers" in frame.columns else [])]
    rows = frame.selectExpr(*columns).collect()
    return sorted((json.loads(json.dumps(row)) for row in rows), key=lambda row: row[2:5])


def _start(spark: SparkSession, case: Case, folder: Path) -> Any:
    frame = spark.readStream.format(case["format"]).options(**case["options"]).load()
    place = folder / case["folder"]
    sink = frame.writeStream.format("parquet").option("path", str(place / "rows"))
    if case.get("sink"):
        sink = frame.selectExpr(*case["sink"]["columns"]).writeStream.format(case["format"])
        sink = sink.options(**case["sink"]["options"])
    return (
        sink.option("checkpointLocation", str(place / "checkpoint"))
        .trigger(**case["trigger"])
        .start()
    )


def _finish(spark: SparkSession, case: Case, folder: Path, query: Any) -> dict[str, Any]:
    place = folder / case["folder"]
    ended = query.awaitTermination(PATIENCE_S)
    if not ended:
        query.stop()
        raise TimeoutError(f"the query didn't end: {query.lastProgress}")
    batches = sorted(
        (int(path.name), path)
        for path in (place / "checkpoint" / "offsets").iterdir()
        if path.name.isdecimal()
    )
    ends = [json.loads(path.read_text().splitlines()[-1]) for _, path in batches]
    found: dict[str, Any] = {
        "ends": [end.get("o", end) for end in ends],
        "sizes": [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]],
    }
    if (place / "rows").is_dir():
        found["rows"] = rows_of(spark.read.parquet(str(place / "rows")))
    return found


def _write(spark: SparkSession, case: Case, folder: Path) -> dict[str, Any]:
    frame = spark.sql(case["sql"])
    frame.write.format(case["format"]).options(**case["options"]).mode(case["mode"]).save()
    return {}


def _program(spark: SparkSession, case: Case, folder: Path) -> dict[str, Any]:
    """Call `run` in a case's file; Spark pickles its functions by value, as no module has them."""
    program = types.ModuleType("_program")
    code = compile(Path(case["file"]).read_text(), case["file"], "exec")
    exec(code, program.__dict__)  # noqa: S102 - a file of this repository
    found: dict[str, Any] = program.run(spark, case, folder)
    return found


_FRAMES: dict[str, DataFrame] = {}
"""Data frames that later runs of a case use again, by connector and case."""


def _kept(spark: SparkSession, case: Case, folder: Path) -> dict[str, Any]:
    """Return the rows of a frame that an earlier case loaded: directly, by a view or by a join."""
    name = f"{case['format']}_{case['name'].split('>')[0]}".replace(" ", "_")
    if name not in _FRAMES:
        _FRAMES[name] = spark.read.format(case["format"]).options(**case["options"]).load()
        _FRAMES[name].createOrReplaceTempView(name)
    frame = _FRAMES[name]
    if case["via"] == "view":
        return {"rows": rows_of(spark.table(name)), "count": frame.count()}
    if case["via"] == "frame":
        return {"rows": rows_of(frame), "count": frame.count()}
    stream = spark.readStream.format(case["format"]).options(**case["options"])
    place = stream.option("startingOffsets", "earliest").load()
    joined = frame.join(
        place.select("topic", "partition", "offset"), ["topic", "partition", "offset"]
    )
    found: list[Any] = []
    query: Any = joined.writeStream.foreachBatch(lambda rows, _: found.extend(rows_of(rows)))
    query.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
    return {"rows": sorted(found, key=lambda row: row[2:5])}


_KINDS = {"batch": _batch, "kept": _kept, "write": _write, "program": _program}


def session(jars: list[str], settings: dict[str, str] | None = None) -> SparkSession:
    """Return a small local session with the jars of a connector."""
    builder: Any = SparkSession.builder
    for name, value in {
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
        # Short queries: the second compiler and the parallel collector cost more than they save.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **(settings or {}),
    }.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.master("local[2]").getOrCreate()
    return made


def main() -> None:
    """Run lists of cases from standard input; arguments: a folder for checkpoints, then jars."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # shows what takes time
    logging.getLogger("py4j").setLevel(logging.ERROR)
    folder = Path(sys.argv[1])
    spark = session(sys.argv[2:], {"spark.sql.warehouse.dir": str(folder / "warehouse")})
    print(json.dumps({"spark": spark.version}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run_all(spark, json.loads(line), folder)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
