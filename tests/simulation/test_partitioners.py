"""The option `partitioner` of the producer: `send` and `send_arrow` agree."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.produce_script import make

from odradek.clients.producer.partition_rules import rule_for
from odradek.common.config import PARTITIONERS
from odradek.common.errors import PartitionerError
from odradek.record import partition_for_key
from odradek.simulation import SimulatedCluster

PARTITIONS = 5
KEYS = [None if n % 8 == 3 else b"" if n % 8 == 5 else b"key %d" % n for n in range(80)]


def by_value(topic: str, _: bytes | None, value: bytes | None, count: int) -> int:
    return (len(topic) + int(value or b"")) % count


def places(cluster: SimulatedCluster) -> dict[int, int]:
    """Return the partition of each number."""
    return {
        int(bytes(row[4] or b"")): partition
        for partition in range(PARTITIONS)
        for row in cluster.records("t", partition)
    }


@pytest.mark.parametrize("arrow", [False, True], ids=["send", "send_arrow"])
@pytest.mark.parametrize(
    "partitioner", [*PARTITIONERS, by_value], ids=lambda p: p if isinstance(p, str) else p.__name__
)
def test_each_record_is_written_to_the_partition_that_the_partitioner_returns(
    partitioner: Any, arrow: bool
) -> None:
    """If the function returns None, the sticky partitioner chooses another one for each batch."""
    _, cluster, producer = make(
        5, partitions=PARTITIONS, partitioner=partitioner, batch_size=100, linger_ms=100
    )
    values = [b"%020d" % n for n in range(len(KEYS))]
    given = [4 if n % 9 == 0 else None for n in range(len(KEYS))]
    if arrow:
        producer.send_arrow("t", pa.table({"key": KEYS, "value": values, "partition": given}))
    else:
        for key, value, partition in zip(KEYS, values, given, strict=True):
            producer.send("t", value, key, partition=partition)
    producer.flush()
    found = places(cluster)
    assert len(found) == len(KEYS)
    rule = rule_for(partitioner)
    spread = set()
    for n, key in enumerate(KEYS):
        expected = given[n]
        if expected is None and rule is not None:
            expected = rule("t", key, values[n], PARTITIONS)
        elif expected is None and key is not None and partitioner != "random":
            expected = partition_for_key(key, PARTITIONS)
        if expected is None:
            spread.add(found[n])
        else:
            assert found[n] == expected, (n, key)
    keyless = partitioner in ("default", "random") or str(partitioner).endswith("_random")
    assert (len(spread) >= 2) == keyless


def test_a_failing_partitioner_only_affects_its_record() -> None:
    def by_number(_: str, __: bytes | None, value: bytes | None, count: int) -> int:
        number = int(value or b"")
        return 10 // number if number < 3 else number

    _, cluster, producer = make(6, partitions=PARTITIONS, partitioner=by_number)
    producer.send("t", b"4")
    with pytest.raises(PartitionerError, match="by_number raised ZeroDivisionError") as failed:
        producer.send("t", b"0")
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    with pytest.raises(
        PartitionerError, match="by_number returned 5 .* 0 to 4; nothing was written"
    ):
        producer.send("t", b"5")
    assert (
        producer.send("t", b"0", partition=1).result(timeout=5).partition == 1
    )  # the partitioner isn't called
    producer.flush()
    assert places(cluster) == {4: 4, 0: 1}


def test_an_arrow_batch_is_not_written_if_the_partitioner_fails_for_a_row() -> None:
    _, cluster, producer = make(7, partitions=PARTITIONS, partitioner=by_value_below_four)
    table = pa.concat_tables([pa.table({"value": [b"0", b"1"]}), pa.table({"value": [b"3", b"9"]})])
    with pytest.raises(
        PartitionerError, match="row 3: .* returned 9 for a record of topic t"
    ) as failed:
        producer.send_arrow("t", table)
    assert failed.value.row == 3
    (note,) = failed.value.__notes__
    assert note.startswith("The first 2 rows are still sent, unless the producer is closed first")
    producer.flush()
    assert places(cluster) == {0: 0, 1: 1}
    assert producer.send("t", b"2").result(timeout=5).partition == 2


def by_value_below_four(_: str, __: bytes | None, value: bytes | None, ___: int) -> int:
    return int(value or b"")
