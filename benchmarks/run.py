"""Compare Odradek and other clients on one real broker: `make bench` and `make bench-all`.

In: the rows, the clients, the number of records and runs. Out: all results, added to one JSON file,
and tables of them. Each measurement is a separate process; the clients of a row take turns, run
after run, so that a slow minute of the machine affects all of them. METHOD.md describes each
client's settings and when its clock starts. A failed measurement is kept with its error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import about, peers, picture, table
from benchmarks.rows import ROWS, TUNED_BATCH, Lane, Row
from benchmarks.stand_in import READ, StandIn, StandIns
from benchmarks.topics import Topics, new_cluster

ROOT = Path(__file__).resolve().parent.parent
QUICK_RECORDS, ALL_RECORDS = 2_000_000, 10_000_000
LATENCY_RECORDS = 500
MEASURE_TIMEOUT = 240.0
_WRITES = ("produce", "produce-arrow", "produce-many", "produce-quiet", "ingest", "callers")
_OWN_TOPIC = (*_WRITES, "round-trip", "start")


class Bench:
    """One call of this program, with its options and results."""

    def __init__(self, options: argparse.Namespace, rows: list[Row], store: dict[str, Any]) -> None:
        self.options, self.rows, self.store = options, rows, store
        self.sitting = about.sitting(options)
        store["sittings"][self.sitting["id"]] = self.sitting
        self.skipped: dict[str, str] = {}
        self.stand_ins = StandIns()

    def prepare(self) -> None:
        """Install and build what the clients need; list the clients that aren't available."""
        lanes = {lane for row in self.rows for lane in row.lanes}
        for client, mode in sorted({(lane.client, lane.mode) for lane in lanes}):
            built = peers.command(client, mode)
            if built.command is None and client not in self.skipped:
                self.skipped[client] = built.reason
                progress(f"skipped: {client}: {built.reason}")
        self.sitting["skipped"] = self.skipped

    def run(self, topics: Topics) -> None:
        """Run all rows, and write the results after each row."""
        for n, row in enumerate(self.rows):
            lanes = [lane for lane in row.lanes if lane.client not in self.skipped]
            found: dict[str, list[dict[str, Any]]] = {lane.key: [] for lane in lanes}
            warm_up = [lane for lane in lanes if lane.key == row.warm_up]
            for lane in warm_up:
                self.measure(topics, lane)
            for turn in range(self.options.runs):
                for lane in lanes if turn % 2 == 0 else reversed(lanes):
                    result = self.measure(topics, lane)
                    found[lane.key].append(result)
                    progress(f"{row.key} {turn + 1}/{self.options.runs} {lane.title}: "
                             f"{table.in_short(result)}")  # fmt: skip
            self.keep(row, lanes, found)
            later = {lane.shape for r in self.rows[n + 1 :] for lane in r.lanes}
            for shape in {lane.shape for lane in lanes} - later:
                topics.drop(shape.topic)

    def measure(self, topics: Topics, lane: Lane) -> dict[str, Any]:
        """Run one measurement in a separate process."""
        if lane.stand_in is not None:
            return self.measure_stand_in(lane, lane.stand_in)
        shape = lane.shape
        records = int(topics.records_of(shape) * lane.share) // shape.partitions * shape.partitions
        if lane.mode == "import":
            arguments, topic = list(lane.arguments), None
        elif lane.mode == "metadata":
            arguments, topic = ["--answer", str(topics.metadata_answer())], None
        else:
            own = lane.mode in _OWN_TOPIC
            topic = topics.empty(shape) if own else topics.loaded(shape)
            count = LATENCY_RECORDS if lane.mode == "round-trip" else max(1, records)
            arguments = [*topics.access(tls=lane.tls), "--topic", topic,
                         "--partitions", str(shape.partitions), "--records", str(count),
                         *lane.arguments]  # fmt: skip
            if lane.mode in _WRITES:
                arguments += ["--pool", str(topics.pool(shape)), "--codec", shape.codec]
                if self.options.batch_size:
                    arguments += ["--batch-size", str(self.options.batch_size)]
        command = peers.command(lane.client, lane.mode).command or []
        result = in_a_process([*command, *arguments], dict(lane.environment))
        if topic is not None and lane.mode in _OWN_TOPIC:
            topics.drop(topic)
        return result

    def measure_stand_in(self, lane: Lane, shape: StandIn) -> dict[str, Any]:
        """Measure with a simulated cluster, which also counts the requests in idle time."""
        command = peers.command(lane.client, lane.mode).command or []
        arguments = ["--bootstrap", self.stand_ins.bootstrap(shape), "--topic", READ,
                     "--partitions", str(shape.partitions),
                     "--records", str(shape.partitions * shape.records)]  # fmt: skip
        result = in_a_process([*command, *arguments, *lane.arguments], dict(lane.environment))
        if "idle_from" in result:
            begin, end = result.pop("idle_from"), result.pop("idle_until")
            result["idle_requests"] = self.stand_ins.requests(begin, end) / (end - begin)
        return result

    def keep(self, row: Row, lanes: list[Lane], found: dict[str, list[dict[str, Any]]]) -> None:
        """Store a row's results, replacing older results of the same variant."""
        for lane in lanes:
            self.store["results"][f"{variant(self.options)}/{row.key}/{lane.key}"] = {
                "sitting": self.sitting["id"],
                "runs": found[lane.key],
            }
        write(self.options.json, self.store)


