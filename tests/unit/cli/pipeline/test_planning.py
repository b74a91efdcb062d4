"""Test what a pipeline requests from its clusters before it starts, and the printed plan."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.registry_server import registry_server

from odradek.cli.pipeline import planning
from odradek.cli.pipeline.document import SpecError, read
from odradek.cli.pipeline.planning import PipelinePlan, ask_clusters
from odradek.cli.pipeline.spec import Pipeline, parse
from odradek.common.errors import ConfigurationError
from odradek.serialization import Schema, SchemaRegistryClient
from odradek.testing import KafkaSimulation

SPEC = """\
name: p
storage: file://{folder}/state
clusters:
  main: {{bootstrap.servers: "{main}"}}
  other: {{bootstrap.servers: "{other}"}}
sources:
  events:
    cluster: main
    options: {{subscribePattern: event.*}}
lookups:
  names:
    cluster: main
    format: odradek
    options: {{subscribe: names}}
views:
  both: SELECT * FROM Events LEFT JOIN names ON true
sinks:
  near: {{from: both, cluster: main}}
  far: {{from: events, cluster: other, options: {{Topic: copy}}}}
"""


@pytest.fixture
def world() -> Iterator[KafkaSimulation]:
    with KafkaSimulation() as simulation:
        for topic, partitions in (("events-a", 2), ("events-b", 1), ("names", 1)):
            simulation.create_topic(topic, partitions=partitions)
        simulation.new_cluster("far").create_topic("copy", partitions=1)
        yield simulation


@pytest.fixture
def spec(tmp_path: Path, world: KafkaSimulation) -> Any:
    def made(given: str = "", instead: str = "") -> Pipeline:
        text = SPEC.format(
            folder=tmp_path, main=world.bootstrap_servers, other="far.simulated:9092"
        )
        assert given in text
        path = tmp_path / "p.yml"
        path.write_text(text.replace(given, instead))
        return parse(read(path, {}))

    return made


def away(world: KafkaSimulation) -> None:
    for broker in world.cluster.brokers:
        world.crash(broker)
    world.close_front_door()


def begun(folder: Path, sink: str) -> None:
    offsets = folder / "state" / "checkpoints" / sink / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\\n{}\\n")


def test_the_plan_contains_topics_of_patterns_and_lookups(
    world: KafkaSimulation, spec: Any
) -> None:
    world.produce("events-a", [b"1", b"2"])
    said: list[str] = []
    events, names = found = ask_clusters(spec(), say=said.append)
    assert said == ["connecting to cluster main, cluster other"]
    assert (events.kind, events.topics, events.records) == (
        "source",
        {"events-a": 2, "events-b": 1},
        2,
    )
    assert (names.kind, names.topics, names.records) == ("lookup", {"names": 1}, 0)
    first, second, third = PipelinePlan("p.yml", "p", found, {}, ()).lines()
    assert first == "p.yml: pipeline p is valid and can start"
    assert (
        "topics matching event.*, now events-a (2 partitions), events-b (1 partition), at most 2 r"
        in second
    )
    assert third.startswith(
        "  lookup names: odradek at cluster main: names (1 partition), at most 0 rec"
    )


@pytest.mark.parametrize(
    ("given", "instead", "expected"),
    [
        (
            "subscribe: names",
            "subscribe: nemes",
            "p.yml:14: names: cluster main has no topic nemes",
        ),
        (
            "Topic: copy",
            "Topic: cpy",
            r"p.yml:19: far: cluster other has no topic cpy \(did you mean copy\?\)$",
        ),
        (
            "options: {subscribe: names}",
            """options:
      subscribe: names
      valueFormat: avro
      schemaRegistryUrl: http://127.0.0.1:1
      schemaRegistry.default.api.timeout.ms: 100
      schemaRegistry.basic.auth.user.info: me:word
      deadLetterTopic: bad""",
            "p.yml:20: names: cluster main has no topic bad",
        ),
    ],
)
def test_the_error_for_a_missing_topic_names_the_line(
    spec: Any, given: str, instead: str, expected: str
) -> None:
    with pytest.raises(SpecError, match=expected):
        ask_clusters(spec(given, instead))


ORDER = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
REGISTERED = """\
name: p
storage: state
clusters:
  main: {{bootstrap.servers: "{main}"}}
registries:
  here: {{url: "{url}"}}
  gone: {{url: "http://127.0.0.1:1", default.api.timeout.ms: 100}}
sources:
  names:
    value: {{format: avro, registry: here}}
    options: {{subscribe: names}}
sinks:
  copy:
    from: names
    value: {{format: avro, registry: here, version: 1, subject: names-value}}
    options: {{topic: names}}
