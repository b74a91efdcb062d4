"""The snapshot's pure update, epochs, leader hints, hints for other processes (R-MD-7)."""

import json
from collections.abc import Iterable

from odradek.common.types import Address
from odradek.metadata.cluster import (
    NO_ID,
    Broker,
    Cluster,
    Epochs,
    brings_progress,
    from_hint,
    is_possible,
    to_hint,
    updated,
    with_leader,
)
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER = b"i" * 16, b"o" * 16


def topic(
    name: str, leaders: list[int], *, epoch: int = 1, id_: bytes = ID, error: int = 0
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=id_,
        partitions=[
            MetadataResponsePartition(partition_index=n, leader_id=leader, leader_epoch=epoch)
            for n, leader in enumerate(leaders)
        ],
    )


def answer(*topics: MetadataResponseTopic, brokers: int = 2) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092)
            for n in range(1, brokers + 1)
        ],
        cluster_id="c",
        controller_id=1,
        topics=list(topics),
    )


def test_first_snapshot() -> None:
    c = updated(None, answer(topic("t", [1, 2])), ["t"], {}, 5.0)
    assert c.addresses() == [Address("b1", 9092), Address("b2", 9092)]
    assert (c.cluster_id, c.controller, c.updated_at) == ("c", 1, 5.0)
    leader = c.leader("t", 1)
    assert leader is not None
    assert leader.id == 2
    assert c.leader("t", 2) is None
    assert c.leader("u", 0) is None


def test_what_can_be_no_brokers_address() -> None:
    for host in ("b", "b1.example.org", "::1", "fe80::1%eth0", "bröker"):
        assert is_possible(host, 9092)
        assert not is_possible(host, 0)
        assert not is_possible(host, 70000)
    for host in ("", "b 1", "b\r\nx: y", "b\0", "b\x7f"):
        assert not is_possible(host, 9092)


def test_topics_that_were_not_asked_for_are_kept_and_brokers_are_replaced() -> None:
    epochs: Epochs = {}
    first = updated(None, answer(topic("t", [1]), topic("u", [2])), ["t", "u"], epochs, 0.0)
    second = updated(first, answer(topic("t", [1]), brokers=1), ["t"], epochs, 1.0)
    assert set(second.topics) == {"t", "u"}
    assert set(second.brokers) == {1}
    assert second.leader("u", 0) is None  # its broker left
    assert set(first.brokers) == {1, 2}  # the old snapshot is untouched


def test_a_topic_that_is_gone_leaves_the_snapshot() -> None:
    first = updated(None, answer(topic("t", [1])), ["t"], {}, 0.0)
    gone = MetadataResponseTopic(error_code=3, name="t")
    assert not updated(first, answer(gone), ["t"], {}, 1.0).topics
    assert not updated(first, answer(), ["t"], {}, 1.0).topics


def test_another_error_of_a_topic_keeps_what_was_known() -> None:
    first = updated(None, answer(topic("t", [1])), ["t"], {}, 0.0)
    failing = MetadataResponseTopic(error_code=5, name="t")
    after = updated(first, answer(failing), ["t"], {}, 1.0)
    assert after.topics["t"].error == 5
    assert after.leader("t", 0) == first.leader("t", 0)


def test_md_17_a_lower_epoch_of_the_same_topic_is_ignored() -> None:
    epochs: Epochs = {}
    first = updated(None, answer(topic("t", [1], epoch=10)), ["t"], epochs, 0.0)
    second = updated(first, answer(topic("t", [2], epoch=9)), ["t"], epochs, 1.0)
    assert second.topics["t"].partitions == first.topics["t"].partitions
    third = updated(second, answer(topic("t", [2], epoch=11)), ["t"], epochs, 2.0)
    assert third.topics["t"].partitions[0].leader == 2


