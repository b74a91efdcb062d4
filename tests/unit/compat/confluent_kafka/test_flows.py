"""Test that calls written as generators (`Flow`) run in threads and in event loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.compat.confluent_kafka.flows import Flow, awaited, carried_out


class Client:
    """A client whose call returns or raises `outcome`; with `loop`, it returns an awaitable."""

    def __init__(self, *, loop: bool) -> None:
        self.loop = loop
        self.ended = False

    def ask(self, outcome: Any) -> Any:
        async def later() -> Any:
            await asyncio.sleep(0)
            return self.outcome(outcome)

        return later() if self.loop else self.outcome(outcome)

    @staticmethod
    def outcome(outcome: Any) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def flow(client: Client) -> Flow[list[Any]]:
    found = [(yield client.ask(1))]
    try:
        yield client.ask(LookupError())
    except LookupError:
        found.append((yield client.ask(2)))
    try:
        found.append((yield "an outcome of its own"))  # this text isn't an awaitable
        yield client.ask(KeyError())
    finally:
        found.append((yield client.ask(3)))
        client.ended = True
        if not client.loop:
            found.append("in a thread")
    return found


def ends(flow: Flow[list[Any]], found: list[Any]) -> Flow[list[Any]]:
    try:
        return (yield from flow)
    except KeyError:
        return found


@pytest.mark.parametrize("loop", [False, True])
def test_a_call_written_as_a_generator_is_resumed_with_results_and_exceptions(loop: bool) -> None:
    client = Client(loop=loop)
    with pytest.raises(KeyError):
        if loop:
            asyncio.run(awaited(flow(client)))
        else:
            carried_out(flow(client))
    assert client.ended
    again = ends(flow(Client(loop=loop)), ["caught"])
    assert (asyncio.run(awaited(again)) if loop else carried_out(again)) == ["caught"]


def test_a_cancellation_is_raised_in_the_generator_that_waits() -> None:
    seen: list[str] = []

    def waits() -> Flow[None]:
        try:
            yield asyncio.sleep(100)
        except asyncio.CancelledError:
            seen.append("cancelled")
            yield asyncio.sleep(0)
            seen.append("tidied up")
            raise

    async def run() -> None:
        task = asyncio.ensure_future(awaited(waits()))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert seen == ["cancelled", "tidied up"]
