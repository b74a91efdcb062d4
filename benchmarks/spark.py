"""`make bench-spark`: Odradek's Spark source and sink beside the JVM connector, on one real broker.

In: how many rows and runs, which parts. Out: everything measured, as JSON and as tables. The JVM
connector runs on Spark 4.2.0 in an environment of its own (`spark_jvm`), Odradek there, too, and on
the Spark of the project. Each Spark is one process that waits while another is timed; the lanes of
a row take turns, every second round the other way about. How each is set up: METHOD.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyspark
from benchmarks import about, spark_table
from benchmarks.rows import Shape
from benchmarks.spark_jvm import environment, timing
from benchmarks.topics import Topics, new_cluster

ROOT = Path(__file__).resolve().parent.parent
OLD, NEW = "4.2.0", "project"
PARTS = ("read", "sink", "batches", "scale")
SHAPE = Shape()
SMALL = 30
"""Micro-batches of the part `batches`, each with a record of every partition."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}
TUNED = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(50 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
TUNED_SINK = {"kafka.linger.ms": "50", "kafka.batch.size": str(1 << 20), "kafka.acks": "1"}


@dataclass(frozen=True, slots=True)
class Lane:
    """One connector on one Spark, in one way."""

    key: str
    title: str
    spark: str
    format: str
    options: dict[str, str] = field(default_factory=dict)


JVM = Lane("jvm", "JVM connector", OLD, "kafka")
JVM_TUNED = Lane("jvm-tuned", "JVM connector, tuned", OLD, "kafka", TUNED)
OURS_OLD = Lane("odradek-4.2", "Odradek", OLD, "odradek")
OURS = Lane("odradek", "Odradek", NEW, "odradek")
READERS = (JVM, JVM_TUNED, OURS_OLD, OURS)
WRITERS = (
    JVM,
    Lane("jvm-tuned", "JVM connector, tuned, acks=1", OLD, "kafka", TUNED_SINK),
    Lane("odradek-4.2", "Odradek, at_least_once", OLD, "odradek"),
    Lane("odradek", "Odradek, at_least_once", NEW, "odradek"),
    Lane("odradek-once", "Odradek, exactly_once", NEW, "odradek", {"delivery": "exactly_once"}),
)
EMPTY = tuple(
    Lane(f"empty-{name}", "a Python source without Kafka", spark, "empty")
    for name, spark in (("4.2", OLD), ("new", NEW))
)
QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "noop": ("all columns into noop", {"query": "noop"}),
    "sum": ("sum(length(value))", {"query": "sum", "value_bytes": SHAPE.value_size}),
    "count": ("count", {"query": "count"}),
    "value": ("value only into noop", {"query": "noop"}),
}


