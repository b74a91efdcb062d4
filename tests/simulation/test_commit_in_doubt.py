"""The response to a commit of a transaction is lost, and the coordinator refuses the retry.

The outcome is unknown, so no error may say that the transaction was aborted: the caller
would repeat its work, which would then be duplicated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.transactional import PROTOCOLS, Scene, send

from odradek.common.errors import AbortableTransactionError, FatalTransactionError
from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.simulation.brokers.broker_handlers import BY_KEY

DOUBT = "may have been committed: check the output"
FIRST = pytest.mark.parametrize("first", ["lost", "not replicated", "moved", "loading"])
"""Answers to the first EndTxn, which has an effect except with COORDINATOR_LOAD_IN_PROGRESS."""
CODES = {"not replicated": 15, "moved": 16, "loading": 14}


def first_end(
    scene: Scene, patch: pytest.MonkeyPatch, first: str, then: Callable[[], object]
) -> None:
    """Handle the first EndTxn (unless its coordinator is loading) and respond with this code."""
    work = BY_KEY[EndTxnRequest.API_KEY]
    seen: list[EndTxnRequest] = []

    def handler(
        broker: Any, body: Any, version: int, reply: Callable[[Message | None], None]
    ) -> Message | None:
        seen.append(body)
        if len(seen) > 1:
            if len(seen) == 2:
                then()
            return work(broker, body, version, reply)
        if first != "loading":
            work(broker, body, version, lambda _: None)
        if first == "lost":
            scene.world.after(0.2, lambda: scene.cluster.crash(broker.id))
        else:  # 0.2 s are enough to write the markers
            scene.world.after(0.2, lambda: reply(EndTxnResponse(error_code=CODES[first])))
        return None

    patch.setitem(BY_KEY, EndTxnRequest.API_KEY, handler)


def forget(scene: Scene) -> None:
    """Remove the transactional id, as after an unclean election or its expiration."""
    for shard in scene.cluster.transactions.shards():
        shard.known.pop("x", None)


def take_over(scene: Scene) -> None:
    """Raise the epoch of the transactional id, like init_transactions() of another producer."""
    for shard in scene.cluster.transactions.shards():
        if (found := shard.known.get("x")) is not None:
            shard.known["x"] = replace(found, epoch=found.epoch + 2)


@PROTOCOLS
@FIRST
def test_a_commit_with_unknown_outcome_is_fatal_if_the_coordinator_forgot_the_id(
    version: int, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(version)
    producer = scene.producer()
    first_end(scene, monkeypatch, first, lambda: forget(scene))
    producer.begin_transaction()
    send(producer, range(3))
    with pytest.raises(errors.InvalidProducerIdMappingError) as caught:
        producer.commit_transaction()
    if first == "loading":
        assert isinstance(caught.value, AbortableTransactionError)
        assert DOUBT not in str(caught.value)
        producer.abort_transaction()
        with producer.transaction():
            send(producer, range(3, 6))
        return
    assert isinstance(caught.value, FatalTransactionError)
    assert DOUBT in str(caught.value)
    with pytest.raises(FatalTransactionError, match=DOUBT):
        producer.abort_transaction()
    assert scene.visible() == [0, 1, 2]  # the first EndTxn committed the records


@PROTOCOLS
@FIRST
def test_the_error_of_a_fenced_commit_says_that_it_may_have_been_committed(
    version: int, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(version)
    producer = scene.producer()
    first_end(scene, monkeypatch, first, lambda: take_over(scene))
    producer.begin_transaction()
    send(producer, range(3))
    with pytest.raises(errors.ProducerFencedError) as caught:
        producer.commit_transaction()
    assert isinstance(caught.value, FatalTransactionError)
    assert (DOUBT in str(caught.value)) is (first != "loading")
    assert scene.visible() == ([0, 1, 2] if first != "loading" else [])
