"""Responses of simulated brokers that a test modifies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.simulation.brokers.broker_handlers import BY_KEY


def spoil_answers(patch: pytest.MonkeyPatch, key: int, change: Callable[[Any], object]) -> None:
    """Apply `change` to each response of one API from now on."""
    work = BY_KEY[key]

    def changed(answer: Any) -> Any:
        if answer is not None:
            change(answer)
        return answer

    def handler(broker: Any, body: Any, version: int, reply: Any) -> Any:
        return changed(work(broker, body, version, lambda late: reply(changed(late))))

    patch.setitem(BY_KEY, key, handler)
