"""Errors of failed records say whether the record may have been written or was not sent."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek import Producer
from odradek.common.errors import (
    ClientClosedError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors import kafka as kafka_errors
from odradek.common.events import Event
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.runtime.hosts.record_future import RecordFuture

PERHAPS = "so it may have been written"
NEVER = r"1 record for t-0 (timed out after \d+ s \(delivery\.timeout\.ms\) and )?was not sent"
REFUSED = (
    r"1 record for t-0 timed out after 3 s \(delivery\.timeout\.ms\) and was refused \d+ times"
)


class Fate:
    """A connected producer of topic t, and a record that will fail."""

    def __init__(self, patch: pytest.MonkeyPatch, **config: object) -> None:
        self.patch = patch
        self.stage = Stage(brokers=1)
        config = {"linger_ms": 0, "delivery_timeout_ms": 3000, "request_timeout_ms": 1000, **config}
        self.producer: Producer = self.stage.producer(**config)
        self.producer.send("t", b"0", partition=0).result(10)

    def refuse(self, code: int) -> None:
        """Respond to each later Produce request with this error, without appending."""

        def spoil(answer: ProduceResponse) -> None:
            for topic in answer.responses:
                for partition in topic.partition_responses:
                    partition.error_code, partition.base_offset = code, -1

        spoil_answers(self.patch, ProduceRequest.API_KEY, spoil)

    def send(self) -> RecordFuture:
        return self.producer.send("t", b"1", partition=0)


def unreachable(fate: Fate) -> RecordFuture:
    fate.stage.cluster.kill(1)
    fate.stage.world.advance(0.5)
    return fate.send()


def unanswered(fate: Fate) -> RecordFuture:
    """Send a record and crash the broker when it receives the request."""
    future = fate.send()
    fate.stage.world.advance(0.001)
    fate.stage.cluster.kill(1)
    return future


def refused(fate: Fate) -> RecordFuture:
    fate.refuse(kafka_errors.NotEnoughReplicasError.code or 0)
    return fate.send()


def refused_after_the_append(fate: Fate) -> RecordFuture:
    fate.refuse(kafka_errors.NotEnoughReplicasAfterAppendError.code or 0)
    return fate.send()


@pytest.mark.parametrize(
    ("happens", "wanted"),
    [
        (unreachable, NEVER),
        (unanswered, rf"was sent once and not acknowledged, {PERHAPS}"),
        (refused, rf"{REFUSED} and not written"),
        (refused_after_the_append, rf"was sent \d+ times and not acknowledged, {PERHAPS}"),
    ],
)
def test_the_error_of_a_record_that_timed_out_says_whether_it_may_be_written(
    happens: Callable[[Fate], RecordFuture], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fate = Fate(monkeypatch)
    future = happens(fate)
    expired: list[str] = []

    def listen(event: Event) -> None:
        if event.kind == "expired":
            expired.append(event.fields["what"])

    fate.producer.listen(listen)
    with pytest.raises(KafkaError) as caught:
        future.result(30)
    assert re.search(wanted, str(caught.value)), caught.value
    assert ("not sent" in str(caught.value)) == (happens is unreachable)
    assert ("may have been written" in str(caught.value)) == (PERHAPS in wanted)
    (said,) = expired
    assert ("may have been written" in said) == (PERHAPS in wanted)


@pytest.mark.parametrize(
    ("happens", "wanted"),
    [
        (unreachable, f"{NEVER}: the client is closed"),
        (unanswered, f"1 record for t-0 was sent once and not acknowledged, {PERHAPS}: the client"),
        (refused_after_the_append, rf"was sent \d+ times and not acknowledged, {PERHAPS}: the cl"),
        (refused, r"1 record for t-0 was refused \d+ times and not written: the client is closed"),
    ],
)
def test_the_error_of_a_record_cancelled_by_close_says_whether_it_may_be_written(
    happens: Callable[[Fate], RecordFuture], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fate = Fate(monkeypatch, retry_backoff_max_ms=500)
    future = happens(fate)
    fate.stage.world.advance(0.3)
    with pytest.raises(
        KafkaTimeoutError, match="^timed out waiting for the acknowledgement of 1 record in 1 batch"
    ):
        fate.producer.close(0)
    with pytest.raises(ClientClosedError, match=wanted):
        future.result(0)


def test_the_error_of_a_record_without_retries_says_that_it_may_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fate = Fate(monkeypatch, retries=0, enable_idempotence=False)
    future = unanswered(fate)
    wanted = (
        "1 record for t-0 may have been written: an attempt wasn't acknowledged. It isn't sent "
        "again, as retries=0 allows no more attempts. The last attempt failed: the broker closed"
    )
    with pytest.raises(DisconnectedError) as caught:
        future.result(10)
    assert str(caught.value).startswith(wanted)


def test_the_error_of_a_record_of_an_unknown_topic_says_that_it_was_not_sent() -> None:
    stage = Stage(brokers=1)
    stage.cluster.kill(1)
    producer = stage.producer(max_block_ms=2000)
    future = producer.send("t", b"1")
    with pytest.raises(
        KafkaError,
        match="^1 record for topic t was not sent: timed out waiting for metadata of topic",
    ):
        future.result(10)
    other = producer.send("t", b"2")
    with pytest.raises(KafkaTimeoutError):
        producer.close(0)
    with pytest.raises(
        ClientClosedError, match="^1 record for topic t was not sent: the client is"
    ):
        other.result(0)