"""


@pytest.mark.parametrize(
    ("given", "instead", "expected"),
    [
        ("", "", None),
        ("avro, registry: here}", "avro, registry: here, subject: no}", "10: names: .*HTTP 404"),
        ("avro, registry: here}", "json, registry: here}", "10: names: .*AVRO, not JSON"),
        ("avro, registry: here}", "avro, registry: gone}", "7: names: .*127.0.0.1:1"),
        ("version: 1", "version: 2", "15: copy: "),
    ],
)
def test_the_error_for_a_missing_schema_names_the_line(
    world: KafkaSimulation, tmp_path: Path, given: str, instead: str, expected: str | None
) -> None:
    path = tmp_path / "p.yml"
    with registry_server() as server:
        registry = SchemaRegistryClient({"schema.registry.url": server.url})
        registry.register_schema("names-value", Schema(ORDER))
        text = REGISTERED.format(main=world.bootstrap_servers, url=server.url)
        path.write_text(text.replace(given, instead, 1))
        pipeline = parse(read(path, {}))
        if expected is None:
            assert len(ask_clusters(pipeline)) == 1
            assert server.asked[-1] == "GET /subjects/names-value/versions/1"
            return
        with pytest.raises(SpecError, match=f"p.yml:{expected}"):
            ask_clusters(pipeline)


@pytest.mark.parametrize("only", ["source", "sink"])
def test_a_cluster_without_named_topics_is_also_contacted_before_the_start(
    world: KafkaSimulation, spec: Any, only: str
) -> None:
    pipeline = spec()
    away(world)
    if only == "sink":  # sink `near` gets its topics from a column
        pipeline.sources.clear()
        pipeline.lookups.clear()
        del pipeline.sinks["far"]
    with pytest.raises(SpecError, match=r"p.yml:4: cluster main: "):
        ask_clusters(pipeline)


def test_only_new_flows_are_checked_before_a_restart(
    world: KafkaSimulation, spec: Any, tmp_path: Path
) -> None:
    away(world)
    begun(tmp_path, "near")  # sink `near` reads the source and the lookup
    assert ask_clusters(spec(), only_new=True) == ()
    with pytest.raises(SpecError, match="has no topic cpy"):
        ask_clusters(spec("Topic: copy", "Topic: cpy"), only_new=True)
    begun(tmp_path / "own", "far")
    own = f"CheckpointLocation: {tmp_path}/own/state/checkpoints/far, Topic: cpy"
    assert ask_clusters(spec("Topic: copy", own), only_new=True) == ()
    with pytest.raises(SpecError, match="cluster main: "):
        ask_clusters(spec("  near:", "  again:"), only_new=True)


def test_a_flow_with_a_remote_checkpoint_does_not_count_as_new(
    world: KafkaSimulation, spec: Any
) -> None:
    away(world)
    pipeline = spec("storage: file://", "storage: s3a://bucket")
    assert ask_clusters(pipeline, only_new=True) == ()
    writing = planning._writing(
        pipeline.sinks["near"], "", pipeline.checkpoint(pipeline.sinks["near"])
    )
    assert not writing.looked_at
    lines = PipelinePlan("p.yml", "p", (), {}, (writing,)).lines()
    assert "can't be read from here" in lines[-1]


def test_pipeline_plan_leaves_no_files_even_if_its_process_is_killed(
    tmp_path: Path, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's log file gets a name in a folder only if Spark fails to start."""
    made, place = spec(), tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    seen: list[list[Path]] = []

    def session(pipeline: Pipeline, log: Any) -> Any:
        log.write(b"what the JVM says")
        seen.append(list(place.iterdir()))
        return None

    monkeypatch.setattr(planning, "session", session)
    monkeypatch.setattr(planning, "end_session", lambda spark: None)
    monkeypatch.setattr(planning, "_described", lambda *_: "the plan")
    said: list[str] = []
    planned: Any = planning.describe(made, log=None, say=said.append)
    assert planned == "the plan"
    assert seen == [[]]
    assert list(place.iterdir()) == []
    assert said[-1] == "starting Spark"


def test_the_log_of_a_failed_spark_start_is_kept(
    tmp_path: Path, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def session(pipeline: Pipeline, log: Any) -> Any:
        log.write(b"what the JVM says")
        raise ConfigurationError("Spark didn't start")

    monkeypatch.setattr(planning, "session", session)
    with pytest.raises(ConfigurationError, match="Spark didn't start; its log is (.*)") as told:
        planning.describe(spec(), log=None)
    place = Path(str(told.value).rpartition("its log is ")[2])
    assert place.read_bytes() == b"what the JVM says"