def test_a_lower_epoch_is_ignored_where_there_are_no_ids() -> None:
    epochs: Epochs = {}
    first = updated(None, answer(topic("t", [1], epoch=10, id_=NO_ID)), ["t"], epochs, 0.0)
    second = updated(first, answer(topic("t", [2], epoch=9, id_=NO_ID)), ["t"], epochs, 1.0)
    assert second.topics["t"].partitions == first.topics["t"].partitions
    third = updated(second, answer(topic("t", [2], epoch=10, id_=NO_ID)), ["t"], epochs, 2.0)
    assert third.topics["t"].partitions[0].leader == 2


def test_an_older_broker_without_ids_brings_no_older_epoch() -> None:
    """Of a rolling upgrade: some answers have ids, others don't."""
    epochs: Epochs = {}
    first = updated(None, answer(topic("t", [1], epoch=10)), ["t"], epochs, 0.0)
    second = updated(first, answer(topic("t", [2], epoch=9, id_=NO_ID)), ["t"], epochs, 1.0)
    assert second.topics["t"].partitions == first.topics["t"].partitions
    updated(second, answer(topic("t", [2], epoch=11, id_=NO_ID)), ["t"], epochs, 2.0)
    assert epochs["t"][0] == (ID, 11)  # its id is known all the same
    anew = updated(second, answer(topic("t", [2], epoch=1, id_=OTHER)), ["t"], epochs, 3.0)
    assert anew.topics["t"].partitions[0].leader == 2


def test_a_topic_without_ids_that_was_gone_starts_anew() -> None:
    epochs: Epochs = {}
    first = updated(None, answer(topic("t", [1], epoch=10, id_=NO_ID)), ["t"], epochs, 0.0)
    gone = updated(first, answer(MetadataResponseTopic(error_code=3, name="t")), ["t"], epochs, 1.0)
    third = updated(gone, answer(topic("t", [2], epoch=0, id_=NO_ID)), ["t"], epochs, 2.0)
    assert third.topics["t"].partitions[0].leader == 2


def test_with_an_id_a_topic_that_was_gone_for_a_moment_goes_not_back() -> None:
    epochs: Epochs = {}
    first = updated(None, answer(topic("t", [1], epoch=10)), ["t"], epochs, 0.0)
    gone = updated(first, answer(MetadataResponseTopic(error_code=3, name="t")), ["t"], epochs, 1.0)
    third = updated(gone, answer(topic("t", [2], epoch=9)), ["t"], epochs, 2.0)
    assert third.topics["t"].partitions[0].leader == -1


def test_partitions_are_counted_as_topics_come_and_go() -> None:
    epochs: Epochs = {}
    c = updated(None, answer(topic("t", [1, -1]), topic("u", [2])), ["t", "u"], epochs, 0.0)
    assert (c.led, c.leaderless) == (2, 1)
    c = updated(c, answer(topic("v", [-1, 1, 2])), ["v"], epochs, 1.0)
    assert (c.led, c.leaderless) == (4, 2)
    c = updated(c, answer(MetadataResponseTopic(error_code=3, name="t")), ["t"], epochs, 2.0)
    assert (c.led, c.leaderless) == (3, 1)
    c = with_leader(c, "v", 0, 1, 2, [])
    assert (c.led, c.leaderless) == (4, 0)
    c = updated(c, answer(topic("v", [-1], epoch=0)), ["v"], epochs, 3.0, keep={"v"})
    assert set(c.topics) == {"v"}
    assert (c.led, c.leaderless) == (1, 0)  # its epoch was lower: the old leader is kept


