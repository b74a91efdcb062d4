"""Test the I/O host that runs a client's engine in an asyncio event loop, without sockets."""

from __future__ import annotations

import asyncio
import random

from odradek.clients.client_engine import ClientEngine
from odradek.common.config import ADMIN, Config
from odradek.runtime.hosts.asyncio_host import BREATH, AsyncioHost

SERVERS = {"bootstrap.servers": "127.0.0.1:9"}


def test_breathe_clears_the_overdue_flag_even_if_another_task_has_just_called_breathe() -> None:
    """`send` calls `breathe` if a step is overdue, also soon after another task's call."""
    now = [1.0]

    async def program() -> None:
        host = AsyncioHost(clock=lambda: now[0])
        host.attach(ClientEngine(Config(ADMIN, SERVERS), random.Random(1)))
        host.enter()
        late = [host.overdue]
        await asyncio.sleep(0)
        now[0] += 2 * BREATH
        await host.breathe()  # as if another task called it
        host.wake()
        now[0] += 0.9 * BREATH
        host.wake()
        late.append(host.overdue)
        now[0] += 0.2 * BREATH
        late.append(host.overdue)
        host._turned = now[0]
        await host.breathe()
        late.append(host.overdue)
        assert late == [False, False, True, False]
        host.drop()

    asyncio.run(program())
