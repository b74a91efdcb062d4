"""R-MD-7: a large response is decoded in chunks, one per step; an invalid response is dropped.

An admin client's requests about very many partitions are one request per broker.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.volume import some

from odradek import Admin, Producer, TopicPartition
from odradek.common.errors.kafka import (
    ClusterAuthorizationError,
    LeaderNotAvailableError,
    RebootstrapRequiredError,
)
from odradek.common.events import Event
from odradek.metadata import cluster, response_comparison
from odradek.metadata.cluster import topic_of
from odradek.network.engine import Engine
from odradek.protocol import packed_metadata
from odradek.protocol.messages.metadata import MetadataResponse
from odradek.protocol.packed_metadata import PackedMetadataResponse

TOPICS = [f"topic-{n:03d}" for n in range(50)]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(packed_metadata, "SLICE", 2000)
    made = Stage(partitions=0)
    for name in TOPICS:
        made.cluster.create_topic(name, partitions=20)
    return made


def knows_all(producer: Producer) -> bool:
    snapshot = producer._engine.metadata.snapshot
    return snapshot is not None and all(name in snapshot.topics for name in TOPICS)


def ask_for_all(stage: Stage, producer: Producer) -> None:
    engine = producer._engine
    engine.post(lambda now: engine.metadata.want(TOPICS))
    producer.partitions_for(TOPICS[0])
    stage.world.advance(5.0)
    assert knows_all(producer)


def test_each_step_decodes_one_chunk_of_a_large_response(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's step ends after each chunk, so other work continues."""
    said: list[str] = []
    step, read_on = Engine.step, PackedMetadataResponse.read_on

    def steps(engine: Engine, now: float) -> float | None:
        said.append("step")
        return step(engine, now)

    def reads(answer: PackedMetadataResponse) -> bool:
        before = len(answer.topics)
        done = read_on(answer)
        said.append(f"read {len(answer.topics) - before}")
        return done

    monkeypatch.setattr(Engine, "step", steps)
    monkeypatch.setattr(PackedMetadataResponse, "read_on", reads)
    producer = stage.producer()
    ask_for_all(stage, producer)
    at = [n for n, what in enumerate(said) if what.startswith("read")]
    counts = [int(said[n].split()[1]) for n in at]
    assert sum(counts) == len(TOPICS)
    assert len(counts) > 5
    assert max(counts) < 10
    assert all("step" in said[a:b] for a, b in pairwise(at))
    snapshot: Any = producer._engine.metadata.snapshot
    assert snapshot.led == 20 * len(TOPICS)
    assert producer.partitions_for(TOPICS[7])


def test_no_step_compares_more_topics_than_a_chunk_contains(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old and new topics are compared in the steps before the one that applies the response."""
    compared = [0]
    step = Engine.step

    def steps(engine: Engine, now: float) -> float | None:
        compared.append(0)
        return step(engine, now)

    def counts(*arguments: Any) -> Any:
        compared[-1] += 1
        return topic_of(*arguments)

    monkeypatch.setattr(Engine, "step", steps)
    for module in (cluster, response_comparison):
        monkeypatch.setattr(module, "topic_of", counts)
    producer = stage.producer()
    ask_for_all(stage, producer)
    engine = producer._engine
    before = engine.metadata.snapshot
    engine.post(lambda now: engine.metadata.request("again"))
    stage.cluster.create_topic("one-more", partitions=1)
    assert producer.partitions_for("one-more")
    stage.world.advance(5.0)
    assert engine.metadata.snapshot is not before
    assert sum(compared) >= 2 * len(TOPICS)
    assert max(compared) < 10


def spoilt_once(patch: pytest.MonkeyPatch) -> None:
    """End the first response with many topics with invalid bytes."""
    whole = MetadataResponse.WRITERS
    left = [b"\1\2"]

    def writer(writes: Callable[..., None]) -> Callable[..., None]:
        def write(out: Any, answer: MetadataResponse) -> None:
            writes(out, answer)
            if len(answer.topics) > 10 and left:
                out += left.pop()

        return write

    patch.setattr(MetadataResponse, "WRITERS", tuple(map(writer, whole)))


def ends_with_an_error(patch: pytest.MonkeyPatch, code: int, times: int = 1) -> None:
    """Set the error code at the end of the next responses with many topics."""
    whole = MetadataResponse.WRITERS
    left = [code] * times

    def writer(writes: Callable[..., None]) -> Callable[..., None]:
        def write(out: Any, answer: MetadataResponse) -> None:
            if len(answer.topics) > 10 and left:
                answer.error_code = left.pop()
            writes(out, answer)

        return write

    patch.setattr(MetadataResponse, "WRITERS", tuple(map(writer, whole)))


def asked_again(stage: Stage) -> list[str]:
    """List all topics, and return the errors raised before."""
    admin = stage.client(Admin, background=False)
    events: list[Event] = []
    admin._engine.events.listen(events.append)
    assert admin.list_topics(20.0) == TOPICS
    return [str(e.fields["error"]) for e in events if e.kind == "retry"]


def test_a_topic_list_that_ends_with_an_error_is_requested_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error at the end has the effect of one at the start; a permanent error is raised."""
    ends_with_an_error(monkeypatch, LeaderNotAvailableError.code)
    (error,) = asked_again(stage)
    assert error.startswith("LeaderNotAvailableError")
    ends_with_an_error(monkeypatch, ClusterAuthorizationError.code)
    with pytest.raises(ClusterAuthorizationError):
        stage.client(Admin, background=False).list_topics(20.0)
    ends_with_an_error(monkeypatch, RebootstrapRequiredError.code)
    (error,) = asked_again(stage)
    assert "requires a rebootstrap" in error


def test_an_invalid_topic_list_is_requested_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt_once(monkeypatch)
    (error,) = asked_again(stage)
    assert error.startswith("DisconnectedError")
    assert "unread bytes" in error


def test_an_invalid_response_is_dropped_and_requested_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt_once(monkeypatch)
    producer = stage.producer()
    events: list[Event] = []
    producer._engine.events.listen(events.append)
    ask_for_all(stage, producer)
    failed = [e for e in events if e.kind == "metadata_failed"]
    assert len(failed) == 1
    assert "unread bytes" in str(failed[0].fields["error"])
    asked = [e for e in events if e.kind == "metadata_request" and e.fields["topics"] == 50]
    assert len(asked) == 2


@pytest.mark.parametrize("topics", some([100, 1], 1))
def test_ten_thousand_partitions_take_one_request_to_each_leader(topics: int) -> None:
    stage = Stage(partitions=0)
    names = [f"wide-{n}" for n in range(topics)]
    for name in names:
        stage.cluster.create_topic(name, partitions=10_000 // topics)
    admin = stage.client(Admin, background=False)
    admin.list_topics()

    def requests(api: str) -> list[int]:
        return [broker.requests[api] for broker in stage.cluster.brokers.values()]

    before = sum(requests("Metadata"))
    described = admin.describe_topics(names)
    assert sum(len(topic.partitions) for topic in described.values()) == 10_000
    assert sum(requests("Metadata")) == before + 1
    wanted = {TopicPartition(t.name, p.partition): "LATEST" for t in described.values()
              for p in t.partitions}  # fmt: skip
    found = admin.list_offsets(wanted)
    assert len(found) == 10_000
    assert sum(requests("Metadata")) == before + 2  # the leaders are looked up
    assert requests("ListOffsets") == [1, 1, 1]
