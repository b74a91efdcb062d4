"""The libraries and how their drivers are made and started.

In: a cache directory. Out: for each library a command, or the reason why it can't run here. Python
peers get a venv of their own from `requirements.lock`; `drivers/build` makes those in Java and Go.
Whatever is made is made once.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from benchmarks.scorecard.drivers import build

from odradek.testing.java import cache_directory

HERE = Path(__file__).resolve().parent
DRIVERS = HERE / "drivers"
LOCK = HERE / "requirements.lock"
SETUP_TIMEOUT = 900.0


class NotRunError(Exception):
    """A library can't run here; the text says why."""


@dataclass(frozen=True, slots=True)
class Client:
    """One column."""

    key: str
    title: str
    command: Callable[[], list[str]]
    """Makes what is needed and returns the driver's command. Raises `NotRunError`."""


def scorecard_cache() -> Path:
    """Where peers are installed: in the user's cache, beside the jars of local clusters."""
    directory = cache_directory() / "scorecard"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    try:
        subprocess.run(
            [str(part) for part in command],
            check=True,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=SETUP_TIMEOUT,
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()
        raise NotRunError(f"its set-up failed: {' '.join(said[-2:])[:300]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotRunError(f"its set-up failed: {error}") from None


@cache
def _peers_python() -> Path:
    """The Python of the venv with the Python peers; made when it isn't there."""
    key = hashlib.sha256(sys.version.encode() + LOCK.read_bytes()).hexdigest()[:16]
    venv = scorecard_cache() / f"python-{key}"
    python = venv / "bin" / "python"
    done = venv / "complete"
    if not done.exists():
        shutil.rmtree(venv, ignore_errors=True)
        _run(sys.executable, "-m", "venv", venv)
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--require-hashes", "--requirement", LOCK)  # fmt: skip
        done.touch()
    return python


def _python_driver(name: str, python: Callable[[], Path]) -> Callable[[], list[str]]:
    return lambda: [str(python()), str(DRIVERS / f"{name}_driver.py")]


def _built(make: Callable[[], build.Built]) -> Callable[[], list[str]]:
    def command() -> list[str]:
        built = make()
        if built.command is None:
            raise NotRunError(built.reason)
        return built.command

    return command


_ALL = (
    Client("odradek", "Odradek", _python_driver("odradek", lambda: Path(sys.executable))),
    Client("java", "Java", _built(build.java_command)),
    Client("confluent", "confluent-kafka", _python_driver("confluent", _peers_python)),
    Client("aiokafka", "aiokafka", _python_driver("aiokafka", _peers_python)),
    Client("kafka-python", "kafka-python", _python_driver("kafka_python", _peers_python)),
    Client("franz-go", "franz-go", _built(partial(build.go_command, "franz-go"))),
    Client("sarama", "Sarama", _built(partial(build.go_command, "sarama"))),
)
CLIENTS: dict[str, Client] = {client.key: client for client in _ALL}
