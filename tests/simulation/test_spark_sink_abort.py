"""The driver of a failed write, beside a simulated cluster: what it ends, and what is seen then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.simulation.produce_script import every_broker
from tests.simulation.transactional import PROTOCOLS, Scene, send

from odradek.api.producer import Producer
from odradek.common.errors.kafka import ProducerFencedError
from odradek.simulation import World
from odradek.spark.options.option_table import BATCH
from odradek.spark.sink.exactly_once import CONTACT_S, end_open
from odradek.spark.sink.sink_messages import SinkCommit
from odradek.spark.sink.sink_options import SinkOptions, parse_sink_options
from odradek.testing.simulated import KafkaSimulation


class Clock:
    """The simulation's time, of a world or a `KafkaSimulation`."""

    def __init__(self, world: World | KafkaSimulation) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now

    def pause(self, seconds: float) -> None:
        self._world.advance(seconds)


class Driver:
    """What is left when Spark has killed task 1 of two, in the middle of its transaction."""

    def __init__(self, version: int = 2) -> None:
        self.scene = Scene(version)
        self.killed = self.scene.producer(transactional_id="odradek-job-sink-1")
        self.killed.begin_transaction()
        send(self.killed, range(3))
        self.killed.flush()
        with self.producer({"bootstrap.servers": self.servers}) as other:
            send(other, range(3, 6))

    @property
    def servers(self) -> str:
        return self.scene.cluster.bootstrap_servers

    def producer(self, config: Mapping[str, Any]) -> Producer:
        return self.scene.client(Producer, "driver", **config)

    def options(self) -> SinkOptions:
        given = {"kafka.bootstrap.servers": self.servers, "topic": "t", "jobId": "job"}
        return parse_sink_options({**given, "delivery": "exactly_once"}, BATCH)

    def abort(self) -> None:
        messages = [SinkCommit(0, 3, 0, batch=0, query="job"), None]
        clock = Clock(self.scene.world)
        end_open(self.options(), messages, make=self.producer, clock=clock)


@PROTOCOLS
def test_rows_behind_a_killed_tasks_transaction_are_seen_at_once(version: int) -> None:
    driver = Driver(version)
    world = driver.scene.world
    assert driver.scene.visible() == []
    begin = world.now
    driver.abort()
    assert driver.scene.visible() == [3, 4, 5]
    assert world.now - begin < 2.0
    with pytest.raises(ProducerFencedError):
        driver.killed.commit_transaction()
    assert driver.scene.visible() == [3, 4, 5]


def test_without_brokers_the_driver_doesnt_wait_for_long(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver()
    every_broker(driver.scene.cluster, "crash")
    begin = driver.scene.world.now
    driver.abort()
    assert driver.scene.world.now - begin < CONTACT_S + 1.0
    assert "may stay hidden" in caplog.text
