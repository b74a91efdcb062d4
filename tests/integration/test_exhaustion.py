"""Check R-TI-2: clients recover if files, sockets, imports, names or threads fail in an outage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.volume import WHOLE

PROGRAM = Path(__file__).parent / "exhaustion_program.py"
FIRST_CALLS = PROGRAM.with_name("first_calls_program.py")
ASKED = 100
"""An upper limit for the resource requests that a client makes during the outage."""
NUMBERS = list(range(1, ASKED)) if WHOLE else [2, 9, 11, 19, 40, 47, 54, 61]


def outages(*numbers: int) -> list[dict[str, object]]:
    """Run exhaustion_program.py; return its result for each number of a failed request (0: all)."""
    command = [sys.executable, str(PROGRAM), *map(str, numbers)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_clients_recover_if_all_resources_fail_during_an_outage() -> None:
    (found,) = outages(0)
    assert found["broken"] == []
    assert len(found["refused"]) > 5  # type: ignore[arg-type]


@pytest.mark.parametrize("part", range(2))
def test_clients_recover_if_one_resource_request_fails(part: int) -> None:
    numbers = NUMBERS[part::2]
    found = outages(*numbers)
    assert [f["number"] for f in found] == numbers
    assert [f for f in found if f["broken"]] == []
    assert any(f["refused"] for f in found)


def test_a_first_call_whose_import_fails_raises_a_kafka_error_and_the_next_one_works() -> None:
    ran = subprocess.run(
        [sys.executable, str(FIRST_CALLS)], capture_output=True, text=True, timeout=300, check=True
    )
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) > 25
    assert [f for f in found if f["broken"]] == []
    assert sum(f["refused"] > 0 for f in found) > 15
