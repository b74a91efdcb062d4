"""Test which of two ids of a topic a client accepts (R-ID-3)."""

from __future__ import annotations

import pytest
from tests.unit.metadata.metadata_responses import GONE, ID, OTHER, Known, answer, topic

from odradek.common.types import Address
from odradek.metadata.cluster import NO_ID
from odradek.metadata.topic_ids import FORMER

B1, B2, B3, FRONT = (Address(name, 9092) for name in ("b1", "b2", "b3", "front"))
NEWER = b"n" * 16


class Named(Known):
    """Metadata of a topic in a cluster of three brokers."""

    def __init__(self, at: Address = B1, id_: bytes = ID) -> None:
        super().__init__()
        self.brokers: tuple[int, ...] = (1, 2, 3)
        self.respond(0.0, at, id_)

    def respond(self, now: float, at: Address, id_: bytes) -> bytes | None:
        """Apply a response from an address and return the topic's id in the snapshot."""
        self.refresh(now, answer(topic("t", [1], id_=id_), brokers=self.brokers), at)
        return self.topic_id

    @property
    def topic_id(self) -> bytes | None:
        assert self.snapshot is not None
        found = self.snapshot.topics.get("t")
        return None if found is None else found.topic_id


def test_a_new_id_is_accepted_at_once_from_the_broker_that_named_the_former_id() -> None:
    metadata = Named()
    assert metadata.respond(1.0, B1, OTHER) == OTHER
    assert not metadata.requested


def test_the_id_of_a_deleted_topic_from_a_lagging_broker_is_not_accepted() -> None:
    metadata = Named()
    metadata.respond(1.0, B1, OTHER)
    for now in range(2, 60):  # only one of three brokers names the old id
        assert metadata.respond(float(now), B2, ID) == OTHER
        assert metadata.requested
    assert metadata.respond(60.0, B3, OTHER) == OTHER
    assert not metadata.requested
    assert not metadata.ids.undecided


def test_a_new_client_does_not_accept_the_id_of_a_topic_deleted_before_its_start() -> None:
    """No broker has named both ids, so the client keeps requesting until one changes its answer."""
    metadata = Named(B1, OTHER)
    assert metadata.respond(1.0, B2, ID) == OTHER
    assert metadata.requested
    assert metadata.respond(1.1, B1, OTHER) == OTHER
    assert metadata.requested
    assert metadata.respond(1.2, B2, OTHER) == OTHER
    assert not metadata.requested


def test_a_new_topic_id_is_accepted_when_the_broker_that_sent_the_former_id_sends_it() -> None:
    metadata = Named()
    assert metadata.respond(1.0, B2, OTHER) == ID
    assert [metadata.ids.asks_later(at) for at in (B1, B2, B3)] == [False, True, True]
    assert metadata.respond(1.1, B1, OTHER) == OTHER
    assert not metadata.ids.asks_later(B3)


def test_brokers_that_answered_for_all_topics_count_as_having_named_the_id() -> None:
    metadata = Named()
    metadata.respond(1.0, B2, ID)
    assert metadata.respond(2.0, B2, OTHER) == OTHER


def test_a_topic_id_in_a_partial_response_counts_as_named_only_by_that_broker() -> None:
    metadata = Named()
    metadata.respond(0.5, B2, ID)
    metadata.want(["u"])
    topics, partial = metadata.next_topics()
    assert (topics, partial) == (["u"], True)
    serial = metadata.sent(topics)
    metadata.apply(
        answer(topic("u", [1]), brokers=(1, 2, 3)),
        *(topics, 1.0),
        partial=True,
        fresh=False,
        serial=serial,
        at=B3,
    )
    for at, accepted in ((B2, False), (B3, True)):
        both = topic("t", [1]), topic("u", [1], id_=OTHER)
        metadata.refresh(2.0, answer(*both, brokers=(1, 2, 3)), at)
        assert metadata.snapshot is not None
        assert (metadata.snapshot.topics["u"].topic_id == OTHER) is accepted


def test_an_id_that_all_brokers_name_is_accepted_if_no_broker_named_the_former_id() -> None:
    """The first response may come from a load balancer, that is, from an unknown broker."""
    metadata = Named(FRONT)
    assert [metadata.respond(1.0, at, OTHER) for at in (B1, B2, B3)] == [ID, ID, OTHER]