class TestEquivalentAnswers:
    """B 1.3: what counts as progress."""

    def after(
        self, first: MetadataResponse, second: MetadataResponse, asked: Iterable[str] = ("t",)
    ) -> bool:
        epochs: Epochs = {}
        old = updated(None, first, asked, epochs, 0.0)
        return brings_progress(old, updated(old, second, asked, epochs, 1.0), asked)

    def test_the_same_again_is_none(self) -> None:
        assert not self.after(answer(topic("t", [1])), answer(topic("t", [1])))

    def test_a_higher_epoch_another_id_and_a_new_partition_are(self) -> None:
        before = answer(topic("t", [1]))
        assert self.after(before, answer(topic("t", [1], epoch=2)))
        assert self.after(before, answer(topic("t", [1], id_=OTHER)))
        assert self.after(before, answer(topic("t", [1, 2])))
        assert self.after(before, answer(MetadataResponseTopic(error_code=3, name="t")))

    def test_replicas_brokers_and_other_topics_are_none(self) -> None:
        changed = answer(topic("t", [1]), topic("u", [2]), brokers=1)
        changed.topics[0].partitions[0].isr_nodes = [7]
        changed.controller_id = 7
        assert not self.after(answer(topic("t", [1])), changed)

    def test_a_lower_epoch_is_none(self) -> None:
        assert not self.after(answer(topic("t", [1], epoch=3)), answer(topic("t", [2], epoch=2)))

    def test_without_epochs_the_leader_decides(self) -> None:
        before = answer(topic("t", [1], epoch=-1))
        assert not self.after(before, answer(topic("t", [1], epoch=-1)))
        assert self.after(before, answer(topic("t", [2], epoch=-1)))

    def test_without_topics_the_brokers_do(self) -> None:
        assert self.after(answer(), answer(brokers=3), ())
        assert not self.after(answer(), answer(), ())


def test_md_16_a_recreated_topic_starts_anew() -> None:
    epochs: Epochs = {}
    first = updated(None, answer(topic("t", [1], epoch=10)), ["t"], epochs, 0.0)
    second = updated(first, answer(topic("t", [2], epoch=5, id_=OTHER)), ["t"], epochs, 1.0)
    part = second.partition("t", 0)
    assert part is not None
    assert (part.leader, part.leader_epoch) == (2, 5)


def test_epochs_outlive_the_snapshot() -> None:
    epochs: Epochs = {}
    updated(None, answer(topic("t", [1], epoch=10)), ["t"], epochs, 0.0)
    after = updated(None, answer(topic("t", [2], epoch=9)), ["t"], epochs, 1.0)
    part = after.partition("t", 0)
    assert part is not None
    assert part.leader == -1  # better none than a stale one
    assert after.topics["t"].leaderless == 1


def test_an_answer_with_holes_leads_nobody_astray() -> None:
    holes = topic("t", [1, 2])
    holes.partitions[0].partition_index = 1
    holes.partitions[1].partition_index = 2**31 - 1
    c = updated(None, answer(holes), ["t"], {}, 0.0)
    assert c.partition("t", 0) is None
    assert c.partition("t", 1) is None
    assert len(c.topics["t"].partitions) == 2


class TestLeaderHints:
    def snapshot(self) -> Cluster:
        return updated(None, answer(topic("t", [1], epoch=4)), ["t"], {}, 0.0)

    def test_kip_951_a_newer_leader_is_applied_with_its_address(self) -> None:
        new = Broker(7, Address("b7", 1))
        after = with_leader(self.snapshot(), "t", 0, 7, 5, [new])
        assert after.leader("t", 0) == new

    def test_an_older_epoch_or_an_unknown_broker_changes_nothing(self) -> None:
        c = self.snapshot()
        assert with_leader(c, "t", 0, 2, 4, []) is c
        assert with_leader(c, "t", 0, 9, 5, []) is c
        assert with_leader(c, "u", 0, 2, 5, []) is c


def test_a_hint_goes_through_json_and_back() -> None:
    c = updated(None, answer(topic("t", [1, 2], epoch=3)), ["t"], {}, 0.0)
    back = from_hint(json.loads(json.dumps(to_hint(c))), 9.0)
    assert back.brokers == c.brokers
    assert back.cluster_id == "c"
    assert back.topics["t"].topic_id == ID
    assert [(p.leader, p.leader_epoch) for p in back.topics["t"].partitions] == [(1, 3), (2, 3)]
