"""Decide which failed tests to run once more, run each of them alone, and keep their first logs.

Tests with real brokers have time limits, which a busy machine sometimes exceeds. A test qualifies
only if each of its failures is a timeout or a deadline, which pytest's report shows by the type of
the exception. A wrong value, a crash or a failed import never qualifies, and no test does if more
than `MOST` tests of the suite failed: then the cause is not chance.

`tests/flaky.json` lists the tests that failed at random: for each failure the test, the date, the
owner who looks for the cause, the seed or log, and the cause if it is known.

Input: pytest's XML report. Output: the tests that passed when they were repeated, with the files
that contain their first failures. `tools/run_tests.py` decides which suites may repeat a test.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from odradek.common import errors

MOST = 3
"""Maximum number of failed tests in a suite; if more fail, none of them is repeated."""
LISTED = "tests/flaky.json"
FIELDS = {"test", "date", "owner", "log", "cause"}
_TYPE = re.compile(r'(?:failed on (?:setup|teardown) with ")?(?:\w+\.)*(\w+)(?=[:"]|$)')
"""The exception's type at the start of a failure's message, without its module's name."""
_OTHER_TIMEOUTS = {
    "TimeoutError",  # the built-in exception; asyncio raises it, too
    "TimeoutExpired",  # raised by subprocess
    "Empty",  # raised by queue.Queue.get(timeout=…)
    "OutageError",  # of Spark's reader, if no broker answered in time
}
_HANGS = re.compile(r"Failed: Timeout \(>[\d.]+s\) from pytest-timeout")
_PEERS_TIMEOUT = re.compile(r"(?:\w+\.)*KafkaException: KafkaError\{code=_(?:MSG_)?TIMED_OUT\b")
"""confluent-kafka raises one exception for all errors; librdkafka's code in it shows a timeout."""
_AT = re.compile(r"^> .*", re.MULTILINE)
_DEADLINE = re.compile(r">\s+assert time\.monotonic\(\) <=? \w*deadline\b")
"""A statement of the test itself that compares the clock with a deadline."""


@dataclass(frozen=True)
class Failure:
    """A failed test in a report, with all its failures (its teardown may have failed, too)."""

    test: str
    """Id of the test, as on pytest's command line."""
    reasons: tuple[tuple[str, str], ...]
    """Message and traceback of each failure."""
    log: str

    @property
    def timed_out(self) -> bool:
        """Whether each failure of the test is a timeout or a missed deadline."""
        return all(is_timeout(message, text) for message, text in self.reasons)


def is_timeout(message: str, text: str) -> bool:
    """Return whether a failure is a timeout, by its exception's type or the failed statement."""
    if _HANGS.match(message) or _PEERS_TIMEOUT.match(message):
        return True
    named = _TYPE.match(message)
    if named is not None:
        if named[1] in _OTHER_TIMEOUTS:
            return True
        kind = getattr(errors, named[1], None)
        if isinstance(kind, type) and issubclass(kind, TimeoutError):
            return True
    statements = _AT.findall(text)
    return bool(statements) and _DEADLINE.match(statements[-1]) is not None


def failures(report: Path, root: Path) -> list[Failure]:
    """Return the failed tests in a report; a failure outside of any test has the id ""."""
    found: dict[str, Failure] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 - our own
        reasons = tuple(
            (bad.get("message", ""), bad.text or "")
            for bad in case
            if bad.tag in ("failure", "error")
        )
        if not reasons:
            continue
        test = _id(case.get("classname", ""), case.get("name", ""), root)
        before = found.get(test)
        log = "\n".join(_texts(case))
        if before is not None:  # both the test and its teardown failed
            reasons, log = before.reasons + reasons, f"{before.log}\n{log}"
        found[test] = Failure(test, reasons, log)
    return list(found.values())


def _id(classname: str, name: str, root: Path) -> str:
    """Return `tests/a/test_b.py::Class::test_c` of `tests.a.test_b.Class` and `test_c`."""
    parts = classname.split(".")
    for at in range(len(parts), 0, -1):
        module = Path("/".join(parts[:at]) + ".py")
        if (root / module).is_file():
            return "::".join([module.as_posix(), *parts[at:], name])
    return name


def _texts(case: ElementTree.Element) -> Iterator[str]:
    for part in case:
        yield from (text for text in (part.get("message"), part.text) if text)


def worth_repeating(failed: list[Failure]) -> list[Failure]:
    """Return the tests to run once more: timed-out tests, unless too many tests failed."""
    if len(failed) > MOST:
        return []
    return [failure for failure in failed if failure.timed_out and "::" in failure.test]


def repeat(
    failed: list[Failure], alone: Callable[[str], bool], suite: str, kept: Path
) -> list[tuple[Failure, Path]]:
    """Run each test worth repeating alone; return those that pass, with their logs in `kept`."""
    passed = []
    for failure in worth_repeating(failed):
        name = re.sub(r"[^\w.-]+", "-", f"{suite}-{failure.test}")[:150]
        log = kept / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(failure.log)
        if alone(failure.test):
            passed.append((failure, log))
    return passed


def listed_wrong(root: Path) -> list[str]:
    """Return the errors in the list of flaky tests, one line each.

    A test that is listed twice is an error: its first cause was not found, or it has another one.
    """
    found = []
    entries = json.loads((root / LISTED).read_text())
    for entry in entries:
        test = entry.get("test", "")
        module, _, name = test.partition("::")
        if set(entry) != FIELDS or not all(entry[key] for key in FIELDS - {"cause"}):
            found.append(f"{test}: needs {', '.join(sorted(FIELDS))}; only the cause may be empty")
        elif not (root / module).is_file() or not name:
            found.append(f"{test}: no such test; remove it from {LISTED}")
    for test, times in Counter(entry.get("test") for entry in entries).items():
        if times > 1:
            found.append(
                f"{test}: failed at random {times} times; mend its cause, then list it once"
            )
    return found
