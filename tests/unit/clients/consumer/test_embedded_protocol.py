"""Test the encoding of subscriptions and assignments: all versions, malformed bytes."""

from __future__ import annotations

import pytest

from odradek.clients.consumer.group.assignors import MemberSubscription
from odradek.clients.consumer.group.embedded_protocol import (
    MemberAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.common.errors import MalformedMessageError
from odradek.common.types import TopicPartition

ALL = MemberSubscription(
    topics=("orders", "users"),
    owned=(TopicPartition("orders", 0), TopicPartition("orders", 3), TopicPartition("users", 1)),
    generation=7,
    rack="r1",
    user_data=b"said",
)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, MemberSubscription(ALL.topics, user_data=b"said")),
        (1, MemberSubscription(ALL.topics, ALL.owned, user_data=b"said")),
        (2, MemberSubscription(ALL.topics, ALL.owned, 7, user_data=b"said")),
        (3, ALL),
    ],
)
def test_each_subscription_version_contains_exactly_its_fields(
    version: int, expected: MemberSubscription
) -> None:
    assert decode_subscription(encode_subscription(ALL, version)) == expected


def test_unknown_newer_versions_are_decoded_as_the_newest_known_version() -> None:
    newer = b"\x00\x09" + encode_subscription(ALL)[2:] + b"more"
    assert decode_subscription(newer) == ALL
    given = b"\x00\x09" + encode_assignment(ALL.owned, b"x")[2:] + b"more"
    assert decode_assignment(given) == MemberAssignment(ALL.owned, b"x")


def test_a_subscription_may_lack_the_fields_that_its_version_added() -> None:
    assert decode_subscription(b"\x00\x03" + encode_subscription(ALL, 0)[2:]) == (
        MemberSubscription(ALL.topics, user_data=b"said")
    )


def test_empty_bytes_decode_as_an_empty_assignment() -> None:
    assert decode_assignment(b"") == MemberAssignment()


def test_a_decoded_subscription_has_the_given_instance_id() -> None:
    assert decode_subscription(encode_subscription(ALL), "i1").instance_id == "i1"


def test_every_truncated_subscription_is_rejected_or_read_as_an_older_version() -> None:
    written = encode_subscription(ALL)
    whole = [len(encode_subscription(ALL, version)) for version in range(4)]
    for size in range(len(written)):
        if size in whole:
            continue
        with pytest.raises(MalformedMessageError, match="the subscription of a member"):
            decode_subscription(written[:size])
    with pytest.raises(MalformedMessageError, match="unsupported version -1"):
        decode_subscription(b"\xff\xff" + written[2:])
    with pytest.raises(MalformedMessageError, match="assignment"):
        decode_assignment(b"\x00\x03\x7f\xff\xff\xff")


def test_the_error_names_the_member_with_a_malformed_subscription() -> None:
    odd = b"\x00\x01\x7f\xff\xff\xff"
    with pytest.raises(
        MalformedMessageError, match=r"of member app-1 \(group.instance.id i\\x1b\)"
    ):
        decode_subscription(odd, "i\x1b", "app-1")