def in_a_process(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a driver and return its result, or its error output if it fails."""
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True,
            timeout=MEASURE_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"it didn't end within {MEASURE_TIMEOUT:g} s"}
    if done.returncode:
        return {"error": " ".join(done.stderr.strip().splitlines()[-3:])[-300:] or "it failed"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return table.derived(result)


def variant(options: argparse.Namespace) -> str:
    """Return the name of this call's circumstances; each variant's results are shown separately."""
    parts = [f"cpus {options.cpus}"] if options.cpus is not None else []
    parts += [f"batches of {options.batch_size}"] if options.batch_size else []
    return ", ".join(parts) or table.ALL_CORES


def with_batches(row: Row, size: int) -> Row:
    """Return the row with topics of batches of this size, unless it sets sizes itself."""
    lanes = (
        replace(lane, shape=replace(lane.shape, batch_size=size))
        if lane.shape.batch_size == TUNED_BATCH
        else lane
        for lane in row.lanes
    )
    return replace(row, lanes=tuple(lanes))


def read(path: Path) -> dict[str, Any]:
    """Return the stored results of earlier calls."""
    if path.is_file():
        store: dict[str, Any] = json.loads(path.read_text())
        if "results" in store:
            return store
    return {"sittings": {}, "results": {}}


def write(path: Path, store: dict[str, Any]) -> None:
    """Write all results, one per line, without sittings (calls) that have no results."""
    used = {result["sitting"] for result in store["results"].values()}
    store["sittings"] = {key: s for key, s in store["sittings"].items() if key in used}
    parts = []
    for name in ("sittings", "results"):
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in store[name].items())
        parts.append(f'"{name}": {{\n{lines}\n}}')
    if "stages" in store:
        parts.append(f'"stages": {json.dumps(store["stages"])}')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{" + ",\n".join(parts) + "}\n")


def progress(text: str) -> None:
    """Print a line about progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def chosen(text: str | None, known: list[str], what: str, parser: argparse.ArgumentParser) -> Any:
    """Return the names that `text` lists, in the usual order."""
    if not text:
        return known
    wanted = {part.strip() for part in text.split(",") if part.strip()}
    if unknown := wanted - set(known):
        parser.error(f"no such {what}: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return [name for name in known if name in wanted]


def command_line() -> argparse.Namespace:
    """Parse and check the options; `options.rows` is a list of `Row` objects then."""
    names = "\n".join(f"  {row.key:30s}{row.title}" for row in ROWS.values())
    clients = list(dict.fromkeys(lane.client for row in ROWS.values() for lane in row.lanes))
    parser = argparse.ArgumentParser(
        prog="make bench",
        description="Odradek and other clients on one real broker; see METHOD.md beside it.",
        epilog=f"rows:\n{names}\nclients: {', '.join(clients)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--all", action="store_true", help="all rows (default: those of a few minutes)")
    add("--rows", help="some of them, with commas between")
    add("--clients", help="some of them, with commas between")
    add("--runs", type=int, default=3, help="of each measurement (%(default)s)")
    add("--records", type=int, help=f"of a topic ({QUICK_RECORDS}; with --all {ALL_RECORDS})")
    add("--cpus", help="run everything, broker too, on these cores only, as taskset -c does")
    add("--batch-size", type=int, metavar="BYTES", help="batches of topics and producers")
    add("--json", type=Path, default=ROOT / "artifacts" / "bench.json", help="kept and added to")
    add("--markdown", type=Path, default=ROOT / "artifacts" / "bench.md", help="tables of it")
    add("--picture", type=Path, default=ROOT / "artifacts" / "bench.svg", help="of the goals")
    add("--table", action="store_true", help="measure nothing, redraw the tables and the picture")
    options = parser.parse_args()
    if options.runs < 1 or (options.records is not None and options.records < 1000):
        parser.error("--runs must be 1 or more, --records 1000 or more")
    usual = [row.key for row in ROWS.values() if options.all or row.quick]
    kept = chosen(options.clients, clients, "client", parser)
    rows = chosen(options.rows, list(ROWS), "row", parser) if options.rows else usual
    options.rows = [
        replace(row, lanes=tuple(lane for lane in row.lanes if lane.client in kept))
        for row in (ROWS[key] for key in rows)
    ]
    if options.batch_size:
        options.rows = [with_batches(row, options.batch_size) for row in options.rows]
    options.records = options.records or (ALL_RECORDS if options.all else QUICK_RECORDS)
    return options


def main() -> None:
    """Measure all rows, write the results, print the tables."""
    options = command_line()
    store = read(options.json)
    if not options.table:
        if options.cpus is not None:
            os.sched_setaffinity(0, {int(cpu) for cpu in options.cpus.split(",")})
        bench = Bench(options, options.rows, store)
        bench.prepare()
        tls = any(lane.tls for row in options.rows for lane in row.lanes)
        with new_cluster(tls=tls) as cluster, tempfile.TemporaryDirectory() as folder:
            bench.sitting["kafka"] = cluster.version
            try:
                bench.run(Topics(cluster, Path(folder), options.records))
            finally:
                bench.stand_ins.close()
    text = table.markdown(store)
    options.markdown.parent.mkdir(parents=True, exist_ok=True)
    options.markdown.write_text(text)
    results = table.Results(store, table.ALL_CORES)
    options.picture.write_text(picture.render(results, table.in_a_line(store)))
    print(text)
    progress(f"written: {options.json}, {options.markdown}, {options.picture}")


if __name__ == "__main__":
    main()
