"""Test that the number of Python calls per record doesn't grow unnoticed.

Unlike times, numbers of calls are the same in each run. Calls of the simulation don't count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.property.interrupting import OURS, THEIRS

from odradek import TopicPartition
from odradek.common.types import FREE_THREADS
from odradek.testing.simulated import KafkaSimulation

MOST = {
    "send": 6,
    "send above max.request.size": 27,
    "send to an unknown topic": 43,
    "poll": 88,
    "poll of a group": 111,
    "position": 8,
    "a record of a loop": 3,
    "a record of a group's loop": 3,
}
"""Limits of calls; at commit aad7921 the counts were 6, 26, 44, 89, 115, 8, 4 and 4."""
if FREE_THREADS:  # two locks per record are taken in Python from 3.14 on
    MOST |= {"a record of a loop": 8, "a record of a group's loop": 8}


def count_calls(action: Callable[[], object]) -> int:
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        name = frame.f_code.co_filename
        count += event == "call" and name.startswith(OURS) and not name.startswith(THEIRS)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def actions(simulation: KafkaSimulation) -> dict[str, Callable[[], object]]:
    """Return a function for each kind of call, with a client that has made such a call before."""
    simulation.create_topic("t", partitions=1)
    options: dict[str, Any] = {"batch.size": 1 << 20, "linger.ms": 1000}
    fast = simulation.producer(options, name="fast")
    slow = simulation.producer({**options, "max.request.size": 10_000}, name="slow")
    for producer in (fast, slow):
        producer.partitions_for("t")
    fast.send("t", b"-")
    for _ in range(100):
        slow.send("t", b"-")
    slow.flush()
    slow.send("t", b"-")

    alone = simulation.consumer({"auto.offset.reset": "earliest"}, name="alone")
    alone.assign([TopicPartition("t", 0)])
    group = simulation.consumer({"auto.offset.reset": "earliest", "group.id": "g"}, name="group")
    group.subscribe(["t"])
    loops = [iter(consumer) for consumer in (alone, group)]
    for loop in loops:
        next(loop)
    polled = simulation.consumer({"auto.offset.reset": "earliest", "group.id": "h"}, name="polled")
    polled.subscribe(["t"])
    while not polled.poll(1.0, 1):
        pass
    for consumer in (alone, polled):
        consumer.poll(1.0, 1)
    early = simulation.producer(name="early")
    early.send("t", b"-")
    return {
        "send": lambda: fast.send("t", b"-"),
        "send above max.request.size": lambda: slow.send("t", b"-"),
        "send to an unknown topic": lambda: early.send("t", b"-"),
        "poll": lambda: alone.poll(0, 1),
        "poll of a group": lambda: polled.poll(0, 1),
        "position": lambda: alone.position(TopicPartition("t", 0)),
        "a record of a loop": lambda: next(loops[0]),
        "a record of a group's loop": lambda: next(loops[1]),
    }


@pytest.mark.parametrize("what", MOST)
def test_each_kind_of_call_runs_at_most_the_listed_number_of_python_functions(what: str) -> None:
    with KafkaSimulation(seed=3) as simulation:
        action = actions(simulation)[what]
        action()
        assert count_calls(action) <= MOST[what]
