"""Test updates of the metadata snapshot, epochs, leader hints and bootstrap hints (R-MD-7)."""

import json
from collections.abc import Iterable

import pytest
from tests.unit.metadata.metadata_responses import GONE, ID, OTHER, answer, topic

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
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


def first(*leaders: int, epoch: int = 1) -> Cluster:
    """Return the snapshot of a client that knows the partitions of `t`."""
    return updated(None, answer(topic("t", list(leaders), epoch=epoch)), ["t"], {}, 5.0)


def test_the_first_snapshot_contains_brokers_and_leaders() -> None:
    c = first(1, 2)
    assert c.addresses() == [Address("b1", 9092), Address("b2", 9092)]
    assert (c.cluster_id, c.controller, c.updated_at) == ("c", 1, 5.0)
    leader = c.leader("t", 1)
    assert leader is not None
    assert leader.id == 2
    assert c.leader("t", 2) is None
    assert c.leader("u", 0) is None


def test_impossible_broker_addresses_are_rejected() -> None:
    for host in ("b", "b1.example.org", "::1", "fe80::1%eth0", "bröker"):
        assert is_possible(host, 9092)
        assert not is_possible(host, 0)
        assert not is_possible(host, 70000)
    for host in ("", "b 1", "b\r\nx: y", "b\0", "b\x7f"):
        assert not is_possible(host, 9092)


def test_a_response_replaces_the_brokers_and_keeps_topics_that_it_does_not_contain() -> None:
    both = answer(topic("t", [1]), topic("u", [2]))
    before = updated(None, both, ["t", "u"], {}, 0.0)
    after = updated(before, answer(topic("t", [1]), brokers=(1,)), ["t"], {}, 1.0)
    assert set(after.topics) == {"t", "u"}
    assert set(after.brokers) == {1}
    assert after.leader("u", 0) is None  # broker 2 isn't in the response
    assert set(before.brokers) == {1, 2}  # the old snapshot doesn't change


def test_a_topic_with_an_error_keeps_its_known_leaders_unless_it_was_deleted() -> None:
    before = first(1)
    assert not updated(before, answer(GONE), ["t"], {}, 1.0).topics
    assert not updated(before, answer(), ["t"], {}, 1.0).topics
    failing = MetadataResponseTopic(error_code=5, name="t")
    after = updated(before, answer(failing), ["t"], {}, 1.0)
    assert after.topics["t"].error == 5
    assert after.leader("t", 0) == before.leader("t", 0)
    moved = topic("t", [2], epoch=9)
    moved.error_code = 29  # a leader in a topic with an error is ignored
    assert updated(before, answer(moved), ["t"], {}, 1.0).leader("t", 0) == before.leader("t", 0)
    assert updated(None, answer(moved), ["t"], {}, 1.0).leader("t", 0) is None


AGAIN = "the client starts again"


@pytest.mark.parametrize(
    ("told", "leader"),
    [  # leader, epoch and id of each response
        pytest.param([(1, 10, ID), (2, 9, ID)], 1, id="MD-17: a lower epoch is ignored"),
        pytest.param([(1, 10, ID), (2, 9, ID), (2, 11, ID)], 2, id="a higher epoch is applied"),
        pytest.param([(1, 10, NO_ID), (2, 9, NO_ID)], 1, id="a lower epoch without ids"),
        pytest.param(
            [(1, 10, NO_ID), (2, 9, NO_ID), (2, 10, NO_ID)],
            2,
            id="an equal epoch without ids",
        ),
        pytest.param([(1, 10, ID), (2, 5, OTHER)], 2, id="MD-16: a recreated topic"),
        pytest.param([(1, 10, ID), (2, 9, NO_ID)], 1, id="a lower epoch from a broker without ids"),
        pytest.param(
            [(1, 10, ID), (2, 11, NO_ID), (1, 10, ID)],
            2,
            id="a higher one of such a broker",
        ),
        pytest.param(
            [(1, 10, ID), (2, 9, NO_ID), (2, 1, OTHER)],
            2,
            id="then another topic id",
        ),
        pytest.param([(1, 10, NO_ID), GONE, (2, 0, NO_ID)], 2, id="recreated without ids"),
        pytest.param([(1, 10, ID), GONE, (2, 9, ID)], -1, id="missing in one response"),
        pytest.param([(1, 10, ID), AGAIN, (2, 9, ID)], -1, id="a lower epoch after a rebootstrap"),
    ],
)
def test_a_leader_changes_only_with_a_newer_epoch_or_another_topic_id(
    told: list[tuple[int, int, bytes] | MetadataResponseTopic | str], leader: int
) -> None:
    epochs: Epochs = {}
    c: Cluster | None = None
    for one in told:
        if isinstance(one, str):
            c = None
        else:
            next_ = (
                topic("t", [one[0]], epoch=one[1], id_=one[2]) if isinstance(one, tuple) else one
            )
            c = updated(c, answer(next_), ["t"], epochs, 0.0)
    assert c is not None
    assert c.topics["t"].partitions[0].leader == leader
    assert c.topics["t"].leaderless == (leader < 0)


