"""The clients that can take part, and which of them are installed.

In: nothing. Out: `PeerLibrary`s. Must not: import any of them; each is imported in its own process
only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class PeerLibrary:
    """One client library."""

    name: str
    """As pip knows it."""
    package: str
    """As Python imports it."""
    reader: str
    """The module with its plain reader."""
    colour: str

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        return find_spec(self.package) is not None

    @property
    def title(self) -> str:
        """Name and version."""
        try:
            return f"{self.name} {version(self.name)}"
        except PackageNotFoundError:  # a fork under another name
            return self.name


OURS = PeerLibrary("odradek", "odradek", "odradek.cli.demo.versus.odradek_reader", "#1f77b4")
OURS_IN_LOOP = replace(OURS, reader="odradek.cli.demo.versus.odradek_asyncio_reader")
OTHERS = (
    PeerLibrary(
        "confluent-kafka", "confluent_kafka", "odradek.cli.demo.versus.confluent_reader", "#e67e00"
    ),
    PeerLibrary("aiokafka", "aiokafka", "odradek.cli.demo.versus.aiokafka_reader", "#7d3c98"),
    PeerLibrary("kafka-python", "kafka", "odradek.cli.demo.versus.kafka_python_reader", "#2a8a3e"),
)


def how_to_install(missing: list[PeerLibrary]) -> str:
    """A sentence about those that aren't there."""
    names = [peer.name for peer in missing]
    return (
        f"not installed: {', '.join(names)}; to let them take part: pip install {' '.join(names)}"
    )
