"""Thirty connections whose requests arrive late: checkers report no violation.

These are the checkers of a user's test runs; the client keeps R-CS-8 and R-RB-3.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from odradek import KafkaError
from odradek.simulation.brokers.broker_faults import late_packets
from odradek.testing import KafkaSimulation


@pytest.mark.parametrize("seed", [1, 30])
def test_secondary_connections_keep_the_spacing_of_attempts(seed: int) -> None:
    """With seed 30, an uncounted attempt to a failed address began 4 ms before another."""
    chance = random.Random(seed)
    with KafkaSimulation(seed=seed) as simulation:
        simulation.create_topic("t", partitions=6)
        producer = simulation.producer()
        protocol = chance.choice(["classic", "consumer"])
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "group_protocol": protocol}
        consumer = simulation.consumer(group_id="g", **options)
        if protocol == "consumer":
            simulation.consumer(group_id="g", **options)
        consumer.subscribe(["t"])
        for _ in range(30):
            for number in range(chance.randrange(1, 8)):
                producer.send("t", b"%d" % number)
            broker, seconds = chance.randrange(1, 4), chance.choice([0.5, 2.0, 5.0, 20.0])
            late_packets(simulation.cluster, broker, seconds)
            with suppress(KafkaError):
                consumer.poll(chance.choice([0.05, 0.3, 1.0, 3.0]))
        for _ in range(20):
            consumer.poll(1.0)
    simulation.verify()
