"""The JSON of stream offsets, which Spark stores in checkpoints and compares as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.driver.offsets import SENTINEL, StreamOffset, parse_offset

TP = TopicPartition

partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 12))
positions = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=12)


def test_offset_json_has_the_documented_form() -> None:
    offset = StreamOffset(
        {TP("b", 0): 3, TP("a", 10): 2, TP("a", 9): 1},
        "c-id",
        {"b": "u2", "a": "u1"},
        {TP("b", 0): 0},
        {TP("b", 0): 7},
    )
    assert json.dumps(offset.to_json(), separators=(",", ":")) == (
        '{"v":1,"cluster":"c-id","o":{"a":{"9":1,"10":2},"b":{"0":3}},'
        '"id":{"a":"u1","b":"u2"},"epoch":{"b":{"0":7}},"from":{"b":{"0":0}}}'
    )


def test_unknown_leader_epochs_and_starts_are_omitted_from_the_json() -> None:
    """Without leader epochs, the text must be the same as in earlier releases."""
    assert set(StreamOffset({TP("a", 0): 1}, "c").to_json()) == {"v", "cluster", "o", "id"}


@given(positions, positions, st.data(), st.dictionaries(st.text(max_size=5), st.uuids().map(str)))
def test_offsets_are_unchanged_after_a_round_trip_through_json(
    o: dict[TopicPartition, int],
    begins: dict[TopicPartition, int],
    data: st.DataObject,
    ids: dict[str, str],
) -> None:
    epochs = {tp: data.draw(st.integers(0, 2**31 - 1)) for tp in o if data.draw(st.booleans())}
    offset = StreamOffset(o, "c", ids, begins, epochs)
    assert parse_offset(json.loads(json.dumps(offset.to_json()))) == offset


@given(st.permutations([TP("a", 2), TP("a", 10), TP("b", 0), TP("B", 1)]))
def test_equal_offsets_have_equal_json(order: list[TopicPartition]) -> None:
    texts = {
        json.dumps(StreamOffset(dict.fromkeys(tps, 5), "c").to_json())
        for tps in (order, sorted(order))
    }
    assert len(texts) == 1


def test_the_offset_of_a_query_without_a_checkpoint_is_parsed_as_none() -> None:
    assert parse_offset(json.loads(json.dumps(SENTINEL))) is None


def test_plain_json_of_the_jvm_connector_is_accepted() -> None:
    found = parse_offset({"t": {"0": 5, "1": 7}, "v": {"0": 1}})
    assert found is not None
    assert found.positions == {TP("t", 0): 5, TP("t", 1): 7, TP("v", 0): 1}
    assert found.cluster is None


@pytest.mark.parametrize(
    "document",
    [
        *(5, {"t": {"0": -1}}, {"t": 3}, {"v": 2}, {"v": 1}, {"t": {"٣": 1}}, {"t": {"00": 1}}),
        *({"t": {"0": 2**63}}, {"v": 1, "o": {"t": {"0": 1}}, "epoch": {"u": {"0": 1}}}),
        {"v": 1, "o": {"t": {"0": 1}}, "epoch": {"t": {"0": 2**31}}},
        *({"v": 1, "o": {"t": {"0": 1}}, "id": ids} for ids in (["a"], 5, {"t": "x"}, {"t": 5})),
    ],
)
def test_invalid_offset_json_is_rejected(document: Any) -> None:
    with pytest.raises(OptionError):
        parse_offset(document)
