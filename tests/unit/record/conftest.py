"""Each test that asks for `use` runs with both implementations of what encodes records."""

from __future__ import annotations

import pytest
from tests.unit.record.implementations import ENCODINGS, Encoding


@pytest.fixture(params=ENCODINGS, ids=lambda encoding: encoding.name)
def use(request: pytest.FixtureRequest) -> Encoding:
    found: Encoding = request.param
    return found
