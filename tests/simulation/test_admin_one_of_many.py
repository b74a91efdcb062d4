"""One item of an admin call fails (R-RT-4): it has its own error, and the others have results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek import Admin, KafkaError, KafkaTimeoutError, NewTopic, TopicPartition
from odradek.admin import AlterConfigOp, ConfigResource
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
PASSING = 5
"""Error code LEADER_NOT_AVAILABLE."""
Change = Callable[[MetadataResponse], object]


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.cluster.create_topic("u", partitions=2)
    made.write(range(3))
    return made


@pytest.fixture
def admin(stage: Stage) -> Admin:
    return stage.client(Admin, background=False)


def refuse(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        if topic.name == "u":
            topic.error_code, topic.partitions = PASSING, []


def leave_out(answer: MetadataResponse) -> None:
    answer.topics = [t for t in answer.topics if t.name != "u"]


@pytest.mark.parametrize(
    ("change", "error"),
    [(refuse, "LEADER_NOT_AVAILABLE"), (leave_out, "u is missing from the response")],
)
def test_a_topic_without_metadata_does_not_delay_other_topics(
    stage: Stage, admin: Admin, monkeypatch: pytest.MonkeyPatch, change: Change, error: str
) -> None:
    """Leaders of several topics are looked up together, and known leaders are used."""
    spoil_answers(monkeypatch, MetadataRequest.API_KEY, change)
    for call in (admin.list_offsets, admin.delete_records):
        given: Any = {T0: "LATEST", U0: "LATEST"} if call == admin.list_offsets else {T0: 0, U0: 0}
        begin = stage.world.now
        with pytest.raises(KafkaTimeoutError, match=error) as late:
            call(given, timeout=3.0)
        assert stage.world.now - begin <= 3.1
        assert list(late.value.results) == [T0]
        assert list(late.value.errors) == [U0]


def test_metadata_of_a_topic_is_requested_again_until_it_is_available(
    stage: Stage, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = stage.world.now + 1.0
    spoil_answers(
        monkeypatch,
        MetadataRequest.API_KEY,
        lambda answer: refuse(answer) if stage.world.now < until else None,
    )
    assert list(admin.list_offsets({U0: "LATEST", T0: "LATEST"})) == [U0, T0]
    assert stage.world.now < until + 2.0


def test_list_topics_includes_topics_with_a_retriable_error(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_answers(monkeypatch, MetadataRequest.API_KEY, refuse)
    assert admin.list_topics() == ["t", "u"]


def test_a_new_topic_without_leaders_does_not_delay_other_topics(
    stage: Stage, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lead_nobody(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            for part in topic.partitions if topic.name == "b" else ():
                part.leader_id = -1

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, lead_nobody)
    with pytest.raises(KafkaTimeoutError, match="without a leader") as late:
        admin.create_topics([NewTopic(name, 2, 1) for name in "abc"], timeout=3.0)
    assert sorted(late.value.results) == ["a", "c"]
    assert list(late.value.errors) == ["b"]
    assert "b" in stage.cluster.topics


def test_calls_wait_for_partitions_that_were_just_added(stage: Stage, admin: Admin) -> None:
    """Metadata of some brokers doesn't contain new partitions immediately."""
    admin.describe_topics("t")
    for broker in stage.cluster.brokers:
        stage.cluster.stale_metadata(broker)
        stage.world.after(0.5, partial(stage.cluster.stale_metadata, broker, on=False))
    admin.create_partitions({"t": 5})
    new = TopicPartition("t", 4)
    assert list(admin.list_offsets({new: "LATEST"})) == [new]


def test_all_items_of_a_missing_broker_share_one_error(admin: Admin) -> None:
    """The error's notes name the missing broker once."""
    ops = [AlterConfigOp("retention.ms", "2")]
    away = [ConfigResource("BROKER", "99"), ConfigResource("BROKER_LOGGER", "99")]
    changes = dict.fromkeys([ConfigResource("TOPIC", "t"), *away], ops)
    with pytest.raises(KafkaError) as late:
        admin.incremental_alter_configs(changes, timeout=2.0)
    notes = [n for n in late.value.__notes__ if "no broker 99" in n]
    assert len(notes) == 1
    assert list(late.value.errors) == away
    assert list(late.value.results) == [ConfigResource("TOPIC", "t")]


@pytest.mark.parametrize("name", ["list_groups", "list_transactions", "describe_log_dirs"])
def test_results_of_some_brokers_are_returned_if_others_fail(
    stage: Stage, admin: Admin, name: str
) -> None:
    getattr(admin, name)()
    stage.cluster.go_silent(2)
    begin = stage.world.now
    with pytest.raises(KafkaTimeoutError, match="broker 2") as late:
        getattr(admin, name)(timeout=4.0)
    assert stage.world.now - begin <= 4.1
    assert sorted(late.value.results) == [1, 3]
    assert list(late.value.errors) == [2]


@pytest.mark.parametrize("name", ["describe_classic_groups", "describe_consumer_groups"])
def test_a_silent_coordinator_does_not_delay_other_groups(
    stage: Stage, admin: Admin, name: str
) -> None:
    groups = [f"g{n}" for n in range(6)]
    for group in groups:
        admin.alter_group_offsets(group, {T0: 1})
    by = {
        g: stage.cluster.leader("__consumer_offsets", stage.cluster.groups.index(g)) for g in groups
    }
    silent = by["g0"]
    assert silent is not None
    stage.cluster.go_silent(silent.id)
    with pytest.raises(KafkaTimeoutError) as late:
        getattr(admin, name)([*groups, "nobody"], timeout=4.0)
    theirs = {g for g, b in by.items() if b is not silent}
    assert theirs <= set(late.value.results)
    assert set(late.value.errors) >= {g for g, b in by.items() if b is silent}


def test_committed_offsets_outside_of_the_log_are_reported(stage: Stage, admin: Admin) -> None:
    """The lag doesn't show whether records were deleted unread or the topic was recreated."""
    t1 = TopicPartition("t", 1)
    stage.write(range(9))
    admin.alter_group_offsets("g", {T0: 1, t1: 1000, U0: 0})
    admin.delete_records({T0: 3})
    group = admin.examine(["t"], "g").group
    assert group is not None
    assert group.outside == {T0: (3, 4), t1: (0, 4)}
    assert group.waiting == {T0: 1, t1: 0, TopicPartition("t", 2): 4, U0: 0}