class Spark:
    """One Spark in a process of its own, which does what it is told, line by line."""

    def __init__(
        self, python: str, variables: dict[str, str], jars: tuple[str, ...], master: str, log: Path
    ) -> None:
        settings = {**SETTINGS, "spark.master": master, "spark.jars": ",".join(jars)}
        settings["spark.sql.warehouse.dir"] = str(log.parent / "warehouse")
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, timing.__file__, json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=variables, cwd=log.parent,
                start_new_session=True,  # its processes are told by their session
            )  # fmt: skip
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("pipes were asked for")
        self._given, self._told = self._process.stdin, self._process.stdout
        self._log = log
        self.version = ""
        try:
            self.version = self._answer()["spark"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do one job and tell how long it took."""
        self._given.write(json.dumps(job) + "\n")
        self._given.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._told.readline()
        if not line:
            raise RuntimeError(f"Spark died: {self._log.read_text()[-2000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self._given.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:  # in the middle of a job
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Bench:
    """One call of this program."""

    def __init__(self, options: argparse.Namespace, topics: Topics, folder: Path) -> None:
        self.options, self.topics, self.folder = options, topics, folder
        self.sparks: dict[str, Spark] = {}
        self.found: dict[str, dict[str, Any]] = {}
        self.skipped = ""
        self.made: environment.Environment | None = None
        try:
            self.made = environment.make()
        except environment.UnavailableError as error:
            self.skipped = str(error)
            progress(f"skipped: {OLD}: {error}")

    def start(self, name: str, master: str = "local[2]") -> Spark:
        """Start one of the two Sparks."""
        log = self.folder / f"spark-{name}-{len(list(self.folder.iterdir()))}.log"
        variables = environment.variables_of(sys.executable)
        if master.startswith("local-cluster"):
            variables["SPARK_HOME"] = str(home_of_executors(self.folder))
        if name == NEW or self.made is None:
            return Spark(sys.executable, variables, (), master, log)
        return Spark(self.made.python, self.made.variables(), self.made.jars, master, log)

    def run(self) -> None:
        """All parts that were asked for."""
        if {"read", "sink", "batches"} & set(self.options.parts):
            for name in (NEW,) if self.skipped else (OLD, NEW):
                self.sparks[name] = self.start(name)
            try:
                for part in self.options.parts:
                    if part != "scale":
                        getattr(self, part)()
            finally:
                for spark in self.sparks.values():
                    spark.close()
        if "scale" in self.options.parts:
            self.scale()

    def read(self) -> None:
        """Batch queries over one topic."""
        topic = self.topics.loaded(SHAPE)
        for key in self.options.queries:
            self.turns(f"read/{key}", QUERIES[key][0], READERS, lambda lane, key=key: self.reading(
                lane, topic, key), warm_up=key == self.options.queries[0])  # fmt: skip

    def reading(self, lane: Lane, topic: str, query: str) -> dict[str, Any]:
        """One batch query as a job."""
        options = {
            "kafka.bootstrap.servers": self.topics.bootstrap,
            "subscribe": topic,
            **lane.options,
        }
        job: dict[str, Any] = {"kind": "read", "format": lane.format, "options": options}
        job |= QUERIES[query][1]
        if query == "value":
            # A user of the JVM connector selects; ours is told by the schema, and so reads less.
            job |= {"select": ["value"]} if lane.format == "kafka" else {"schema": "value binary"}
        return job

    def sink(self) -> None:
        """A stream's batch of generated rows into a topic."""
        rows = self.topics.records_of(SHAPE)
        generator = Lane("generator", "making the rows, no sink", NEW, "noop")
        self.turns(
            "sink",
            "generated rows into a topic",
            (generator, *WRITERS),
            lambda lane: {
                "kind": "generate" if lane is generator else "write",
                "rows": str(rows), "tasks": str(SHAPE.partitions), "format": lane.format,
                "options": {"kafka.bootstrap.servers": self.topics.bootstrap, **lane.options},
            },
            own_topic=True, warm_up=True,
        )  # fmt: skip

    def batches(self) -> None:
        """Micro-batches of a row from each partition."""
        shape = Shape(share=SMALL * SHAPE.partitions / self.topics.records)
        topic = self.topics.loaded(Shape(value_size=101, share=shape.share))
        self.turns(
            "batches",
            "micro-batches of a row from each partition",
            (JVM, OURS_OLD, OURS, *EMPTY),
            lambda lane: {
                "kind": "batches", "format": lane.format,
                "options": {"batches": str(SMALL), "tasks": str(SHAPE.partitions)}
                if lane in EMPTY else
                {"kafka.bootstrap.servers": self.topics.bootstrap, "subscribe": topic,
                 "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(SHAPE.partitions)},
            },
        )  # fmt: skip

    def scale(self) -> None:
        """One executor process and two, each with one core."""
        topic = self.topics.loaded(SHAPE)
        masters = {n: f"local-cluster[{n},1,2048]" for n in (1, 2)}
        try:
            for executors, master in masters.items():
                self.sparks[f"{executors}"] = self.start(NEW, master)
            lanes = [
                Lane(f"executors-{n}", f"Odradek, {n} executor{'s' * (n > 1)}", f"{n}", "odradek")
                for n in masters
            ]
            self.turns("scale", "executor processes with a core each", tuple(lanes),
                       lambda lane: self.reading(lane, topic, "noop"), warm_up=True)  # fmt: skip
        finally:
            for n in masters:
                if f"{n}" in self.sparks:
                    self.sparks[f"{n}"].close()

    def turns(
        self, row: str, title: str, lanes: tuple[Lane, ...], job_of: Any, *,
        own_topic: bool = False, warm_up: bool = False,
    ) -> None:  # fmt: skip
        """Measure the lanes of a row by turns."""
        lanes = tuple(lane for lane in lanes if lane.spark in self.sparks)
        runs: dict[str, list[dict[str, Any]]] = {lane.key: [] for lane in lanes}
        for turn in range(-warm_up, self.options.runs):
            for lane in lanes if turn % 2 == 0 else reversed(lanes):
                job = job_of(lane)
                if own_topic:
                    job["options"]["topic"] = self.topics.empty(SHAPE)
                result = self.sparks[lane.spark].run(job)
                if own_topic:
                    self.topics.drop(job["options"]["topic"])
                if row.startswith("read") or row == "scale":
                    check_rows(result, self.topics.records_of(SHAPE))
                progress(f"{row} {turn + 1}/{self.options.runs} {lane.title} "
                         f"({self.sparks[lane.spark].version}): {in_short(result)}")  # fmt: skip
                if turn >= 0:
                    runs[lane.key].append(result)
        self.found[row] = {
            "title": title,
            "lanes": {
                lane.key: {
                    "title": lane.title,
                    "spark": self.sparks[lane.spark].version,
                    "options": lane.options,
                    "runs": runs[lane.key],
                }
                for lane in lanes
            },
        }


def home_of_executors(folder: Path) -> Path:
    """A home of Spark whose `work`, where executors' files go, is in a folder of ours."""
    home = folder / "spark-home"
    if not home.exists():
        home.mkdir()
        installed = Path(pyspark.__file__).parent
        for name in ("bin", "jars", "python", "sbin"):
            (home / name).symlink_to(installed / name)
    return home


def check_rows(result: dict[str, Any], expected: int) -> None:
    """A query that read something else isn't a measurement.

    `sum` and `count` say how many rows they read; noop and the others don't, so there nobody looks.
    """
    if result.get("rows") not in (None, expected) and "error" not in result:
        result["error"] = f"{result['rows']} rows instead of {expected}"
    result["rows"] = expected


def in_short(result: dict[str, Any]) -> str:
    """A result in a few words."""
    if "error" in result:
        return f"failed: {result['error'][-300:]}"
    if "warm_s" in result:
        return f"cold {result['cold_s']:.2f} s, warm {result['warm_s']:.3f} s {result['stages_s']}"
    rate = result["rows"] / result["seconds"] / 1e6
    return f"{rate:.2f} M rows/s, {result['cpu_s'] / result['rows'] * 1e6:.2f} µs CPU a row"


def progress(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)


def names(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


def command_line() -> argparse.Namespace:
    """Read and check the options."""
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    add = parser.add_argument
    add("--rows", dest="records", type=int, default=10_000_000, help="of a topic (%(default)s)")
    add("--runs", type=int, default=3, help="of each measurement (%(default)s)")
    add("--parts", type=names, default=list(PARTS), help=f"of {', '.join(PARTS)}")
    add("--queries", type=names, default=list(QUERIES), help=f"of {', '.join(QUERIES)}")
    add("--json", type=Path, default=ROOT / "artifacts" / "bench-spark.json")
    add("--markdown", type=Path, default=ROOT / "artifacts" / "bench-spark.md")
    options = parser.parse_args()
    if unknown := {*options.parts, *options.queries} - {*PARTS, *QUERIES}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    if options.runs < 1 or options.records < 1000:
        parser.error("--runs must be 1 or more, --rows 1000 or more")
    options.cpus = options.batch_size = None
    return options


def main() -> None:
    """Measure, write, print."""
    options = command_line()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that brokers and Sparks end, too
    with new_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Topics(cluster, Path(folder), options.records), Path(folder))
        store: dict[str, Any] = {"sitting": {**about.sitting(options), "kafka": cluster.version}}
        try:
            bench.run()
        finally:
            store |= {"skipped": bench.skipped, "rows": bench.found}
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(store, indent=1) + "\n")
    text = spark_table.markdown(store)
    options.markdown.write_text(text)
    print(text)
    progress(f"written: {options.json}, {options.markdown}")


if __name__ == "__main__":
    main()
