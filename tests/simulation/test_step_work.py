"""R-MD-7: the work of a step is proportional to changes, not to all topics that were ever used.

Work is counted, not timed: lines of Python that run in modules of the engine, including
comprehensions and loops, while a client of few or thousands of topics gets a small event.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Any

from tests.spec.world import ClusterPicture, World, up

TOPICS = (50, 3000)
ROOMS = ("metadata", "network", "clients")


def lines_run(action: Callable[[], object], *rooms: str) -> int:
    """Count the executed lines of these packages in an action, including repeated lines."""
    count = 0
    known: dict[CodeType, bool] = {}

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        del argument
        if event == "line":
            count += 1
        return inside

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        code = frame.f_code
        if code not in known:
            known[code] = any(f"odradek/{room}/" in code.co_filename for room in rooms)
        return inside if known[code] else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def knowing(topics: int, client: str) -> World:
    """Create a client that has used this number of topics, with two partitions each."""
    world = World({"bootstrap.servers": "b1:9092"}, client=client)
    up(world, "b1:9092", "b2:9092")
    names = [f"t{n}" for n in range(topics)]
    everything: dict[str, list[int]] = {name: [1, 2] for name in [*names, "new", "newer"]}
    world.pictures["*"] = ClusterPicture(brokers={1: "b1:9092", 2: "b2:9092"}, topics=everything)
    world.engine.post(lambda now: world.engine.metadata.want(names))
    world.run(1.0)
    snapshot = world.engine.metadata.snapshot
    assert snapshot is not None
    assert len(snapshot.topics) == topics
    return world


def asks_for_one_more(world: World, name: str) -> Callable[[], object]:
    return lambda: world.wait(world.engine.topic(name, world.now + 5), 0.1).result()


def test_one_more_topic_costs_the_same_for_any_number_of_used_topics() -> None:
    for client in ("producer", "consumer", "admin"):
        work = []
        for topics in TOPICS:
            world = knowing(topics, client)
            asks_for_one_more(world, "new")()  # create objects that are created lazily
            one_more = asks_for_one_more(world, "newer")
            work.append(lines_run(one_more, *ROOMS))
        few, many = work
        assert few > 50  # the counter works
        assert many <= few * 1.1, f"{client}: {few} lines with {TOPICS[0]} topics, {many} with many"


def test_a_leader_hint_costs_the_same_for_any_number_of_used_topics() -> None:
    work = []
    for topics in TOPICS:
        metadata = knowing(topics, "producer").engine.metadata
        work.append(lines_run(lambda m=metadata: m.hint("t3", 0, 2, 9, []), "metadata"))  # type: ignore[misc]
        assert metadata.snapshot is not None
        assert metadata.snapshot.leader("t3", 0) == metadata.snapshot.brokers[2]
    few, many = work
    assert 0 < many <= few * 1.1


def test_an_engine_step_without_work_visits_no_topic() -> None:
    work = []
    for topics in TOPICS:
        world = knowing(topics, "producer")
        work.append(lines_run(partial(world.engine.step, world.now), *ROOMS))
    few, many = work
    assert many <= few * 1.1
