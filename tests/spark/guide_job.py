"""A user's program as guides for the JVM connector show it, on a TLS + SCRAM cluster.

In: the path of a plan in JSON (Spark's address, the connector's options, topics, a folder). Out:
the records that it read and wrote in `result.json`, and everything that Spark shows (plans, the
UI's pages and its REST API, errors, command lines of processes) in the folder `shown`. Only the
format name differs from a guide. This isn't a test; tests run it with Spark processes and through
Spark Connect.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from odradek.testing import ensure_java_environment


def session(plan: dict[str, Any]) -> SparkSession:
    builder: Any = SparkSession.builder
    if "remote" in plan:
        builder = builder.remote(plan["remote"])  # no Java; the settings are the server's
    else:
        ensure_java_environment()
        builder = builder.master(plan["master"])
    for name, value in plan["settings"].items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


def describe_worker(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield facts about a worker's Python."""
    import os

    import odradek
    from odradek import record

    yield pa.RecordBatch.from_pydict(
        {
            "python": [sys.executable],
            "package": [odradek.__file__],
            "kernel": [record.KERNEL],
            "parent": [os.getppid()],
        }
    )


class Shown:
    """Files with the texts that Spark shows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def keep(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def plan(self, name: str, frame: DataFrame) -> None:
        """Save the output of explain() and the frame's repr."""
        for mode in ("extended", "formatted", "cost", "codegen"):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                frame.explain(mode=mode)
            self.keep(f"explain-{name}-{mode}.txt", f"{printed.getvalue()}\n{frame!r}")

    def commands(self) -> None:
        """Save the command lines of Spark's processes, which all users of a machine can read."""
        lines = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # the process has already ended
                lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        self.keep("commands.txt", "\n".join(line for line in lines if "spark" in line.lower()))

    def interface(self, url: str, more: list[str]) -> int:
        """Save the responses of the UI's pages and its REST API; return how many responded."""
        api = f"{url}/api/v1/applications"
        application = json.loads(fetch(api))[0]["id"]
        kinds = ("environment", "jobs", "stages?details=true", "executors", "sql?details=true")
        pages = {f"api-{kind}": f"{api}/{application}/{kind}" for kind in kinds}
        for page in ("environment", "SQL", "jobs", "stages", "executors", "StreamingQuery", *more):
            pages[f"page-{page}"] = f"{url}/{page}/"
        for number in range(4):
            pages[f"page-execution-{number}"] = f"{url}/SQL/execution/?id={number}"
        for name, address in pages.items():
            self.keep(f"{name.partition('?')[0]}.txt", fetch(address))
        return len(pages)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - loopback
        text: str = answer.read().decode()
        return text


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(plan["folder"])
    result: dict[str, Any] = {}
    shown = Shown(folder / "shown")
    spark = session(plan)
    reader = spark.read.format("odradek").options(**plan["options"])
    frame = reader.option("subscribe", plan["source"]).load()
    frame.createOrReplaceTempView("kept")
    shown.plan("batch", frame)
    result["values"] = [row.value.decode() for row in frame.select("value").collect()]
    workers = spark.range(4).repartition(4)
    columns = "python string, package string, kernel string, parent long"
    result["workers"] = [
        row.asDict() for row in workers.mapInArrow(describe_worker, columns).distinct().collect()
    ]
    rows = frame.select("key", "value").write.format("odradek").options(**plan["options"])
    rows.option("topic", plan["target"]).mode("append").save()
    stream = spark.readStream.format("odradek").options(**plan["options"])
    changes = (
        stream.option("subscribe", plan["source"]).option("startingOffsets", "earliest").load()
    )
    writer = changes.select("key", "value").writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.format("odradek").options(**plan["options"])
    query = writer.option("topic", plan["target"]).option("delivery", "exactly_once").start()
    query.awaitTermination()
    shown.keep("query.txt", f"{query.lastProgress} {query.status} {query!r}")
    shown.plan("stream", changes)
    query.explain(extended=True)
    later = spark.range(5).selectExpr("cast(id as string) value").write.format("odradek")
    later.options(**plan["options"], topic=plan["source"]).mode("append").save()
    result["kept"] = [frame.count(), spark.table("kept").count()]
    for name, more in plan["faulty"].items():
        try:
            broken = spark.read.format("odradek").options(**{**plan["options"], **more})
            broken.option("subscribe", plan["source"]).load().count()
        except Exception as error:
            shown.keep(f"error-{name}.txt", str(error))
            result.setdefault("errors", {})[name] = str(error)
    shown.commands()
    url = plan["interface"] if "remote" in plan else spark.sparkContext.uiWebUrl
    result["pages"] = shown.interface(str(url), plan["pages"])
    (folder / "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
