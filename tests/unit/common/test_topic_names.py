"""Test valid topic names, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from odradek import Admin, NewTopic, Producer
from odradek.common.topic_names import LONGEST, check_sendable, check_topic, is_topic_name
from odradek.errors import InvalidTopicExceptionError
from odradek.testing import FakeCluster

GOOD = ("a", "A.b_c-9", "...", "-", "x" * LONGEST)
UNSENDABLE = ("", "\ud800", "x" * (LONGEST + 1))
BAD = (".", "..", "a b", " a", "a\n", "ä", "a/b", "a,b")


@pytest.mark.parametrize("name", GOOD)
def test_valid_topic_names_are_accepted(name: str) -> None:
    check_topic(name)
    assert is_topic_name(name)


@pytest.mark.parametrize("name", UNSENDABLE + BAD)
def test_the_error_of_an_invalid_name_contains_the_rule(name: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(
        InvalidTopicExceptionError, match="isn't a valid topic name: a topic name has 1 to"
    ):
        check_topic(name)


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_topic_name_that_can_be_encoded_may_be_sent_to_the_broker(name: str) -> None:
    check_sendable(name)


@pytest.mark.parametrize("name", UNSENDABLE)
def test_the_error_of_a_name_that_cannot_be_encoded_contains_the_rule(name: str) -> None:
    with pytest.raises(
        InvalidTopicExceptionError, match="isn't a valid topic name: a topic name has 1 to"
    ):
        check_sendable(name)


@pytest.mark.slow
def test_an_invalid_name_does_not_affect_other_topics_of_a_call() -> None:
    with FakeCluster(1) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(InvalidTopicExceptionError):
            admin.create_topics([NewTopic("good", 1, 1), NewTopic("a b", 1, 1)])
        assert "good" in admin.list_topics()


@pytest.mark.slow
def test_a_producer_rejects_an_invalid_topic_name_and_can_send_other_records() -> None:
    with (
        FakeCluster(1, topics=["t"]) as cluster,
        Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer,
    ):
        with pytest.raises(InvalidTopicExceptionError):
            producer.send("a b", b"-").result(5.0)
        assert producer.send("t", b"-").result(5.0).offset == 0