def test_partitions_with_and_without_a_leader_are_counted() -> None:
    epochs: Epochs = {}
    c = updated(None, answer(topic("t", [1, -1]), topic("u", [2])), ["t", "u"], epochs, 0.0)
    assert (c.led, c.leaderless) == (2, 1)
    c = updated(c, answer(topic("v", [-1, 1, 2])), ["v"], epochs, 1.0)
    assert (c.led, c.leaderless) == (4, 2)
    c = updated(c, answer(GONE), ["t"], epochs, 2.0)
    assert (c.led, c.leaderless) == (3, 1)
    c = with_leader(c, "v", 0, 1, 2, [])
    assert (c.led, c.leaderless) == (4, 0)
    c = updated(c, answer(topic("v", [-1], epoch=0)), ["v"], epochs, 3.0, keep={"v"})
    assert set(c.topics) == {"v"}
    assert (c.led, c.leaderless) == (1, 0)  # a lower epoch: the old leader is kept


OTHERS = answer(topic("t", [1]), topic("u", [2]), brokers=(1,))
OTHERS.topics[0].partitions[0].isr_nodes = [7]
OTHERS.controller_id = 7
ONE, BY_LEADER = answer(topic("t", [1])), answer(topic("t", [1], epoch=-1))


@pytest.mark.parametrize(
    ("before", "after", "asked", "progress"),
    [
        pytest.param(ONE, ONE, "t", False, id="the same response"),
        pytest.param(ONE, answer(topic("t", [1], epoch=2)), "t", True, id="a higher epoch"),
        pytest.param(ONE, answer(topic("t", [1], id_=OTHER)), "t", True, id="another id"),
        pytest.param(ONE, answer(topic("t", [1, 2])), "t", True, id="a new partition"),
        pytest.param(ONE, answer(GONE), "t", True, id="topic deleted"),
        pytest.param(ONE, OTHERS, "t", False, id="replicas, brokers, controller, other topics"),
        pytest.param(ONE, answer(topic("t", [2], epoch=0)), "t", False, id="a lower epoch"),
        pytest.param(BY_LEADER, BY_LEADER, "t", False, id="no epochs, the same leader"),
        pytest.param(BY_LEADER, answer(topic("t", [2], epoch=-1)), "t", True, id="another leader"),
        pytest.param(answer(), answer(brokers=(1, 2, 3)), "", True, id="no topics, other brokers"),
        pytest.param(answer(), answer(), "", False, id="no topics, the same brokers"),
    ],
)
def test_only_changes_of_requested_topics_or_their_leaders_count_as_progress(
    before: MetadataResponse, after: MetadataResponse, asked: Iterable[str], progress: bool
) -> None:
    epochs: Epochs = {}
    old = updated(None, before, asked, epochs, 0.0)
    assert brings_progress(old, updated(old, after, asked, epochs, 1.0), asked) == progress


def test_a_response_with_gaps_in_the_partition_numbers_is_accepted() -> None:
    holes = topic("t", [1, 2])
    holes.partitions[0].partition_index = 1
    holes.partitions[1].partition_index = 2**31 - 1
    c = updated(None, answer(holes), ["t"], {}, 0.0)
    assert c.partition("t", 0) is None
    assert c.partition("t", 1) is None
    assert len(c.topics["t"].partitions) == 2


def test_leader_hints_of_produce_and_fetch_responses_are_applied_if_newer() -> None:
    """KIP-951: a newer leader is applied with its address; other hints change nothing."""
    c, new = first(1, epoch=4), Broker(7, Address("b7", 1))
    hinted = with_leader(c, "t", 0, 7, 5, [new])
    assert hinted.leader("t", 0) == new
    assert hinted.brokers == {**c.brokers, 7: new}
    assert with_leader(c, "t", 0, 2, 4, []) is c  # the hint has an older epoch
    assert with_leader(c, "t", 0, 9, 5, []) is c  # the hint names an unknown broker
    assert with_leader(c, "u", 0, 2, 5, []) is c


def test_a_bootstrap_hint_can_be_encoded_as_json_and_decoded() -> None:
    c = first(1, 2, epoch=3)
    back = from_hint(json.loads(json.dumps(to_hint(c))), 9.0)
    assert back.brokers == c.brokers
    assert back.cluster_id == "c"
    assert back.topics["t"].topic_id == ID
    assert [(p.leader, p.leader_epoch) for p in back.topics["t"].partitions] == [(1, 3), (2, 3)]
