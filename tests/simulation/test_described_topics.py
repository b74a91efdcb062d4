"""Descriptions of topics from responses with fewer or more topics than requested."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek.api.admin import Admin
from odradek.common.errors import KafkaTimeoutError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse

Spoil = Callable[[MetadataResponse], object]


def nameless(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        topic.name = None


def left_out(answer: MetadataResponse) -> None:
    answer.topics = [topic for topic in answer.topics if topic.name != "u"]


def renamed(answer: MetadataResponse) -> None:
    """Rename all topics of the response."""
    for n, topic in enumerate(answer.topics):
        topic.name = f"x{n}"


def and_more(answer: MetadataResponse) -> None:
    for name, code in (("x\x1b[31m", 0), ("", 0), (None, 0), ("refused", 29), ("gone", 3)):
        for topic in copy.deepcopy(answer.topics[:1]):
            topic.name, topic.error_code = name, code
            answer.topics = [topic, *answer.topics]


class Scene(Stage):
    """Topics t and u; after `begin()`, the next `often` Metadata responses are modified."""

    def __init__(self, patch: pytest.MonkeyPatch, spoil: Spoil, often: int) -> None:
        self.spoil, self.often, self.left = spoil, often, 0
        spoil_answers(patch, MetadataRequest.API_KEY, self._spoil)
        super().__init__(2, brokers=2, partitions=4)
        self.cluster.create_topic("u", partitions=1)
        self.admin, self.reader = self.client(Admin), self.consumer()
        self.admin.list_topics()
        self.reader.list_topics()

    def _spoil(self, answer: MetadataResponse) -> None:
        if self.left:
            self.left -= 1
            self.spoil(answer)

    def begin(self) -> None:
        self.left = self.often


@pytest.mark.parametrize("spoil", [nameless, left_out, renamed, and_more])
def test_calls_wait_for_requested_topics_and_ignore_other_topics(
    monkeypatch: pytest.MonkeyPatch, spoil: Spoil
) -> None:
    scene = Scene(monkeypatch, spoil, often=2)
    scene.begin()
    found = scene.admin.describe_topics(["t", "u"], 10)
    assert {name: len(t.partitions) for name, t in found.items()} == {"t": 4, "u": 1}
    scene.begin()
    assert set(scene.reader.describe(["u", "t"], 10)) == {"t", "u"}
    scene.begin()
    assert len(scene.reader.partitions_for("u", 10)) == 1


def test_a_response_with_additional_topics_is_accepted_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, and_more, often=10_000)
    scene.begin()
    assert set(scene.admin.describe_topics(["t", "u"], 1)) == {"t", "u"}
    assert scene.left == 10_000 - 1


def test_a_topic_missing_in_all_responses_raises_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, renamed, often=10_000)
    scene.begin()
    with pytest.raises(KafkaTimeoutError, match="is missing from the response"):
        scene.admin.describe_topics(["t"], 5)
    with pytest.raises(KafkaTimeoutError, match="is missing from the response"):
        scene.reader.partitions_for("t", 5)
    scene.left = 0
    assert len(scene.reader.partitions_for("t", 5)) == 4


@pytest.mark.parametrize("who", ["admin", "reader"])
def test_the_error_of_a_missing_topic_suggests_similar_names_and_a_command(
    monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    scene = Scene(monkeypatch, nameless, often=0)
    scene.cluster.create_topic("flights")
    describe = scene.admin.describe_topics if who == "admin" else scene.reader.describe
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        describe(["t", "flihgts"], 10)
    front = scene.cluster.bootstrap_servers
    assert str(caught.value.errors["flihgts"]) == (
        "topic flihgts doesn't exist (did you mean flights?). Create it with: "
        f"odradek topics create flihgts --bootstrap-server {front}"
    )
    assert set(caught.value.results) == {"t"}
