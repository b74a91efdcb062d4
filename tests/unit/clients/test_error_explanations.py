"""Test the explanations and remedies that are added to brokers' error codes."""

from __future__ import annotations

import re

import pytest
from tests.simulation.group_scene import PARTITIONS
from tests.simulation.transactional import Scene

from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.error_explanations import of_batch, of_offset, of_producer_id, with_cure
from odradek.clients.explain.causes import cure_of
from odradek.common.config import Config
from odradek.common.errors import BrokerError
from odradek.common.errors.kafka import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidProducerEpochError,
    InvalidRegularExpressionError,
    InvalidSessionTimeoutError,
    InvalidTransactionTimeoutError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    error_for,
)

LISTS = "odradek groups members 'a group' --bootstrap-server h:1,i:2"


def test_the_error_for_a_too_long_transaction_timeout_names_both_options() -> None:
    with pytest.raises(InvalidTransactionTimeoutError) as caught:
        Scene(2).producer(transaction_timeout_ms=3_600_000)
    assert "transaction.timeout.ms=3600000 exceeds" in str(caught.value)
    assert "transaction.max.timeout.ms" in str(caught.value)
    assert of_producer_id(1, "x", 5) == "x"


def test_the_error_for_offsets_of_a_former_member_recommends_an_abort() -> None:
    with Scene(2).producer() as producer:
        producer.begin_transaction()
        member = ConsumerGroupMetadata("g", 1, "gone")
        says = r"member 'gone' of generation 1 isn't in group 'g'.*Abort the transaction"
        with pytest.raises(IllegalGenerationError, match=says):
            producer.send_offsets_to_transaction({PARTITIONS[0]: 1}, member)
        producer.abort_transaction()
    assert re.search(says, of_offset(UnknownMemberIdError.code or 0, "t-0", None, member))


def test_the_error_for_too_large_offset_metadata_names_its_size_and_the_brokers_option() -> None:
    code = OffsetMetadataTooLargeError.code or 0
    said = of_offset(code, "t-0", OffsetAndMetadata(1, "é" * 3000))
    assert "of 6000 bytes exceeds" in said
    assert "offset.metadata.max.bytes" in said
    assert of_offset(code, "t-0", None) == of_offset(3, "t-0", OffsetAndMetadata(1)) == "t-0"


def test_the_error_for_an_old_producer_epoch_names_the_cause_and_recommends_an_abort() -> None:
    code = InvalidProducerEpochError.code or 0
    assert "took over transactional.id 'x'" in of_batch(code, "t-0", "x")
    assert "abort_transaction()" in of_batch(code, "t-0", "x")
    assert of_batch(code, "t-0", None) == of_batch(3, "t-0", "x") == "t-0"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (GroupMaxSizeReachedError, rf"group\.max\.size.*{LISTS}"),
        (InconsistentGroupProtocolError, rf"another group\.protocol.*{LISTS}"),
        (FencedInstanceIdError, rf"'a group' with the same group\.instance\.id 'i'.*{LISTS}"),
        (UnreleasedInstanceIdError, rf"'i' \(group\.instance\.id\) in group 'a group'.*{LISTS}"),
        (InvalidSessionTimeoutError, r"session\.timeout\.ms=45000.*group\.min\.session\.timeout"),
        (UnsupportedAssignorError, r"group\.remote\.assignor=odd.*group\.consumer\.assignors"),
        (InvalidRegularExpressionError, r"RE2, which has no lookahead"),
    ],
)
def test_the_error_of_a_rejected_member_names_the_settings_to_check(
    kind: type[BrokerError], says: str
) -> None:
    config = Config(
        "consumer",
        {
            "bootstrap.servers": "h:1,i:2",
            "group.id": "a group",
            "group.instance.id": "i",
            "group.remote.assignor": "odd",
            "group.protocol": "consumer",
        },
    )
    found = with_cure(error_for(kind.code or 0), config)
    assert type(found) is kind
    assert re.search(says, str(found))
    assert ".." not in str(found)
    own = kind("this client's own words")
    assert with_cure(own, config) is own
    assert with_cure(found, config) is found
    assert (cure_of(found) or "-") in str(found)
