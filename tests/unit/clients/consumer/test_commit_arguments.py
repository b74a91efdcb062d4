"""Test the arguments of `commit`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from odradek.clients.consumer.group.commit_arguments import offsets_to_commit
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.errors import ConfigurationError
from odradek.common.errors.kafka import InvalidTopicExceptionError
from odradek.common.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def record(tp: TopicPartition, offset: int, epoch: int = 3) -> ConsumerRecord:
    return ConsumerRecord(*tp, offset, 0, 0, None, None, (), epoch)


def test_offsets_by_partition_are_committed_as_given() -> None:
    given = {T0: 5, T1: OffsetAndMetadata(6, "m", 2)}
    assert offsets_to_commit(given) == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6, "m", 2)}


def test_a_commit_of_records_commits_the_offset_after_the_last_record_of_each_partition() -> None:
    assert offsets_to_commit(record(T0, 7)) == {T0: OffsetAndMetadata(8, "", 3)}
    some = [record(T0, 7), record(U0, 1, 9), record(T0, 9, 4), record(T0, 8)]
    behind = {T0: OffsetAndMetadata(10, "", 4), U0: OffsetAndMetadata(2, "", 9)}
    assert offsets_to_commit(some) == offsets_to_commit(iter(some)) == behind
    assert offsets_to_commit([]) == {}


def test_a_commit_of_arrow_rows_commits_the_offset_after_the_last_row_of_each_partition() -> None:
    rows = {"topic": ["t", "u", "t", "t"], "partition": [0, 0, 1, 0], "offset": [3, 5, 7, 9]}
    behind = {T0: OffsetAndMetadata(10), U0: OffsetAndMetadata(6), T1: OffsetAndMetadata(8)}
    table = pa.table(rows)
    assert offsets_to_commit(table) == behind
    assert offsets_to_commit(table.to_batches()[0]) == behind
    assert offsets_to_commit(table.slice(0, 0)) == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (7, "not int"),
        ("t", "not str"),
        ([T0], "not list"),
        ({T0: "5"}, "must be a number or OffsetAndMetadata, not '5'"),
        ({T0: True}, "not True"),
        ({T0: -1}, "0 or more, not -1"),
        ({TopicPartition("t", -1): 1}, "isn't a valid partition"),
        (pa.table({"offset": [1]}), "has no topic and no partition: add them to columns="),
    ],
)
def test_invalid_arguments_of_commit_are_rejected(given: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        offsets_to_commit(given)


def test_an_invalid_topic_name_is_rejected() -> None:
    with pytest.raises(InvalidTopicExceptionError):
        offsets_to_commit({TopicPartition("t" * 250, 0): 1})
