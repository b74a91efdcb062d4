"""Test the error for coroutines that run without an asyncio event loop, as in trio."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

import odradek
from odradek.common.errors import IllegalStateError
from odradek.runtime.hosts.outcome_future import running_loop

SERVERS = {"bootstrap.servers": "localhost:1"}


async def enter() -> None:
    async with odradek.AsyncProducer(SERVERS):
        pass


async def call() -> None:
    consumer = odradek.AsyncConsumer(SERVERS)
    await consumer.poll(1.0)


async def send() -> None:
    producer = odradek.AsyncProducer(SERVERS)
    await producer.send("t", b"x")


async def future() -> None:
    running_loop()  # a blocking producer's future calls this when it is awaited


@pytest.mark.parametrize("main", [enter, call, send, future])
def test_the_error_without_an_asyncio_event_loop_says_what_to_do(main: Any) -> None:
    started: Coroutine[Any, Any, None] = main()
    with pytest.raises(IllegalStateError, match=r"no asyncio event loop .*asyncio\.run.*trio"):
        started.send(None)  # trio starts coroutines like this
