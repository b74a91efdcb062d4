"""A `with` block that ends with an error: that comes out, soon, and names what close() met."""

from __future__ import annotations

import pytest
from tests.simulation.scene import Stage

from odradek.common.errors import KafkaTimeoutError


class MineError(Exception):
    """The block's own."""


@pytest.fixture
def stage() -> Stage:
    """A cluster that is away."""
    made = Stage(brokers=1)
    made.cluster.kill(1)
    return made


@pytest.mark.parametrize("error", [MineError("mine"), KeyboardInterrupt()])
def test_the_blocks_error_comes_out_before_long(error: BaseException, stage: Stage) -> None:
    with pytest.raises(type(error)) as caught, stage.producer() as producer:
        future = producer.send("t", b"x")
        began = stage.world.now
        raise error
    assert caught.value is error
    assert (
        5.0 <= stage.world.now - began < 6.1
    )  # close.timeout.ms, and a second for the connections
    (note,) = error.__notes__
    assert "close() failed as well: NoBrokerAvailableError: no acknowledgement of 1 records" in note
    assert future.done()


def test_without_an_error_close_says_what_it_met(stage: Stage) -> None:
    with pytest.raises(KafkaTimeoutError, match="acknowledgement"), stage.producer() as producer:
        producer.send("t", b"x")


def test_a_consumer_that_has_nothing_to_wait_for_adds_nothing(stage: Stage) -> None:
    with pytest.raises(MineError) as caught, stage.consumer():
        raise MineError
    assert not hasattr(caught.value, "__notes__")
