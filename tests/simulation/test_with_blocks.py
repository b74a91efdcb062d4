"""A `with` block that ends with an error raises it soon, with a note about close()."""

from __future__ import annotations

import pytest
from tests.simulation.scene import Stage

from odradek.common.errors import ClientClosedError, KafkaTimeoutError


class MineError(Exception):
    """The error that ends the `with` block."""


@pytest.fixture
def stage() -> Stage:
    """Create a cluster that can't be reached."""
    made = Stage(brokers=1)
    made.cluster.kill(1)
    return made


@pytest.mark.parametrize("error", [MineError("mine"), KeyboardInterrupt()])
def test_the_error_of_the_block_is_raised_soon(error: BaseException, stage: Stage) -> None:
    with pytest.raises(type(error)) as caught, stage.producer() as producer:
        future = producer.send("t", b"x")
        began = stage.world.now
        raise error
    assert caught.value is error
    assert (
        5.0 <= stage.world.now - began < 6.1
    )  # close.timeout.ms, and a second for the connections
    (note,) = error.__notes__
    assert "close() failed as well: NoBrokerAvailableError: timed out waiting for the ack" in note
    assert note.endswith("\nclose() discards 1 record that was not sent.")
    assert "goes on" not in note  # the client is closed
    with pytest.raises(ClientClosedError, match=r"1 record for t.* was not sent: the client is"):
        future.result(0)


def test_no_error_says_that_cancelled_records_are_still_being_sent(stage: Stage) -> None:
    """The wait for a record timed out in the block, whose end has cancelled the record."""
    with pytest.raises(KafkaTimeoutError) as caught, stage.producer() as producer:
        producer.send("t", b"x").result(1.0)
    said = "\n".join([str(caught.value), *caught.value.__notes__])
    assert "are still being sent" not in said
    assert "goes on" not in said
    assert said.endswith("close() discards 1 record that was not sent.")


def test_close_notes_the_number_of_sent_records() -> None:
    stage = Stage(brokers=1)
    producer = stage.producer(linger_ms=0)
    producer.send("t", b"x", partition=0).result(10)
    stage.cluster.kill(1)
    sent = producer.send("t", b"y", partition=0)
    stage.world.advance(1.0)
    never = producer.send("t", b"z", partition=1)
    with pytest.raises(KafkaTimeoutError) as caught:
        producer.close(2)
    (note,) = caught.value.__notes__
    assert note.startswith("close() discards 2 records, of which 1 was sent; errors say which ")
    with pytest.raises(
        ClientClosedError, match="t-0 was sent once and not ack.* have been written"
    ):
        sent.result(0)
    with pytest.raises(ClientClosedError, match="t-1 was not sent: the client is closed"):
        never.result(0)


def test_close_raises_its_own_error_if_the_block_has_none(stage: Stage) -> None:
    with pytest.raises(KafkaTimeoutError, match="was not sent"), stage.producer() as producer:
        producer.send("t", b"x")


def test_a_consumer_without_pending_work_adds_no_note(stage: Stage) -> None:
    with pytest.raises(MineError) as caught, stage.consumer():
        raise MineError
    assert not hasattr(caught.value, "__notes__")
