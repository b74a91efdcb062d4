"""Test how records in a pipeline's dead letter topics are counted for each flow and shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from odradek import Producer
from odradek.cli.pipeline import dead_letters
from odradek.cli.pipeline.dead_letters import DeadLetterTopics
from odradek.cli.pipeline.display import JsonLines, PipelineView
from odradek.cli.pipeline.document import read
from odradek.cli.pipeline.running import Queries, Running, Stop
from odradek.cli.pipeline.spec import Pipeline, parse
from odradek.testing import FakeCluster, KafkaSimulation

SPEC = """\
name: p
storage: state
clusters:
  main: {{bootstrap.servers: "{main}"}}
sources:
  orders:
    value: {{format: json, schema: id int}}
    deadLetterTopic: bad
    options: {{subscribe: orders}}
  others:
    value: {{format: json, schema: id int}}
    options: {{subscribe: others, deadLetterTopic: worse}}
views:
  both: SELECT value FROM orders UNION SELECT value FROM others
sinks:
  all: {{from: both, format: parquet}}
  few: {{from: others, format: parquet}}
"""


@pytest.fixture
def world() -> Iterator[KafkaSimulation]:
    with KafkaSimulation() as simulation:
        for topic, partitions in (("bad", 2), ("worse", 1)):
            simulation.create_topic(topic, partitions=partitions)
        yield simulation


@pytest.fixture
def pipeline(world: KafkaSimulation, tmp_path: Path) -> Pipeline:
    path = tmp_path / "p.yml"
    path.write_text(SPEC.format(main=world.bootstrap_servers))
    return parse(read(path, {}))


class Query:
    """A Spark query that has run one batch without rows: all of its records were invalid."""

    isActive = False  # noqa: N815
    lastProgress: dict[str, Any] = {  # noqa: N815, RUF012
        "batchId": 1, "timestamp": "t1", "numInputRows": 0,
        "durationMs": {"triggerExecution": 100, "addBatch": 50}, "sources": [],
    }  # fmt: skip
    recentProgress = (lastProgress,)  # noqa: N815

    def exception(self) -> None:
        return None


def test_each_flow_counts_the_dead_letters_of_its_sources(
    world: KafkaSimulation, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    world.produce("bad", [b"an earlier run's"])
    letters = DeadLetterTopics.met(pipeline)
    flows: dict[str, Any] = {"all": Query(), "few": Query()}
    queries = Queries(flows, JsonLines(), letters=letters)
    world.produce("bad", [b"1", b"2"])
    world.produce("worse", [b"3"])
    queries.poll()
    running = Running(pipeline, JsonLines(), Stop(), log=None, stop_timeout=1.0)
    running._ended(queries)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in told:
        few = line["flow"] == "few"
        assert line["dead_letters"] == ({"worse": 1} if few else {"bad": 2, "worse": 1})
    assert [line["event"] for line in told] == ["batch", "batch", "ended", "ended"]
    assert told[2]["text"].endswith(", 2 dead letters in bad, 1 dead letter in worse")
    letters.close()


def test_the_live_view_shows_the_number_of_dead_letters(
    world: KafkaSimulation, pipeline: Pipeline, capsys: Any
) -> None:
    letters = DeadLetterTopics.met(pipeline)
    world.produce("bad", [b"1"])
    with PipelineView(pipeline) as view:
        Queries({"all": Query()}, view, letters=letters).poll()
        drawn: Any = view._draw()
    assert "lag –, 1 dead letter in bad" in capsys.readouterr().out
    assert "bad: 1 dead letter" in [str(one) for one in drawn.renderables]
    letters.close()


def test_the_last_number_of_dead_letters_is_kept_while_the_cluster_is_unreachable(
    world: KafkaSimulation, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "PATIENCE", 0.1)
    letters = DeadLetterTopics.met(pipeline)
    world.produce("bad", [b"1"])
    letters.look(["all"])
    for broker in world.cluster.brokers:
        world.crash(broker)
    world.close_front_door()
    letters.look(["all", "few"])
    assert letters.of("all") == {"bad": 1, "worse": 0}
    unmet = DeadLetterTopics.met(pipeline)
    assert unmet.of("all") == {}  # the number of dead letters is unknown
    asked: list[str] = []
    look = dead_letters._Topic.look

    def counted(topic: Any) -> None:
        asked.append(topic.name)
        look(topic)

    monkeypatch.setattr(dead_letters._Topic, "look", counted)
    letters.look(["all", "few"])
    assert len(asked) == 1, "a cluster is waited for once"
    for one in (letters, unmet):
        one.close()


TWO = """\
name: p
storage: state
clusters:
  main: {{bootstrap.servers: "{main}"}}
  other: {{bootstrap.servers: "{other}"}}
sources:
  orders:
    cluster: main
    value: {{format: json, schema: id int}}
    deadLetterTopic: bad
    options: {{subscribe: orders}}
  others:
    cluster: other
    value: {{format: json, schema: id int}}
    deadLetterTopic: bad
    options: {{subscribe: others}}
sinks:
  here: {{from: orders, format: parquet}}
  there: {{from: others, format: parquet}}
"""


def test_dead_letters_of_several_clusters_are_counted_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2, timeout=10.0)
    look = dead_letters._Topic.look

    def meeting(topic: Any) -> None:
        together.wait()
        look(topic)

    monkeypatch.setattr(dead_letters._Topic, "look", meeting)
    with FakeCluster(1, topics={"bad": 1}) as main, FakeCluster(1, topics={"bad": 1}) as other:
        path = tmp_path / "p.yml"
        servers = {"main": main.bootstrap_servers, "other": other.bootstrap_servers}
        path.write_text(TWO.format(**servers))
        with closing(DeadLetterTopics.met(parse(read(path, {})))) as letters:
            with Producer(bootstrap_servers=servers["other"]) as producer:
                producer.send("bad", b"1").result()
            flows: dict[str, Any] = {"here": Query(), "there": Query()}
            Queries(flows, JsonLines(), letters=letters).poll()
            assert [letters.of(flow) for flow in flows] == [{"bad": 0}, {"bad": 1}]
