"""Test the error for coroutines in other event loops than asyncio's."""

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
    running_loop()  # as the future of a blocking producer does


@pytest.mark.parametrize("main", [enter, call, send, future])
def test_without_asyncio_the_error_names_a_cure(main: Any) -> None:
    started: Coroutine[Any, Any, None] = main()
    with pytest.raises(IllegalStateError, match=r"no asyncio event loop .*asyncio\.run.*trio"):
        started.send(None)  # as trio runs coroutines
