"""Compare Odradek's Spark source and sink with the JVM connector on one broker: `make bench-spark`.

In: the number of rows and runs, the parts. Out: all results, as JSON (rewritten after each row, so
that an early end loses nothing) and as tables. The rows that a lane (a connector on a Spark) reads
or writes are counted outside of the measured time, and a lane with a wrong count has failed. The
JVM connector runs on Spark 4.2.0 in a separate environment (`spark_jvm`), Odradek there too, and on
the Spark of the project. Each Spark is one process that waits while another is timed; lanes take
turns, every second round in reverse order. METHOD.md describes the settings of each.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from benchmarks import about, spark_planning, spark_table
from benchmarks.rows import Shape
from benchmarks.spark_jvm import environment
from benchmarks.spark_process import Job, Result, Spark
from benchmarks.topics import Topics, new_cluster

ROOT = Path(__file__).resolve().parent.parent
OLD, NEW = "4.2.0", "project"
PARTS = ("read", "sink", "batches", "planning", "scale")
SHAPE = Shape()
FEW = Shape(value_size=102, share=1e-4)
"""Rows of the small job that starts the sink's Python workers before each turn."""
MOST_TASKS = 16
"""Maximum number of tasks that Spark creates for reading the Parquet files."""
SMALL = 30
"""Number of micro-batches in the part `batches`, each with one record of every partition."""
MANY = (10_000, 100_000)
"""Numbers of partitions for which the planning of batches is measured."""
TUNED = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(50 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
TUNED_SINK = {"kafka.linger.ms": "50", "kafka.batch.size": str(1 << 20), "kafka.acks": "1"}
NO_BYTE_LIMIT = {"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1)}
"""Setting that keeps Spark from computing an Arrow batch's size after each row."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One connector on one Spark, in one way of using it (a lane of a row)."""

    key: str
    title: str
    spark: str
    format: str
    options: dict[str, str] = field(default_factory=dict)
    session: dict[str, str] = field(default_factory=dict)
    """Spark's own settings."""


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
    Lane("odradek-tuned", "Odradek, at_least_once, Spark tuned", NEW, "odradek", {}, NO_BYTE_LIMIT),
    Lane("odradek-once-tuned", "Odradek, exactly_once, Spark tuned", NEW, "odradek",
         {"delivery": "exactly_once"}, NO_BYTE_LIMIT),
)  # fmt: skip
EMPTY = tuple(
    Lane(f"empty-{name}", "a Python source without Kafka", spark, "empty")
    for name, spark in (("4.2", OLD), ("new", NEW))
)
PIPES = (JVM, OURS_OLD, OURS, Lane("odradek-once", "Odradek, exactly_once", NEW, "odradek"))
"""Connectors (lanes) that copy a topic into another topic."""
QUERIES: dict[str, tuple[str, Job]] = {
    "noop": ("all columns into noop", {"query": "noop"}),
    "sum": ("sum(length(value))", {"query": "sum"}),
    "count": ("count", {"query": "count"}),
    "value": ("value only into noop", {"query": "noop"}),
}


class Bench:
    """One call of this program, with its options and results."""

    def __init__(
        self,
        options: argparse.Namespace,
        topics: Topics,
        folder: Path,
        save: Callable[[dict[str, Any]], None],
    ) -> None:
        self.options, self.topics, self.folder, self.save = options, topics, folder, save
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
        old = self.made if name == OLD else None
        variables = old.variables() if old else environment.variables_of(sys.executable)
        # As with installed packages, a process doesn't compile modules that another has compiled.
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        variables["PYTHONPYCACHEPREFIX"] = str(self.folder / "compiled")
        if master.startswith("local-cluster"):
            variables["SPARK_HOME"] = str(home_of_executors(self.folder))
        if old:
            return Spark(old.python, variables, old.jars, master, log)
        return Spark(sys.executable, variables, (), master, log)

    def run(self) -> None:
        """Run all selected parts of the benchmark."""
        if {"read", "sink", "batches"} & set(self.options.parts):
            for name in (OLD, NEW) if self.made else (NEW,):
                self.sparks[name] = self.start(name)
            try:
                for part in PARTS[:3]:
                    self.attempt(part)
            finally:
                for spark in self.sparks.values():
                    spark.close()
        for part in PARTS[3:]:
            self.attempt(part)

    def attempt(self, part: str) -> None:
        """Run a part if it is selected; its failure doesn't stop the other parts."""
        if part not in self.options.parts:
            return
        try:
            getattr(self, part)()
        except Exception as error:
            text = f"{part}: {type(error).__name__}: {error}"[-500:]
            progress(f"given up: {text}")
            self.skipped = "; ".join(filter(None, (self.skipped, text)))
            self.save({"skipped": self.skipped, "rows": self.found})

    def read(self) -> None:
        """Measure batch queries over one topic."""
        topic = self.topics.loaded(SHAPE)
        for key in self.options.queries:
            counted = key in ("noop", "value")  # the other queries' results contain the count
            first = key == self.options.queries[0]
            self.turns(
                f"read/{key}", QUERIES[key][0], READERS,
                partial(self.reading, topic, key),
                before=partial(self.counting, topic, key) if counted or first else None,
                check=self.check_read,
            )  # fmt: skip

    def check_read(self, lane: Lane, job: Job, result: Result) -> str:
        """Return what is wrong with the rows that a query returned; "" if nothing is wrong."""
        expected = self.topics.records_of(SHAPE)
        rows, size = result.get("rows"), result.get("value_bytes")
        result["rows"] = expected  # noop returns no count; a query before it has checked the rows
        if rows not in (None, expected):
            return f"{rows} rows instead of {expected}"
        if size not in (None, expected * SHAPE.value_size):
            return f"{size} bytes of values instead of {expected * SHAPE.value_size}"
        return ""

    def reading(self, topic: str, query: str, lane: Lane) -> Job:
        """Return the job of one batch query for the timing process."""
        options = {
            "kafka.bootstrap.servers": self.topics.bootstrap,
            "subscribe": topic,
            **lane.options,
        }
        job: Job = {"kind": "read", "format": lane.format, "options": options}
        job |= QUERIES[query][1]
        if query == "value":
            # A user of the JVM connector selects columns; Odradek's source has a schema instead.
            job |= {"select": ["value"]} if lane.format == "kafka" else {"schema": "value binary"}
        return job

    def counting(self, topic: str, query: str, lane: Lane) -> Job:
        """Return the job of a query that returns counts and warms up for the timed queries."""
        return {**self.reading(topic, query, lane), "query": "check"}

    def sink(self) -> None:
        """Measure writing into a topic: a stream's batch from Parquet files, and from a topic."""
        rows = {True: self.topics.records_of(SHAPE), False: self.topics.records_of(FEW)}
        folders = {whole: str(self.folder / f"rows-{count}") for whole, count in rows.items()}
        for whole, folder in folders.items():
            stored = {"rows": str(rows[whole]), "tasks": str(SHAPE.partitions), "folder": folder}
            made = self.sparks[NEW].run({"kind": "stored", **stored})
            if "error" in made:
                raise RuntimeError(f"no rows to write: {made['error']}")
        reading = Lane("reading", "reading the rows, no sink", NEW, "noop")

        def writing(lane: Lane, *, whole: bool = True) -> Job:
            options = {"kafka.bootstrap.servers": self.topics.bootstrap, **lane.options}
            if lane is not reading:
                options["topic"] = self.topics.empty(SHAPE)
            kind = "unsunk" if lane is reading else "write"
            return {"kind": kind, "folder": folders[whole], "format": lane.format,
                    "options": options, "session": lane.session,
                    "expected": rows[whole]}  # fmt: skip

        def copying(lane: Lane, *, whole: bool = True) -> Job:
            source = {
                "kafka.bootstrap.servers": self.topics.bootstrap,
                "subscribe": self.topics.loaded(SHAPE if whole else FEW),
                "startingOffsets": "earliest",
                **(TUNED if lane.options is TUNED_SINK else {}),
            }  # fmt: skip
            job = {**writing(lane, whole=whole), "kind": "copy", "from": source}
            # As in `reading`: a user of the JVM connector selects columns, Odradek has a schema.
            return job | ({} if lane.format == "kafka" else {"schema": "key binary, value binary"})

        def check(lane: Lane, job: Job, result: Result) -> str:
            if lane is reading:
                return "" if result["rows"] == job["expected"] else f"{result['rows']} rows"
            return self.check_written(lane, job["options"]["topic"], job["expected"])

        title = "rows of Parquet files into a topic"
        self.turns("sink", title, (reading, *WRITERS), writing, before=writing, check=check,
                   awake=partial(writing, whole=False))  # fmt: skip
        self.turns("copy", "a topic into a topic", WRITERS, copying, before=copying, check=check,
                   awake=partial(copying, whole=False))  # fmt: skip

    def check_written(self, lane: Lane, topic: str, rows: int) -> str:
        """Return what is wrong with a topic's end offsets, or ""; delete the topic."""
        end = self.topics.end(topic)
        self.topics.drop(topic)
        # Each transaction of a task ends with a marker in each partition that it wrote to.
        once = lane.options.get("delivery") == "exactly_once"
        markers = SHAPE.partitions * MOST_TASKS if once else 0
        if rows <= end <= rows + markers:
            return ""
        return f"the topic ends at {end}, {rows} rows were written"

    def batches(self) -> None:
        """Measure micro-batches with one row of each partition, into noop and into a topic."""
        topic = self.topics.loaded(Shape(
            value_size=101, share=SMALL * SHAPE.partitions / self.topics.records
        ))  # fmt: skip

        def flowing(lane: Lane) -> Job:
            options = {
                "kafka.bootstrap.servers": self.topics.bootstrap, "subscribe": topic,
                "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(SHAPE.partitions),
            }  # fmt: skip
            if lane in EMPTY:
                options = {"batches": str(SMALL), "tasks": str(SHAPE.partitions)}
            return {"kind": "batches", "format": lane.format, "options": options}

        def piping(lane: Lane) -> Job:
            once = {"delivery": "exactly_once"} if lane.key == "odradek-once" else {}
            into = {"kafka.bootstrap.servers": self.topics.bootstrap,
                    "topic": self.topics.empty(SHAPE), **once}  # fmt: skip
            return {**flowing(lane), "into": into}

        def check(lane: Lane, job: Job, result: Result) -> str:
            rows, expected = result["rows"], SMALL * SHAPE.partitions
            if (rows, result["batches"]) != (expected, SMALL):
                return f"{rows} rows in {result['batches']} batches"
            if "into" not in job:
                return ""
            end = self.topics.end(job["into"]["topic"])
            self.topics.drop(job["into"]["topic"])
            least, most = (2 * expected,) * 2 if lane.key == "odradek-once" else (expected,) * 2
            return "" if least <= end <= most else f"the topic ends at {end}"

        lanes, title = (JVM, OURS_OLD, OURS, *EMPTY), "micro-batches of a row from each partition"
        self.turns("batches", title, lanes, flowing, before=flowing, check=check)
        self.turns("batches-sink", f"{title}, into a topic", PIPES, piping, before=piping,
                   check=check)  # fmt: skip

    def planning(self) -> None:
        """Measure the planning of batches over very many partitions of a simulated cluster."""
        lanes = tuple(Lane(f"{n}", f"{n:,}", NEW, "") for n in MANY)
        found: dict[str, list[Result]] = {lane.key: [] for lane in lanes}
        for turn in range(self.options.runs):
            for lane in lanes:
                try:
                    result = spark_planning.measure(int(lane.key))
                except Exception as error:
                    result = {"error": f"{type(error).__name__}: {error}"}
                found[lane.key].append(result)
                progress(f"planning {turn + 1}/{self.options.runs} {lane.title}: {result}")
        self.keep("planning", "planning batches over many partitions", lanes, found)

    def scale(self) -> None:
        """Measure with one executor process and with two, each with one core."""
        topic = self.topics.loaded(SHAPE)
        masters = {n: f"local-cluster[{n},1,2048]" for n in (1, 2)}
        try:
            for executors, master in masters.items():
                self.sparks[f"{executors}"] = self.start(NEW, master)
            lanes = [
                Lane(f"executors-{n}", f"Odradek, {n} executor{'s' * (n > 1)}", f"{n}", "odradek")
                for n in masters
            ]
            self.turns(
                "scale", "executor processes with a core each", tuple(lanes),
                partial(self.reading, topic, "noop"),
                before=partial(self.counting, topic, "noop"),
                check=self.check_read,
            )  # fmt: skip
        finally:
            for n in masters:
                if f"{n}" in self.sparks:
                    self.sparks[f"{n}"].close()

    def turns(
        self,
        row: str,
        title: str,
        lanes: tuple[Lane, ...],
        job_of: Callable[[Lane], Job],
        *,
        check: Callable[[Lane, Job, Result], str],
        before: Callable[[Lane], Job] | None = None,
        awake: Callable[[Lane], Job] | None = None,
    ) -> None:
        """Measure a row's lanes in turns.

        Two jobs aren't timed: `before`, which each lane runs once, and `awake`, a small job before
        each of a lane's turns, because Spark ends Python workers that were idle for a minute.
        """
        lanes = tuple(lane for lane in lanes if lane.spark in self.sparks)
        runs: dict[str, list[Result]] = {lane.key: [] for lane in lanes}
        wrong: dict[str, str] = {}
        for turn in range(0 if before is None else -1, self.options.runs):
            for lane in lanes if turn % 2 == 0 else reversed(lanes):
                woken = self.checked(lane, awake(lane), check) if awake is not None else {}
                job = job_of(lane) if turn >= 0 or before is None else before(lane)
                result = self.checked(lane, job, check)
                if "error" in woken:
                    result.setdefault("error", f"in the job that wakes it: {woken['error']}")
                if turn < 0 and "error" in result:
                    wrong[lane.key] = f"in the run before the timed ones: {result['error']}"
                elif lane.key in wrong:
                    result.setdefault("error", wrong[lane.key])
                progress(f"{row} {turn + 1}/{self.options.runs} {lane.title} "
                         f"({self.sparks[lane.spark].version}): {in_short(result)}")  # fmt: skip
                if turn >= 0:
                    runs[lane.key].append(result)
            self.keep(row, title, lanes, runs)

    def checked(self, lane: Lane, job: Job, check: Callable[[Lane, Job, Result], str]) -> Result:
        """Run a job; if `check` finds a wrong result, replace it by an error."""
        result = self.sparks[lane.spark].run(job)
        if "error" not in result and (found := check(lane, job, result)):
            result["error"] = found
        return result

    def keep(
        self, row: str, title: str, lanes: tuple[Lane, ...], runs: dict[str, list[Result]]
    ) -> None:
        """Add a row to the results, and write all of them."""
        self.found[row] = {
            "title": title,
            "lanes": {
                lane.key: {
                    "title": lane.title,
                    "spark": self.version(lane.spark),
                    "options": lane.options,
                    "runs": runs[lane.key],
                }
                for lane in lanes
            },
        }
        self.save({"skipped": self.skipped, "rows": self.found})

    def version(self, name: str) -> str:
        """Return the version of a Spark."""
        return self.sparks[name].version if name in self.sparks else pyspark.__version__


def home_of_executors(folder: Path) -> Path:
    """Return a Spark home whose `work`, with the executors' files, is in `folder`."""
    home = folder / "spark-home"
    if not home.exists():
        home.mkdir()
        installed = Path(pyspark.__file__).parent
        for name in ("bin", "jars", "python", "sbin"):
            (home / name).symlink_to(installed / name)
    return home


def in_short(result: dict[str, Any]) -> str:
    """Return a job's result in a few words."""
    if "error" in result:
        return f"failed: {result['error'][-300:]}"
    if "warm_s" in result:
        return f"cold {result['cold_s']:.2f} s, warm {result['warm_s']:.3f} s {result['stages_s']}"
    rate = result["rows"] / result["seconds"] / 1e6
    return f"{rate:.2f} M rows/s, {result['cpu_s'] / result['rows'] * 1e6:.2f} µs CPU a row"


def progress(text: str) -> None:
    """Print a line about progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def names(text: str) -> list[str]:
    """Split a text of comma-separated names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def command_line() -> argparse.Namespace:
    """Parse and check the options."""
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
    """Run the benchmark, write the results, print the tables."""
    options = command_line()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that brokers and Sparks end, too
    store: dict[str, Any] = {}

    def save(found: dict[str, Any]) -> None:
        store.update(found)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(store, indent=1) + "\n")

    with new_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        store |= {"sitting": {**about.sitting(options), "kafka": cluster.version}}
        topics = Topics(cluster, Path(folder), options.records)
        bench = Bench(options, topics, Path(folder), save)
        save({"skipped": bench.skipped, "rows": bench.found})
        bench.run()
    text = spark_table.markdown(store)
    options.markdown.write_text(text)
    print(text)
    progress(f"written: {options.json}, {options.markdown}")


if __name__ == "__main__":
    main()
