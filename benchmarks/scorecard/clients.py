"""The libraries, and how their drivers are built and started.

In: a name. Out: a command for each library, or the reason why it can't run. The Python clients have
a separate venv (`benchmarks/requirements.lock`); `drivers/build` builds the drivers in Java and Go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import building
from benchmarks.scorecard.drivers import build

HERE = Path(__file__).resolve().parent
DRIVERS = HERE / "drivers"
LOCK = HERE.parent / "requirements.lock"


class NotRunError(Exception):
    """A library can't run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Client:
    """A library, which is one column of the scorecard."""

    key: str
    title: str
    command: Callable[[], list[str]]
    """Prepares the driver and returns its command; raises `NotRunError`."""


def _this_python() -> list[str]:
    """Return the Python that runs this program, in which Odradek is installed."""
    return [sys.executable]


def _peers_python() -> list[str]:
    """Return the Python of the venv with the other Python clients; create it if necessary."""
    return _command(building.python_with(build.GROUP, LOCK))


def _command(built: building.Built) -> list[str]:
    if built.command is None:
        raise NotRunError(built.reason)
    return built.command


def _python_driver(name: str, python: Callable[[], list[str]]) -> Callable[[], list[str]]:
    return lambda: [*python(), str(DRIVERS / f"{name}_driver.py")]


def _built(make: Callable[[], building.Built]) -> Callable[[], list[str]]:
    return lambda: _command(make())


_ALL = (
    Client("odradek", "Odradek", _python_driver("odradek", _this_python)),
    Client("odradek-asyncio", "Odradek, asyncio", _python_driver("odradek_asyncio", _this_python)),
    Client("java", "Java", _built(build.java_command)),
    Client("confluent", "confluent-kafka", _python_driver("confluent", _peers_python)),
    Client("aiokafka", "aiokafka", _python_driver("aiokafka", _peers_python)),
    Client("kafka-python", "kafka-python", _python_driver("kafka_python", _peers_python)),
    Client("franz-go", "franz-go", _built(partial(build.go_command, "franz-go"))),
    Client("sarama", "Sarama", _built(partial(build.go_command, "sarama"))),
)
CLIENTS: dict[str, Client] = {client.key: client for client in _ALL}
