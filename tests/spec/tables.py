"""Run cases without a timeline: backoff tables, running backoffs and configurations.

    table     milliseconds by the number of previous failures; with jitter, 100 random draws each
    refused   arguments that the backoff calculator rejects, and its error message
    tries     times of the attempts if each fails at once
    waits     one running backoff: what happens at which time (ms), and when it is over
    settings  configurations: the resulting values, warnings and errors

`run_file` runs any case file, these and the scripted ones.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spec.cases import load, run_case
from tests.spec.script import within

from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.config import Config
from odradek.common.errors import ConfigurationError

ABOUT = {"rules", "vectors", "shows"}


def run_file(path: Path) -> None:
    """Run one case file."""
    case = load(path)
    kinds: dict[str, Callable[[Any], None]] = {
        "table": run_table,
        "refused": run_refused,
        "tries": run_tries,
        "waits": run_waits,
        "settings": run_settings,
    }
    found = set(case) & set(kinds)
    if not found:
        run_case(path)
        return
    assert len(found) == 1, f"a case is one of {sorted(kinds)}, not {sorted(found)}"
    (kind,) = found
    assert not set(case) - ABOUT - found, f"unknown keys: {set(case) - ABOUT - found}"
    kinds[kind](case[kind])


def run_table(table: dict[str, Any]) -> None:
    """Check the milliseconds of backoff by the number of previous failures."""
    assert not set(table) - {"base", "max", "jitter", "delays", "spread"}
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


def run_refused(refused: list[dict[str, Any]]) -> None:
    """Check that the calculator rejects these arguments."""
    for case in refused:
        with pytest.raises(ValueError, match=case["says"]):
            ExponentialBackoff(case["base"] / 1000, case["max"] / 1000, case["jitter"])


def run_tries(tries: dict[str, Any]) -> None:
    """Check the times of the attempts (ms) if each fails at once."""
    assert not set(tries) - {"base", "max", "at", "after_success"}
    backoff = Backoff(
        ExponentialBackoff(tries["base"] / 1000, tries["max"] / 1000, 0.0), random.Random(1)
    )
    now, found = 0.0, [0]
    for _ in tries["at"][1:]:
        now = backoff.failed(now)
        assert backoff.until == now  # the jitter is drawn once per failure
        found.append(round(now * 1000))
    assert found == tries["at"]
    if "after_success" in tries:
        backoff.succeeded()
        assert round((backoff.failed(now) - now) * 1000) == tries["after_success"]


def run_waits(waits: dict[str, Any]) -> None:
    """Check when a backoff is over after `failed`, `succeeded` or `look`."""
    assert not set(waits) - {"base", "max", "jitter", "then"}
    policy = ExponentialBackoff(waits["base"] / 1000, waits["max"] / 1000, waits.get("jitter", 0.0))
    backoff, drawn = Backoff(policy, random.Random(1)), -math.inf
    for step in waits["then"]:
        now = step["at"] / 1000
        match step["do"]:
            case "failed":
                drawn = backoff.failed(now)
            case "succeeded":
                backoff.succeeded()
                drawn = backoff.until
            case "look":
                pass
            case other:
                raise AssertionError(f"unknown: {other}")
        assert backoff.until == drawn, f"drawn again: {step}"
        if "over_at" in step:
            assert within(round(backoff.until * 1000, 6), step["over_at"]), step
        if "over" in step:
            assert (backoff.until <= now) is step["over"], step
        if "failures" in step:
            assert backoff.failures == step["failures"], step


def run_settings(settings: list[dict[str, Any]]) -> None:
    """Check the result of configurations, for each client that a line names (default: all)."""
    for line in settings:
        assert not set(line) - {"clients", "given", "values", "backoff", "warns", "error"}, line
        for client in line.get("clients", ["producer", "consumer", "admin"]):
            _settle(client, line)


def _settle(client: str, line: dict[str, Any]) -> None:
    given = {"bootstrap.servers": "front:9092", **line["given"]}
    if "error" in line:
        with pytest.raises(ConfigurationError, match=line["error"]):
            Config(client, given)
        return
    heard = _Listener()
    logger = logging.getLogger("odradek")
    logger.addHandler(heard)
    try:
        config = Config(client, given)
    finally:
        logger.removeHandler(heard)
    for name, value in line.get("values", {}).items():
        found = config[name]
        found = round(found * 1000, 6) if name.endswith(".ms") and found is not None else found
        assert found == value, f"{client}: {name} is {found}, not {value}"
    for name, [low, high] in line.get("backoff", {}).items():
        policy = config.backoff(name)
        assert policy.constant is (low >= high), f"{client}: {name}"
        assert round(policy.delay(99, random.Random(1)) * 1000, 6) <= high
    texts = [r.getMessage() for r in heard.records]
    if line.get("warns"):
        assert len(texts) == 1, f"{client}: {texts}"
        assert line["warns"] in texts[0]
    else:
        assert not texts, f"{client}: {texts}"


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
