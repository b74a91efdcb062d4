"""The cases of `kip_580/`: tables of the calculator, and retries in virtual time."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.spec.script import cases, load, run_case, within

from odradek.common.backoff import Backoff, ExponentialBackoff


@pytest.mark.parametrize("path", cases("kip_580"), ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    case = load(path)
    if "table" in case:
        run_table(case)
    elif "tries" in case:
        run_tries(case)
    else:
        run_case(path)


def run_table(case: dict[str, Any]) -> None:
    """Milliseconds by the number of failures before; with jitter 100 draws of each."""
    table = case["table"]
    policy = ExponentialBackoff(table["base"] / 1000, table["max"] / 1000, table.get("jitter", 0.2))
    rng = random.Random(1)
    for failures, bounds in table["delays"].items():
        draws = [1000 * policy.delay(int(failures), rng) for _ in range(100)]
        if not isinstance(bounds, list):
            bounds = [bounds, bounds]
        for draw in draws:
            assert within(round(draw, 6), bounds), f"failures {failures}: {draw}, not {bounds}"
        spread = (max(draws) - min(draws)) / (bounds[1] - bounds[0] or 1.0)
        assert spread >= table.get("spread", 0.0), f"failures {failures}: jitter is missing"


def run_tries(case: dict[str, Any]) -> None:
    """When the tries happen (ms) if each fails at once."""
    tries = case["tries"]
    backoff = Backoff(
        ExponentialBackoff(tries["base"] / 1000, tries["max"] / 1000, 0.0), random.Random(1)
    )
    now, found = 0.0, [0]
    for _ in tries["at"][1:]:
        now = backoff.failed(now)
        assert backoff.until == now  # drawn once and kept
        found.append(round(now * 1000))
    assert found == tries["at"]
    if "after_success" in tries:
        backoff.succeeded()
        assert round((backoff.failed(now) - now) * 1000) == tries["after_success"]
