"""Waiting with progress messages, errors and signals of the console tools.

In: a call that takes a timeout. Out: its result; lines on stderr. Must not: implement retries; a
call that times out is only repeated to keep waiting, and its client retries requests.
"""

from __future__ import annotations

import contextlib
import math
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

import typer

from odradek.cli.console.properties import UsageError
from odradek.common.config import Config
from odradek.common.errors import (
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
)
from odradek.common.events import Event
from odradek.common.printable import printable

T = TypeVar("T")
R = TypeVar("R")

PROGRESS = 5.0
"""Seconds of waiting after which a progress message is printed."""
FAILING = 5
"""Maximum number of addresses in a message."""
_IN_TIME = re.compile(r"timed out waiting for [^:\n]*: ")
"""Beginning of a timeout's message, which is removed while the wait continues."""
REGISTRY = "still waiting for the schema registry (schema.registry.url)"


def say(text: str) -> None:
    """Print a message to stderr; results go to stdout."""
    sys.stderr.write(f"{printable(text, limit=None, lines=True)}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def ending(tool: str) -> Iterator[None]:
    """Convert errors to a line on stderr and an exit status: 2 wrong use, 1 failed."""
    try:
        yield
    except UsageError as problem:
        say(f"{tool}: {problem}")
        say(f"Try '{tool} --help'.")
        raise typer.Exit(2) from None
    except KafkaError as error:
        say(f"{tool}: {in_words(error)}")
        raise typer.Exit(1) from None


def checked(client: str, given: Mapping[str, Any]) -> Config:
    """Return a client's configuration; raise `UsageError` for an invalid option."""
    try:
        return Config(client, given)
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


def in_words(error: BaseException) -> str:
    """Return an error with its class, which users can search for."""
    return f"{type(error).__name__}: {error}"


def patiently(
    call: Callable[[float], T],
    total: float,
    tell: Callable[[str], None],
    what: str,
    first_contact: float = math.inf,
) -> T:
    """Repeat `call` while it times out, at most `total` seconds; tell the progress meanwhile.

    `first_contact`: seconds after which the wait ends if a new client has reached no broker.
    """
    left = total
    while True:
        now = min(left, PROGRESS)
        try:
            return call(now)
        except KafkaTimeoutError as error:
            left -= now
            away = isinstance(error, NoBrokerAvailableError) and not error.reached_before
            until = min(left, first_contact - (total - left)) if away else left
            if until <= 0:
                raise
            why, _, where = _IN_TIME.sub("", str(error), count=1).partition("\n")
            if away:  # all details are printed when the wait ends
                why = why.partition(". ")[0]
            place = where.partition("\n")[0].strip()
            said = f"{why} {place}" if place else why
            tell(f"still waiting for {what} ({until:.0f} s left): {said}")


class Failing:
    """Listener of a client's events that collects the addresses that can't be reached."""

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}
        self.reached = False
        """Whether any broker was reached."""

    def __call__(self, event: Event) -> None:
        if event.kind in ("dial_failed", "dns_failed"):
            self._errors[event.fields["address"]] = event.fields["error"]
        elif event.kind == "ready":
            self.reached = True
        elif event.kind == "proved":
            self._errors.pop(event.fields["address"], None)

    def __str__(self) -> str:
        found = [f"{address}: {error}" for address, error in [*self._errors.items()][:FAILING]]
        return "".join(f"\n  {line}" for line in found)


@contextlib.contextmanager
def telling_of_waiting(
    text: str | Callable[[], str], after: float = PROGRESS, failing: Failing | None = None
) -> Iterator[None]:
    """Print a text once on stderr if the block takes longer than `after` seconds.

    The errors in `failing` are appended.
    """

    def tell() -> None:
        say(f"{text() if callable(text) else text}{failing or ''}")

    progress = threading.Timer(after, tell)
    progress.daemon = True
    progress.start()
    try:
        yield
    finally:
        progress.cancel()


def telling_at_first(
    call: Callable[[T], R], text: str, after: float = PROGRESS
) -> Callable[[T], R]:
    """Wrap a function: until it first succeeds, a slow call prints the text.

    Later calls aren't watched: usually only the first one sends a request to the registry.
    """
    first = True

    def patient(given: T) -> R:
        nonlocal first
        if not first:
            return call(given)
        with telling_of_waiting(text, after):
            made = call(given)
        first = False
        return made

    return patient


@contextlib.contextmanager
def perhaps_unread() -> Iterator[None]:
    """Ignore a pipe that its reader has closed (`| head`) while this block prints."""
    try:
        yield
    except BrokenPipeError:
        pass
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):  # Rich raises SystemExit
            raise


@dataclass(slots=True)
class Ending:
    """Signal that ended a command."""

    terminated: bool = False
    """Whether the signal was SIGTERM, after which the exit status is 0."""


@contextlib.contextmanager
def terminable() -> Iterator[Ending]:
    """Let SIGTERM end the command in order, as Ctrl-C does, but with exit status 0.

    Enter this context before the first client is created, so that no signal is missed.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return

    def handler(number: int, frame: FrameType | None) -> None:
        ending.terminated = True
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
            raise KeyboardInterrupt  # background jobs of a shell ignore SIGINT
        signal.raise_signal(signal.SIGINT)  # clients can defer this signal

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield ending
    except KeyboardInterrupt:
        if not ending.terminated:
            raise
        raise typer.Exit(0) from None
    finally:
        signal.signal(signal.SIGTERM, before)
