"""Callbacks of the asyncio clients: functions or coroutine functions, called in the event loop.

In: a configuration's callbacks. Out: the same as plain functions; coroutines continue as tasks,
whose exceptions the event loop reports. Must not: be used for rebalances, which are awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from inspect import isawaitable
from typing import Any

from odradek.compat.confluent_kafka.settings import Given

_running: set[asyncio.Future[Any]] = set()
"""Running tasks: the event loop itself keeps only weak references."""


def in_loop(callback: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return the callback as a plain function."""
    if callback is None:
        return None

    def call(*arguments: Any) -> None:
        found = callback(*arguments)
        if isawaitable(found):
            task = asyncio.ensure_future(found)
            _running.add(task)
            task.add_done_callback(_running.discard)

    return call


def with_loop(found: Given) -> Given:
    """Return a configuration whose callbacks may be coroutine functions."""
    return replace(
        found,
        error_cb=in_loop(found.error_cb),
        stats_cb=in_loop(found.stats_cb),
        on_commit=in_loop(found.on_commit),
    )
