"""Plan a pipeline with its clusters, its checkpoints and Spark, without starting a query.

In: a checked `Pipeline`. Out: a `PipelinePlan` to show; problems (a cluster that doesn't answer, a
missing topic, invalid SQL) as `SpecError` with their lines. Must not: write.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.cli.frame.results import counted
from odradek.cli.pipeline.checkpoint import look
from odradek.cli.pipeline.graph import Graph, end_session, session
from odradek.cli.pipeline.spec import (
    AVAILABLE_NOW,
    OURS,
    Pipeline,
    Place,
    Sink,
    Source,
)
from odradek.clients.bootstrap_timeout import FIRST_CONTACT
from odradek.clients.missing_topics import did_you_mean, similar_names
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.options.table import OPTIONS

if TYPE_CHECKING:
    from odradek.common.types import TopicPartition

BATCH, STREAM = "batch", "stream"
PATIENCE = 20.0
"""Timeout in seconds of each request to a cluster."""
SHOWN = 10
"""Maximum number of topics of a source in the output."""


@dataclass(frozen=True, slots=True)
class SourceReading:
    """The facts that planning found out about a source or a lookup."""

    kind: str
    name: str
    format: str
    cluster: str | None
    topics: Mapping[str, int]
    """Numbers of partitions by topic."""
    records: int | None
    """Upper limit of the number of records in the topics (compaction may have removed some)."""
    pattern: str | None = None
    """Value of subscribePattern; topics that match later are also read."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Sink, and the batch and offsets from which it would continue."""

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
    """Newest committed batch; None for a new query."""
    repeats: int | None
    """Unfinished batch that will be repeated, or None."""
    positions: Mapping[str, int]
    looked_at: bool
    """False for a checkpoint that isn't on this machine."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Plan of a whole pipeline."""

    path: str
    name: str
    readings: tuple[SourceReading, ...]
    views: Mapping[str, str]
    """Columns by view."""
    writings: tuple[Writing, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        found = [f"{self.path}: pipeline {self.name} is valid and can start"]
        for r in self.readings:
            held = "" if r.records is None else f", at most {counted(r.records, 'record')}"
            where = f" at cluster {r.cluster}: {_topics(r)}{held}" if r.cluster else ""
            found.append(f"  {r.kind} {r.name}: {r.format}{where}")
        found += [f"  view {name}: {columns}" for name, columns in self.views.items()]
        for w in self.writings:
            pace = (
                "until existing records are read"
                if w.trigger == AVAILABLE_NOW
                else f"every {w.trigger}"
            )
            found.append(f"  sink {w.name}: {w.reads} → {w.format} {w.target}, {w.mode}, {pace}")
            found.append(f"    columns: {w.columns}")
            if w.delivery:
                found.append(f"    delivery: {w.delivery}")
            found.append(f"    checkpoint {w.checkpoint}: {_state(w)}")
        return found


def _topics(r: SourceReading) -> str:
    named = [f"{t} ({counted(n, 'partition')})" for t, n in r.topics.items()]
    if len(named) > SHOWN:
        named[SHOWN:] = [f"{len(named) - SHOWN} more"]
    if r.pattern is None:
        return ", ".join(named)
    return f"topics matching {r.pattern}, now {', '.join(named) or 'none'}"


def _state(w: Writing) -> str:
    if not w.looked_at:
        return "the checkpoint can't be read from here; if it exists, the query continues from it"
    if w.after_batch is None and w.repeats is None:
        return "a new query"
    after = "at its first batch" if w.after_batch is None else f"after batch {w.after_batch}"
    again = "" if w.repeats is None else f"; batch {w.repeats} was interrupted and will be repeated"
    return f"continues {after}{again}"


def describe(
    pipeline: Pipeline,
    *,
    log: Path | None,
    spark: Any = None,
    say: Callable[[str], object] = lambda text: None,
) -> PipelinePlan:
    """Plan sources, views and sinks; raise all problems of a step. Don't stop a given session."""
    readings = ask_clusters(pipeline, say=say)
    if spark is not None:
        return _described(pipeline, spark, readings, say)
    log = log or _log(pipeline)
    say("starting Spark" + ("" if log is None else f"; its log is {log}"))
    with _started(pipeline, log) as spark:
        return _described(pipeline, spark, readings, say)


@contextmanager
def _started(pipeline: Pipeline, log: Path | None) -> Iterator[Any]:
    """Start a session.

    Without a `log` path, the log is an unnamed file, which only gets a name if Spark doesn't start.
    So a killed command leaves no file.
    """
    with tempfile.TemporaryFile("a+b") as unnamed:
        try:
            spark = session(pipeline, log or unnamed)
        except ConfigurationError as error:
            if log is not None:
                raise
            unnamed.seek(0)
            with tempfile.NamedTemporaryFile(
                prefix="odradek-plan-", suffix=".log", delete=False
            ) as kept:
                shutil.copyfileobj(unnamed, kept)
            raise ConfigurationError(f"{error}; its log is {kept.name}") from error
        try:
            yield spark
        finally:
            end_session(spark)


def _described(
    pipeline: Pipeline,
    spark: Any,
    readings: tuple[SourceReading, ...],
    say: Callable[[str], object],
) -> PipelinePlan:
    graph = Graph(pipeline, spark, None, say=say)
    frames = graph.analyse()
    views = {name: _columns(spark.table(name)) for name in pipeline.views}
    writings = tuple(
        _writing(sink, _columns(frames[name]), pipeline.checkpoint(sink))
        for name, sink in pipeline.sinks.items()
    )
    return PipelinePlan(str(pipeline.path), pipeline.name, readings, views, writings)


def _log(pipeline: Pipeline) -> Path | None:
    """Return the log's path if the storage folder exists; planning doesn't create it."""
    home = pipeline.local_storage
    if home is not None and home.is_dir():
        return home / "spark.log"
    return None


def ask_clusters(
    pipeline: Pipeline, *, only_new: bool = False, say: Callable[[str], object] = lambda text: None
) -> tuple[SourceReading, ...]:
    """Look up the sources, and check that each sink's cluster and topic exist.

    `only_new`: check only what queries without a checkpoint need. Other queries wait for an
    unavailable cluster; its address was checked before their first start.
    """
    silent: set[str] = set()
    places = {**pipeline.sources, **pipeline.lookups}
    sinks = list(pipeline.sinks.values())
    if only_new:
        new = {s.name for s in sinks if look(pipeline.checkpoint(s)).is_new}
        old = {name for s in sinks if s.name not in new for name in pipeline.behind(s)}
        sinks = [s for s in sinks if s.name in new]
        needed = {name for s in sinks for name in pipeline.behind(s)} - old
        places = {name: place for name, place in places.items() if name in needed}
    asked = {p.cluster.name for p in (*places.values(), *sinks) if p.format == OURS and p.cluster}
    if asked:
        say(f"connecting to {', '.join(f'cluster {name}' for name in sorted(asked))}")
    found = [_reading(pipeline, place, silent) for place in places.values()]
    for sink in sinks:
        if sink.format == OURS:
            topic = sink.option("topic")
            _asked(pipeline, sink, (str(topic),) if topic else (), None, silent)
            _ask_registry(pipeline, sink, STREAM, silent)
    pipeline.problems.check()
    return tuple(found)


def _reading(pipeline: Pipeline, place: Source, silent: set[str]) -> SourceReading:
    kind, query = ("lookup", BATCH) if place.name in pipeline.lookups else ("source", STREAM)
    if place.format != OURS or place.cluster is None:
        return SourceReading(kind, place.name, place.format, None, {}, None)
    from odradek.spark.options.source_options import parse_options

    options = parse_options(place.options, query)
    there = _asked(pipeline, place, options.topics, options.pattern, silent)
    if options.dead_letter_topic is not None:
        letters = (options.dead_letter_topic,)
        _asked(pipeline, place, letters, None, silent, named_by="deadlettertopic")
    _ask_registry(pipeline, place, query, silent)
    return SourceReading(
        kind, place.name, place.format, place.cluster.name, *there, options.pattern
    )


def _asked(
    pipeline: Pipeline,
    place: Place,
    topics: Sequence[str],
    pattern: str | None,
    silent: set[str],
    *,
    named_by: str = "subscribe topic assign",
) -> tuple[dict[str, int], int | None]:
    """Return numbers of partitions by topic and the number of records.

    Without topics, only check that the cluster answers. `named_by`: options that may name the
    topics.
    """
    from odradek.api.consumer import Consumer

    cluster = place.cluster
    if cluster is None or cluster.name in silent:
        return {}, None
    try:
        # Calls with a timeout argument need this option to limit the wait for a first broker.
        soon = {FIRST_CONTACT: OPTIONS[FIRST_CONTACT].default_text}
        with Consumer(soon | reader_config(place)) as consumer:
            if pattern is not None:
                topics = _like(pattern, consumer.list_topics(timeout=PATIENCE))
            elif not topics:
                consumer.cluster_id(timeout=PATIENCE)
                return {}, None
            found: dict[str, list[TopicPartition]] = {}
            for topic in topics:
                try:
                    found[topic] = consumer.partitions_for(topic, timeout=PATIENCE)
                except UnknownTopicOrPartitionError:
                    line = place.line_of(named_by)
                    near = did_you_mean(
                        similar_names(topic, consumer.list_topics(timeout=PATIENCE))
                    )
                    text = f"{place.name}: cluster {cluster.name} has no topic {topic}{near}"
                    pipeline.problems.add(line, text)
            partitions = [tp for each in found.values() for tp in each]
            begin = consumer.beginning_offsets(partitions, timeout=PATIENCE)
            end = consumer.end_offsets(partitions, timeout=PATIENCE)
    except KafkaError as error:
        silent.add(cluster.name)
        line = cluster.lines.get("bootstrap.servers", cluster.line)
        pipeline.problems.add(line, f"cluster {cluster.name}: {error}")
        return {}, None
    records = sum(end[tp] - begin[tp] for tp in partitions)
    return {topic: len(each) for topic, each in found.items()}, records


def _ask_registry(pipeline: Pipeline, place: Place, query: str, silent: set[str]) -> None:
    """Check that the schemas of keys and values exist."""
    url = str(place.option("schemaRegistryUrl"))
    if place.option("schemaRegistryUrl") is None or url in silent:
        return
    from odradek.serialization import RegistryAuthenticationError, RegistryUnreachableError

    try:
        find_schemas(place, query)
    except (RegistryUnreachableError, RegistryAuthenticationError) as error:
        silent.add(url)
        pipeline.problems.add(place.line_of("schemaRegistryUrl"), f"{place.name}: {error}")
    except KafkaError as error:
        line = place.line_of(f"{error} valueFormat keyFormat")
        pipeline.problems.add(line, f"{place.name}: {error}")


def find_schemas(place: Place, query: str) -> None:
    """Look up the schemas of a source or a sink in its registry. Raises `KafkaError`."""
    if not isinstance(place, Sink):
        from odradek.spark.options.source_options import parse_options

        parse_options(place.options, query).resolved()
        return
    from odradek.serialization import SchemaRegistryClient
    from odradek.spark.sink.sink_options import parse_sink_options

    for one in parse_sink_options(place.options, query).encodings.values():
        one.registered(SchemaRegistryClient(one.settings))


def _like(pattern: str, names: Sequence[str]) -> list[str]:
    from odradek.spark.options.topic_patterns import compiled

    expression = compiled(pattern)
    return [name for name in names if expression.search(name)]


def reader_config(place: Place) -> dict[str, Any]:
    """Return consumer settings for a source's or a sink's cluster."""
    from odradek.common.config import CONSUMER
    from odradek.common.options.properties import idle_names

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
    found = look(checkpoint)
    delivery = str(sink.option("delivery") or "at_least_once") if sink.format == OURS else None
    target = str(sink.option("topic") or sink.option("path") or "")
    if sink.format == OURS and not target:
        target = "the topic in column topic"
    return Writing(
        sink.name, sink.reads, sink.format, target, delivery, sink.mode, sink.trigger, columns,
        checkpoint, found.committed, found.repeats, found.positions, found.seen,
    )  # fmt: skip
