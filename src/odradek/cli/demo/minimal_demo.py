"""The simulated demo without the extra `cli`: it needs neither typer nor rich.

In: command-line arguments. Out: the timeline as lines on stdout, the picture, an exit status. So
users who installed Odradek without extras can run the demo at once; `command` has all other flags.
Must not: import typer, rich or Arrow.
"""

from __future__ import annotations

import argparse
import json as jsonlib
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from odradek.common.errors import KafkaError

if TYPE_CHECKING:
    from odradek.cli.demo.simulated import Story

SECONDS, BROKERS, SEED = 60.0, 3, 1
INTERRUPTED = 130


class DemoOutcome(Protocol):
    """Interface of the results of all kinds of demos."""

    @property
    def ok(self) -> bool:
        """Whether the exit status is 0."""

    def summary(self) -> dict[str, Any]:
        """Return names and values, to be printed line by line."""

    def closing(self) -> list[str]:
        """Return sentences to be printed before the summary."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""


class UnknownError(Exception):
    """The arguments aren't those of the simulated demo."""


class Silent(argparse.ArgumentParser):
    """Argument parser that raises `UnknownError` instead of printing errors."""

    def error(self, message: str) -> NoReturn:
        raise UnknownError(message)


def asked(words: Sequence[str]) -> argparse.Namespace | None:
    """Return the arguments of the simulated demo if all flags are known here; else None."""
    parser = Silent(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("command", choices=["demo"])
    parser.add_argument("--simulated", action="store_true", required=True)
    parser.add_argument("--asyncio", action="store_true")
    parser.add_argument("--output", type=Path)
    try:
        given, more = parser.parse_known_args(words)
    except (argparse.ArgumentError, UnknownError):
        return None
    return None if more else given


def run(given: argparse.Namespace) -> int:
    """Run the demo and print its timeline; return the exit status."""
    logging.getLogger("odradek").addHandler(logging.NullHandler())  # the timeline replaces the log
    folder = results_folder(given.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        outcome = story(folder, tell, in_loop=given.asyncio)
        finish(outcome, folder, print)
    except BrokenPipeError:  # the reader of the output closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KafkaError, OSError) as error:
        sys.stderr.write(f"the demo failed: {type(error).__name__}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; everything that the demo started has been stopped\n")
        return INTERRUPTED
    return 0 if outcome.ok else 1


def tell(at: float, text: str, *, style: str = "") -> None:
    """Print a line of the timeline; `at` in seconds since the start. A style is for terminals."""
    print(f"{at:7.2f} s  {text}")


def results_folder(given: Path | None) -> Path:
    """Return the folder for results."""
    return (given or Path("artifacts") / time.strftime("demo-%Y%m%d-%H%M%S")).resolve()


def story(
    folder: Path,
    tell: Callable[..., None],
    *,
    in_loop: bool,
    rows: int | None = None,
    seconds: float = SECONDS,
    brokers: int = BROKERS,
    seed: int = SEED,
) -> Story:
    """Run the simulated demo, and draw its picture."""
    from odradek.cli.demo import svg
    from odradek.cli.demo.sample import FlightSample
    from odradek.cli.demo.simulated import Simulated

    made: type[Simulated] = Simulated
    if in_loop:
        from odradek.cli.demo.simulated_loop import SimulatedLoop

        made = SimulatedLoop
    told = made(FlightSample(rows), tell, seconds=seconds, brokers=brokers, seed=seed).run()
    svg.write(told.picture, folder / "demo.svg")
    return told


def finish(outcome: DemoOutcome, folder: Path, say: Callable[[str], object]) -> None:
    """Print the result, and write it beside the picture."""
    for line in outcome.closing():
        say(line)
    for name, value in outcome.summary().items():
        say(f"{name:>22}  {value}")
    say(f"results, timeline and picture: {folder}")
    (folder / "result.json").write_text(jsonlib.dumps(outcome.to_dict(), indent=2) + "\n")
