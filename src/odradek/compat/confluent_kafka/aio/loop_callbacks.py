"""Callbacks of the asyncio clients: functions or coroutine functions, called in the event loop.

In: callbacks in a configuration. Out: plain functions; coroutines run as tasks, whose exceptions
the event loop reports. Must not: be used for rebalance callbacks, which have to be awaited.
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
    """Convert a callback to a plain function, which starts a task for a coroutine."""
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
    """Convert the callbacks of a configuration to plain functions."""
    return replace(
        found,
        error_cb=in_loop(found.error_cb),
        stats_cb=in_loop(found.stats_cb),
        on_commit=in_loop(found.on_commit),
    )
