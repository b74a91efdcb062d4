"""Windows of rows, whose memory is used again."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import pytest
from tests.property.interrupting import At, Interruption

from odradek.clients.producer.row_errors import WINDOW, Window


@pytest.mark.parametrize("rows", [1, WINDOW])
def test_a_window_whose_making_is_interrupted_goes_in_silence(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-HO-1: its finaliser runs however little of it was made."""
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with At(sys.maxsize) as counted:
        Window(0, rows)
    for number in range(counted.seen):
        with suppress(Interruption), At(number):
            Window(0, rows)
    assert counted.seen > 10
    assert [s.exc_value for s in said if s.exc_type is not Interruption] == []
