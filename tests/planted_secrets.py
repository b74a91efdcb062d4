"""Search all output of the test suite for secrets.

Each text that a test wraps in a `Secret`, or passes to `plant`, is a planted secret. It must not
occur in the output and log of that test, in the texts of our errors, in events or in `explain()`. A
test that leaks a secret fails, with a report that doesn't contain the secret. Tests that show a
secret on purpose have the mark `shows_secrets`. `with_locals` is for tests of the local variables
of our frames in a traceback.
"""

from __future__ import annotations

import base64
import functools
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.clients.explain.explanation import Explanation
from odradek.common.errors import KafkaError
from odradek.common.events import Event, EventLog
from odradek.common.secret import Secret

SHORTEST = 8
"""Minimum length in characters; shorter texts are parts of ordinary words."""
SPREAD = 12
"""Number of different characters that makes a text a secret without a digit or a dash."""


@dataclass
class Watch:
    """Secrets that the current test has planted, and where they were seen."""

    active: bool = False
    planted: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def plant(self, text: str) -> None:
        """Search for this text from now on, as it is and in base64."""
        if not self.active or not worth_looking(text):
            return
        self.planted[text] = "as it is"
        self.planted[base64.b64encode(text.encode("utf-8", "replace")).decode()] = "in base64"

    def look(self, where: str, text: str) -> None:
        """Note every planted secret that this text contains."""
        for secret, form in self.planted.items():
            at = text.find(secret)
            if at >= 0:
                shown = text[max(0, at - 80) : at].replace(secret, "…")
                self.found.append(f"{where} shows a secret {form}, after {shown!r}")


watch = Watch()


def worth_looking(text: str) -> bool:
    """Return whether a text is long and unusual enough not to occur by coincidence."""
    odd = any(not c.isalpha() for c in text) or len(set(text)) >= SPREAD
    return len(text) >= SHORTEST and odd and any(c.isalpha() for c in text)


def plant(text: str) -> str:
    """Plant a secret that this process doesn't wrap in a `Secret`, and return it."""
    watch.plant(text)
    return text


# Where texts are created


def _hooked(made: Callable[..., None], then: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(made)
    def hook(*args: Any, **named: Any) -> None:
        made(*args, **named)
        if watch.active:
            then(*args, **named)

    return hook


def _secret(_: Secret, text: str) -> None:
    watch.plant(text)


def _event(_: EventLog, at: float, kind: str, **fields: Any) -> None:
    if watch.planted:
        watch.look(f"the event {kind}", str(Event(at, kind, fields)))


def _usual_error(error: KafkaError, *args: object, **named: object) -> None:
    super(KafkaError, error).__init__(*args, **named)  # maybe `OSError.__init__`


def _error(error: KafkaError, *args: object, **named: object) -> None:
    if watch.planted:
        watch.look(f"a {type(error).__name__}", f"{args!r} {named!r}")


def _explanation(picture: Explanation, *_: object, **__: object) -> None:
    if watch.planted:
        watch.look("explain()", f"{picture} {picture!r} {picture.to_dict()}")


@contextmanager
def hooks() -> Iterator[None]:
    """Check all places where our texts are created."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Secret, "__init__", _hooked(Secret.__init__, _secret))
        patch.setattr(EventLog, "emit", _hooked(EventLog.emit, _event))
        patch.setattr(KafkaError, "__init__", _hooked(_usual_error, _error))
        patch.setattr(Explanation, "__init__", _hooked(Explanation.__init__, _explanation))
        yield


def with_locals(error: BaseException) -> str:
    """Return the traceback with the locals of each of our frames, as some tools print it."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    parts: list[str] = []
    seen: list[traceback.TracebackException] = [told]
    for each in seen:
        parts += [str(each)]
        for frame in each.stack:
            if "/src/odradek/" in frame.filename:
                found = (frame.locals or {}).items()
                parts += [f"{frame.name}: {name} = {value}" for name, value in found]
        seen += [other for other in (each.__cause__, each.__context__) if other is not None]
    return "\n".join(parts)


# Hooks of pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "shows_secrets: shows a secret on purpose")
    # Installed once for all tests: replacing `KafkaError.__init__` takes 1 ms because of its
    # hundreds of subclasses.
    hooked = ExitStack()
    hooked.enter_context(hooks())
    config.add_cleanup(hooked.close)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    generated = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
    watch.planted, watch.found = {}, []
    watch.active = not generated and item.get_closest_marker("shows_secrets") is None
    try:
        return (yield)
    finally:
        watch.active = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not watch.active:
        return report
    if report.when == "teardown":
        for name, text in report.sections:
            watch.look(name.lower(), text)
    if watch.found and report.outcome == "passed" and report.when != "setup":
        found, watch.found = watch.found, []
        report.outcome = "failed"
        report.longrepr = "\n".join(dict.fromkeys(found))
    return report
