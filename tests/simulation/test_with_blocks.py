"""A `with` block that ends with an error: that comes out, soon, and names what close() met."""

from __future__ import annotations

import pytest

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import KafkaTimeoutError
from odradek.simulation import SimulatedCluster, World


class MineError(Exception):
    """The block's own."""


def scene() -> tuple[World, SimulatedCluster]:
    world = World(seed=1)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.kill(1)
    return world, cluster


@pytest.mark.parametrize("error", [MineError("mine"), KeyboardInterrupt()])
def test_the_blocks_error_comes_out_before_long(error: BaseException) -> None:
    world, cluster = scene()
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    with (
        pytest.raises(type(error)) as caught,
        on_host(world.host("p"), Producer, config) as producer,
    ):
        future = producer.send("t", b"x")
        began = world.now
        raise error
    assert caught.value is error
    assert 5.0 <= world.now - began < 6.1  # close.timeout.ms, and a second for the connections
    (note,) = error.__notes__
    assert "close() failed as well: NoBrokerAvailableError: no acknowledgement of 1 records" in note
    assert future.done()


def test_without_an_error_close_says_what_it_met() -> None:
    world, cluster = scene()
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    with (
        pytest.raises(KafkaTimeoutError, match="acknowledgement"),
        on_host(world.host("p"), Producer, config) as producer,
    ):
        producer.send("t", b"x")


def test_a_consumer_that_has_nothing_to_wait_for_adds_nothing() -> None:
    world, cluster = scene()
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    with pytest.raises(MineError) as caught, on_host(world.host("c"), Consumer, config):
        raise MineError
    assert not hasattr(caught.value, "__notes__")
