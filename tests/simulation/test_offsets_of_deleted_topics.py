"""A simulated coordinator, like Kafka 4.4, stores offsets of a topic that was just deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.transactional import P0, Scene

from odradek.simulation.brokers.broker_faults import recreate_topic


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_recreated_topic_is_read_from_its_beginning(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset is stored with the topic id of the commit, and not returned for the new topic.

    A broker looks up the id when TxnOffsetCommit arrives and then asks the transaction's
    coordinator.
    """
    scene = Scene(2)
    producer = scene.producer()
    producer.partitions_for("t")
    verify: Any = scene.cluster.transactions.may_write
    deleted: list[str] = []

    def may_write(*arguments: Any, **named: Any) -> None:
        def verified(refusal: Any) -> None:
            if refusal is None and not deleted:
                deleted.append("t")
                recreate_topic(scene.cluster, "t", after=1.0)
            answer(refusal)

        answer: Callable[[Any], None] = arguments[4]
        verify(*arguments[:4], verified, **named)

    monkeypatch.setattr(scene.cluster.transactions, "may_write", may_write)
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 5}, "g")
    scene.world.advance(2.0)
    scene.write(range(24))  # 8 in each partition
    with scene.consumer(group_id="g", group_protocol=protocol) as reader:
        reader.subscribe(["t"])
        offsets: list[int] = []
        end = scene.world.now + 20.0
        while len(offsets) < 8 and scene.world.now < end:
            offsets += [r.offset for r in reader.poll(0.5) if r.partition == 0]
    assert deleted
    assert offsets == list(range(8))
