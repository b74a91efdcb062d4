"""What a pipeline would do: asked of its clusters, its checkpoints and Spark, with nothing started.

In: a checked `Pipeline`. Out: a `Plan` to be shown; problems (a cluster that doesn't answer, a
topic that isn't there, SQL that can't be meant) as `SpecError` with their lines. Must not: write.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odradek.cli.pipeline.graph import Graph, end_session, session
from odradek.cli.pipeline.progress import positions
from odradek.cli.pipeline.spec import AVAILABLE_NOW, OURS, Cluster, Pipeline, Place, Sink, Source
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import UnknownTopicOrPartitionError

PATIENCE = 30.0
"""Seconds for a cluster to answer before it is taken for a wrong address."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A source as it is now."""

    name: str
    format: str
    cluster: str | None
    topics: Mapping[str, int]
    """Partitions by topic."""
    records: int | None
    """That the topics hold, at most: of a compacted one some are gone."""
    pattern: str | None = None
    """Of subscribePattern; which topics match is found out while it runs."""


@dataclass(frozen=True, slots=True)
class Writing:
    """A sink, and from where it would go on."""

    name: str
    reads: str
    format: str
    target: str
    delivery: str | None
    mode: str
    trigger: str
    columns: str
    checkpoint: str
    after_batch: int | None
    """The newest batch that is committed; None for a query that is new."""
    repeats: int | None
    """A batch that was begun and will be repeated."""
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it."""

    path: str
    name: str
    readings: tuple[Reading, ...]
    views: Mapping[str, str]
    """Columns by view."""
    writings: tuple[Writing, ...]

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        found = [f"{self.path}: pipeline {self.name} could start"]
        for r in self.readings:
            topics = ", ".join(f"{t} ({n} partitions)" for t, n in r.topics.items())
            topics = topics or f"topics like {r.pattern}"
            held = "" if r.records is None else f", {r.records:,} records at most"
            where = f" at cluster {r.cluster}: {topics}{held}" if r.cluster else ""
            found.append(f"  source {r.name}: {r.format}{where}")
        found += [f"  view {name}: {columns}" for name, columns in self.views.items()]
        for w in self.writings:
            pace = (
                "until all there is is read" if w.trigger == AVAILABLE_NOW else f"every {w.trigger}"
            )
            found.append(f"  sink {w.name}: {w.reads} → {w.format} {w.target}, {w.mode}, {pace}")
            found.append(f"    columns: {w.columns}")
            if w.delivery:
                found.append(f"    delivery: {w.delivery}")
            found.append(f"    checkpoint {w.checkpoint}: {_state(w)}")
        return found


def _state(w: Writing) -> str:
    if w.after_batch is None and w.repeats is None:
        return "a new query"
    after = "from its first batch" if w.after_batch is None else f"after batch {w.after_batch}"
    again = "" if w.repeats is None else f"; batch {w.repeats} was begun and is repeated"
    return f"goes on {after}{again}"


def describe(pipeline: Pipeline, *, log: Path | None, spark: Any = None) -> Plan:
    """Find out all of it; raises every problem of a step together. A session given goes on."""
    readings = ask_clusters(pipeline)
    if spark is not None:
        return _described(pipeline, spark, readings)
    spark = session(pipeline, log or _log(pipeline))
    try:
        return _described(pipeline, spark, readings)
    finally:
        end_session(spark)


def _described(pipeline: Pipeline, spark: Any, readings: tuple[Reading, ...]) -> Plan:
    graph = Graph(pipeline, spark, None)
    frames = graph.analyse()
    views = {name: _columns(spark.table(name)) for name in pipeline.views}
    writings = tuple(
        _writing(sink, _columns(frames[name]), graph.checkpoint(sink))
        for name, sink in pipeline.sinks.items()
    )
    return Plan(str(pipeline.path), pipeline.name, readings, views, writings)


def _log(pipeline: Pipeline) -> Path:
    """Planning makes no storage folder; where there is one, its log is the place."""
    home = pipeline.local_storage
    if home is not None and home.is_dir():
        return home / "spark.log"
    return Path(tempfile.mkdtemp(prefix="odradek-plan-")) / "spark.log"


def goes_on(pipeline: Pipeline) -> bool:
    """Whether a query of it has begun before: then an outage is waited out, and no wrong address.

    Where storage isn't on this machine nobody can tell cheaply: then it is taken for new.
    """
    home = pipeline.local_storage
    return home is not None and any(home.glob("checkpoints/*/offsets/*"))


def ask_clusters(pipeline: Pipeline) -> tuple[Reading, ...]:
    """Look at what the sources read, and whether each sink's cluster and topic are there."""
    silent: set[str] = set()
    found = [_reading(pipeline, source, silent) for source in pipeline.sources.values()]
    for sink in pipeline.sinks.values():
        topic = sink.options.get("topic")
        if sink.format == OURS and topic:
            _partitions(pipeline, sink, (str(topic),), silent)
    pipeline.problems.check()
    return tuple(found)


