"""A member that waits for others reports it in a log line and in `explain()` (R-IN-6)."""

from __future__ import annotations

import logging

import pytest
from tests.simulation.group_scene import Scene


def waiting(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if "ended without leaving" in record.getMessage()
    ]


def ended_without_close(scene: Scene, **config: object) -> None:
    first = scene.subscribed("first", **config)
    scene.read(first, 40)
    first._host.close(0.0)


def test_a_member_that_was_not_closed_delays_the_next_join(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene("classic")
    scene.write(range(40))
    ended_without_close(scene, session_timeout_ms=20_000)
    second = scene.subscribed("second", session_timeout_ms=20_000)
    second.poll(4.5)
    assert not waiting(caplog)
    second.poll(2.0)
    ((level, text),) = waiting(caplog)
    assert level == "WARNING"
    assert "has assigned this consumer no partitions for 5 s (preparing rebalance)" in text
    assert "session.timeout.ms, here 20 s" in text
    assert "odradek groups members g --bootstrap-server " in text
    group = second.explain().group
    assert group is not None
    assert group.waits_for is not None
    assert group.waits_for in text
    assert group.waits_for in str(second.explain())
    second.poll(10.0)
    reason = second.health().reason
    assert reason is not None
    assert group.waits_for in reason
    scene.write(range(40))
    assert scene.read(second, 80) == sorted(
        [*range(40), *range(40)]
    )  # the first member never committed
    assert len(waiting(caplog)) == 1
    assert second.explain().group.waits_for is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("protocol", "topic", "reachable"),
    [("classic", "t", False), ("consumer", "missing", True)],
    ids=["unreachable coordinator", "missing topic"],
)
def test_no_other_member_is_reported_without_a_reason(
    protocol: str, topic: str, reachable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "odradek")
    scene = Scene(protocol)
    if not reachable:
        for broker in list(scene.cluster.brokers):
            scene.cluster.stop(broker)
    member = scene.member()
    member.subscribe([topic])
    member.poll(12.0)
    assert not waiting(caplog)
    assert member.explain().group.waits_for is None  # type: ignore[union-attr]
    assert "ended without leaving" not in str(member.explain())


def test_kip_848_assigns_nothing_while_an_unclosed_member_owns_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "odradek")
    scene = Scene("consumer")
    scene.cluster.create_topic("one", partitions=1)
    first = scene.member("first")
    first.subscribe(["one"])
    first.poll(5.0)
    assert first.assignment()
    first._host.close(0.0)
    second = scene.member("second")
    second.subscribe(["one"])
    second.poll(4.0)
    assert not waiting(caplog)
    second.poll(8.0)
    ((level, text),) = waiting(caplog)
    assert level == "INFO"
    assert "group.consumer.session.timeout.ms, 45 s by default" in text
    assert "ended without leaving" in str(second.explain())
    second.poll(60.0)
    assert second.assignment()
    assert "ended without leaving" not in str(second.explain())
    assert len(waiting(caplog)) == 1
