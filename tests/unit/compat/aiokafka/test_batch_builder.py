"""Test that aiokafka's class for building batches accepts the same records here."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder as Theirs

from odradek.compat.aiokafka.producer.message_accumulator import BatchBuilder


def filled(kind: Any, seed: int, limit: int) -> list[object]:
    rng, batch, said = Random(seed), kind(limit, 0), list[object]()
    for _ in range(200):
        key = None if rng.random() < 0.3 else rng.randbytes(rng.choice((0, 5, 70)))
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 30, 9000)))
        headers = [("name", b"x"), ("größe", None)] if rng.random() < 0.3 else []
        at = 1_700_000_000_000 + rng.randrange(-(1 << 20), 1 << 20)
        made = batch.append(timestamp=at, key=key, value=value, headers=headers)
        said.append(None if made is None else (made.offset, made.size, made.timestamp))
        said.append((batch.size(), batch.record_count(), batch.closed()))
    return said


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("limit", [1, 1000, 16384, 1 << 20])
def test_a_batch_accepts_the_same_records_as_in_aiokafka(seed: int, limit: int) -> None:
    assert filled(BatchBuilder, seed, limit) == filled(Theirs, seed, limit)


def test_the_serializers_convert_the_key_and_value_of_a_record() -> None:
    batch = BatchBuilder(1000, key_serializer=str.encode, value_serializer=lambda v: v * 2)
    assert batch.append(timestamp=None, key="k", value=b"v") is not None
    [record] = batch.records
    assert (record.key, record.value) == (b"k", b"vv")


@pytest.mark.parametrize("wrong", [{"key": "k"}, {"value": 1}, {"timestamp": "now"}])
@pytest.mark.parametrize("kind", [BatchBuilder, Theirs])
def test_a_key_value_or_timestamp_of_a_wrong_type_is_rejected(
    kind: Any, wrong: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        kind(1000, 0).append(**{"timestamp": 1, "key": b"k", "value": b"v", **wrong})


@pytest.mark.parametrize("kind", [BatchBuilder, Theirs])
def test_a_closed_batch_accepts_no_records(kind: Any) -> None:
    batch = kind(1000, 0)
    batch.close()
    batch.close()
    assert batch.append(timestamp=1, key=None, value=b"v", headers=None) is None
    assert batch.closed()