def test_an_older_id_is_accepted_after_ten_seconds_from_most_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The cluster may have been restored from a backup."""
    metadata = Named()
    metadata.respond(1.0, B1, OTHER)
    found = [metadata.respond(now, (B2, B3)[now % 2], ID) for now in range(2, 14)]
    assert found == [OTHER] * 10 + [ID] * 2
    assert "most brokers still report the topic id" in caplog.text


def test_the_id_that_most_brokers_name_replaces_the_id_of_a_cut_off_broker() -> None:
    """The first response came from a broker that still names a deleted topic."""
    metadata = Named()
    at = (B2, B1, B3)
    found = [metadata.respond(n, at[n % 3], ID if n % 3 == 1 else OTHER) for n in range(15)]
    assert found.index(OTHER) <= 12
    assert found[-1] == OTHER


def test_an_id_is_accepted_after_ten_seconds_if_brokers_cannot_be_distinguished() -> None:
    metadata = Named(FRONT)
    metadata.brokers = ()
    one = topic("t", [1], id_=OTHER)
    for now in range(1, 13):
        response = answer(one, brokers=(1, 1))
        metadata.refresh(now, response, B1)
    assert metadata.topic_id == OTHER


def test_if_only_bootstrap_addresses_answer_an_older_id_is_accepted_after_ten_seconds() -> None:
    metadata = Named()
    assert metadata.respond(1.0, B1, OTHER) == OTHER
    assert [metadata.respond(2.0 + now, FRONT, ID) for now in range(10)] == [OTHER] * 10
    assert metadata.respond(12.0, FRONT, ID) == ID
    assert not metadata.requested


def test_a_lagging_broker_does_not_restore_a_topic_that_was_reported_missing() -> None:
    metadata = Named()
    metadata.respond(1.0, B1, OTHER)
    metadata.refresh(2.0, answer(GONE, brokers=(1, 2, 3)), B3)
    assert metadata.topic_id is None
    assert metadata.respond(3.0, B2, ID) is None
    assert metadata.respond(4.0, B1, NEWER) == NEWER


def test_a_response_without_topic_ids_does_not_reset_the_known_ids() -> None:
    metadata = Named()
    metadata.respond(1.0, B1, OTHER)
    metadata.respond(2.0, B2, NO_ID)
    assert metadata.respond(3.0, B3, ID) == NO_ID
    assert metadata.respond(4.0, B1, OTHER) == OTHER


def test_the_known_topic_ids_remain_after_a_rebootstrap() -> None:
    metadata = Named()
    metadata.respond(1.0, B1, OTHER)
    metadata.forget()
    assert metadata.respond(2.0, B2, ID) is None
    assert metadata.respond(2.1, B1, OTHER) == OTHER


def test_the_ids_of_unused_topics_are_deleted() -> None:
    metadata = Named()
    metadata.respond(1.0, B2, OTHER)
    metadata.forget_topics(["t"])
    metadata.refresh(2.0, answer(brokers=(1, 2, 3)), B1)
    assert not metadata.ids.undecided
    assert not metadata.ids._histories


def test_the_memory_for_brokers_and_their_reported_ids_is_limited() -> None:
    metadata = Named()
    for now in range(1, 200):
        metadata.brokers = (now, now + 1, now + 2)
        metadata.respond(float(now), Address(f"b{now}", 9092), OTHER if now % 2 else ID)
    kept = metadata.ids._histories["t"]
    ids = metadata.ids
    sizes = [len(each) for each in (ids._asked, ids._peers, kept.others, kept.confirmed)]
    assert max(sizes) <= 4 + FORMER + 1


def test_a_response_that_lists_few_brokers_does_not_delete_ids_that_others_reported() -> None:
    metadata, brokers = Named(), tuple(range(1, 41))
    places = {broker: Address(f"b{broker}", 9092) for broker in brokers}
    metadata.brokers = brokers
    for broker, at in places.items():
        metadata.respond(broker / 100, at, ID)
    metadata.brokers = (1, 2, 3)
    metadata.respond(1.0, B1, ID)
    metadata.brokers = brokers
    assert metadata.respond(2.0, places[30], OTHER) == OTHER


def test_a_lagging_broker_that_lists_only_itself_does_not_decide_alone() -> None:
    """The lagging broker was cut off before the other brokers were added or had started."""
    metadata = Named(B2, OTHER)
    metadata.brokers = (1,)
    assert metadata.respond(1.0, B1, ID) == OTHER
    assert metadata.respond(2.0, B1, ID) == OTHER
    metadata.brokers = (1, 2, 3)
    assert metadata.respond(3.0, B2, OTHER) == OTHER
    assert metadata.respond(3.1, B3, OTHER) == OTHER


def test_the_only_remaining_broker_decides_after_ten_seconds() -> None:
    metadata = Named(B2, OTHER)
    metadata.brokers = (1,)
    found = [metadata.respond(float(now), B1, ID) for now in range(1, 13)]
    assert found == [OTHER] * 10 + [ID] * 2
