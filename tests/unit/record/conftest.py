"""Fixtures that run each test with both record implementations, Python and native."""

from __future__ import annotations

import pytest
from tests.unit.record.implementations import ENCODINGS, Encoding

from odradek.record import decode, reference

DECODERS = list(dict.fromkeys((reference.decode, decode)))


@pytest.fixture(params=ENCODINGS, ids=lambda encoding: encoding.name)
def use(request: pytest.FixtureRequest) -> Encoding:
    found: Encoding = request.param
    return found


@pytest.fixture(params=DECODERS, ids=lambda decoder: decoder.__module__)
def each_decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `decode` in the test's module with the Python or the native decoder."""
    monkeypatch.setattr(request.module, "decode", request.param)
