"""R-RT-2: two concurrent calls of `close` keep their own deadlines."""

from __future__ import annotations

import pytest

from odradek.clients.caller_flow import CallerFlow, Do
from odradek.testing.simulated import KafkaSimulation


def resumed(flow: CallerFlow[None], given: float | None = None) -> bool:
    """Run a coroutine-like generator up to its next yield; return False if it has ended."""
    try:
        wanted = flow.send(given)  # type: ignore[arg-type]  # None first, as for any generator
    except StopIteration:
        return False
    if isinstance(wanted, Do):
        wanted.action()
    return True


def test_a_later_close_keeps_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaSimulation(seed=1) as simulation:
        producer = simulation.producer(name="p")
        calls, host = producer._calls, producer._host
        until: list[float] = []
        monkeypatch.setattr(host, "close", until.append)
        now = host.now()

        def work(deadline: float) -> CallerFlow[None]:
            assert deadline == now + 1
            yield Do(lambda: None)

        first, second = calls.close(1, work), calls.close(30)
        assert resumed(first)
        assert resumed(first, now)  # runs `work`
        assert resumed(second)
        while resumed(second, now):
            pass
        while resumed(first, now):
            pass
        least = calls.least_to_close
        assert until == [now + max(30, least), now + max(1, least)]