def _reading(pipeline: Pipeline, source: Source, silent: set[str]) -> Reading:
    if source.format != OURS or source.cluster is None:
        return Reading(source.name, source.format, None, {}, None)
    from odradek.spark.options import STREAM, parse_options

    options = parse_options(source.options, STREAM)
    there = _partitions(pipeline, source, options.topics, silent)
    return Reading(source.name, source.format, source.cluster.name, *there, options.pattern)


def _partitions(
    pipeline: Pipeline, place: Place, topics: tuple[str, ...], silent: set[str]
) -> tuple[dict[str, int], int | None]:
    """Partitions by topic, and how many records they hold."""
    from odradek.api.consumer import Consumer

    cluster = place.cluster
    if cluster is None or cluster.name in silent or not topics:
        return {}, None
    found: dict[str, int] = {}
    records = 0
    try:
        with Consumer(_config(place)) as consumer:
            for topic in topics:
                try:
                    partitions = consumer.partitions_for(topic, timeout=PATIENCE)
                except UnknownTopicOrPartitionError:
                    pipeline.problems.add(
                        place.line_of("subscribe topic assign"),
                        f"{place.name}: cluster {cluster.name} has no topic {topic}",
                    )
                    continue
                begin = consumer.beginning_offsets(partitions, timeout=PATIENCE)
                end = consumer.end_offsets(partitions, timeout=PATIENCE)
                found[topic] = len(partitions)
                records += sum(end[tp] - begin[tp] for tp in partitions)
    except KafkaError as error:
        silent.add(cluster.name)
        pipeline.problems.add(_address_line(cluster), f"cluster {cluster.name}: {error}")
    return found, records


def _address_line(cluster: Cluster) -> int:
    return cluster.lines.get("bootstrap.servers", cluster.line)


def _config(place: Place) -> dict[str, Any]:
    """A reader's settings, whichever client the place itself has."""
    from odradek.common.config import CONSUMER
    from odradek.common.properties import idle_names

    given = {
        name.removeprefix("kafka."): value
        for name, value in place.options.items()
        if name.startswith("kafka.")
    }
    for name in idle_names(given, CONSUMER):
        del given[name]
    return {**given, "client.id": "odradek-pipeline", "auto.offset.reset": "none"}


def _columns(frame: Any) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString().upper()}" for f in frame.schema.fields)


def _writing(sink: Sink, columns: str, checkpoint: str) -> Writing:
    committed, begun, where = _checkpoint(Path(checkpoint))
    delivery = str(sink.options.get("delivery", "at_least_once")) if sink.format == OURS else None
    options = sink.options
    target = str(options.get("topic") or options.get("path") or "")
    repeats = begun if begun is not None and begun != committed else None
    return Writing(
        sink.name, sink.reads, sink.format, target, delivery, sink.mode, sink.trigger, columns,
        checkpoint, committed, repeats, where,
    )  # fmt: skip


def _checkpoint(folder: Path) -> tuple[int | None, int | None, dict[str, int]]:
    """The newest committed batch, the newest begun, and the offsets where the former ended."""
    committed, begun = _newest(folder / "commits"), _newest(folder / "offsets")
    where: dict[str, int] = {}
    if committed is not None:
        for line in (folder / "offsets" / str(committed)).read_text().splitlines()[2:]:
            where |= positions(json.loads(line)) if line.startswith("{") else {}
    return committed, begun, where


def _newest(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    return max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=None)
