"""Files, command line and class data archive of a single local broker.

In: a node id, addresses, a directory, the jars. Out: properties files, command lines, log tails.
Must not: start or signal anything by itself; `LocalCluster` does, through the keeper.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.common.types import Address
from odradek.runtime.private_files import write_privately
from odradek.testing.brokers.process import Child

BROKER_CLASS = "kafka.Kafka"
_TOOLS = ("org.apache.kafka.tools.", "kafka.admin.")
_LOG_TAIL_LINES = 30
_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{ISO8601}} %p %c{{1.}} %m%n
# 300 lines of configuration at every start would hide what matters.
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
"""

# Settings for a broker that starts fast, runs for some minutes and shares two CPU cores.
_SMALL = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    # Until its session has expired, a killed broker that is restarted is refused
    # (DUPLICATE_BROKER_REGISTRATION); with Kafka's 9 s, every restart would take that long.
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",  # Kafka's default, 128 MiB, is a third of the heap
    # Kafka's default of a week would delete records with old timestamps 30 s after the start.
    "log.retention.ms": "-1",
    # Otherwise the controller writes two no-op records per second, which three brokers read: half
    # of the CPU time of an idle cluster.
    "metadata.max.idle.interval.ms": "0",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}

# The second JIT compiler and the parallel collector cost more CPU time than they save within
# minutes; the same is true for compiling code that has run only a few hundred times.
SMALL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=3", "-XX:+UseSerialGC")
CLIENT_LISTENER = "CLIENT"
"""Name of the listener for clients; a cluster without security has only this listener."""

# Options of Kafka's start scripts, without diagnostics.
FULL_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)


def random_kafka_id() -> str:
    """Return a cluster or directory id as Kafka writes them: 16 bytes in URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # Kafka's tools take "-…" for an option
            return text


def free_port(host: str) -> int:
    """Return a free port at the loopback address `host`."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def free_addresses(hosts: Iterable[str]) -> Iterator[Address]:
    """Yield a free address on each of these loopback hosts, in order.

    All ports differ, even if the system returns one twice: Kafka rejects two listeners of a broker
    with the same port, even on different hosts, and brokers may swap addresses.
    """
    taken: set[int] = set()
    for host in hosts:
        while (port := free_port(host)) in taken:
            pass
        taken.add(port)
        yield Address(host, port)


@dataclass(slots=True, eq=False)
class LocalBroker:
    """A combined broker and controller: its addresses, files and process."""

    node_id: int
    directory: Path
    address: Address
    controller_address: Address
    inner: Address | None = None
    """Address of the listener without TLS for brokers and Kafka's tools, in a secured cluster."""
    child: Child | None = None
    paused: bool = False
    answered: bool = False
    listens: bool = False

    def started(self, child: Child) -> None:
        """Note that a process was started for this broker."""
        self.child = child
        self.paused = self.answered = self.listens = False

    def answers(self) -> bool:
        """Note that the broker answers; return True for its first answer since its start."""
        before, self.answered = self.answered, True
        return not before

    def accepted(self) -> None:
        """Note that the broker accepts connections."""
        self.listens = True

    def stopped(self, on: bool) -> None:
        """Note that the process was stopped by SIGSTOP, or continued."""
        self.paused = on

    def move(self, address: Address, controller_address: Address, inner: Address | None) -> None:
        """Set the addresses that the broker uses from its next start on."""
        self.address, self.controller_address, self.inner = address, controller_address, inner

    def swap_addresses(self, other: LocalBroker) -> None:
        """Swap the client addresses with another broker."""
        self.address, other.address = other.address, self.address
        self.inner, other.inner = other.inner, self.inner

    @property
    def properties(self) -> Path:
        """The broker's configuration file, rewritten whenever addresses change."""
        return self.directory / "server.properties"

    @property
    def log(self) -> Path:
        """Log file with the broker's output of all its starts."""
        return self.directory / "broker.log"

    @property
    def running(self) -> bool:
        """Whether the broker's process exists, including a paused one."""
        return self.child is not None and self.child.alive

    @property
    def plain_address(self) -> Address:
        """The address of a listener without TLS: the inner one if there is one."""
        return self.inner or self.address

    def write_properties(
        self,
        voters: Sequence[LocalBroker],
        config: Mapping[str, str],
        protocol: str = "PLAINTEXT",
        among_brokers: str = "PLAINTEXT",
    ) -> None:
        """Write the configuration file with the current addresses of all brokers."""
        copies = str(min(3, len(voters)))
        enough = str(min(2, len(voters)))
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(
                f"{one.node_id}@{one.controller_address}" for one in voters
            ),
            **self._listeners(protocol, among_brokers),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "data"),
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "share.coordinator.state.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "min.insync.replicas": enough,
            "share.coordinator.state.topic.min.isr": enough,
            "transaction.state.log.min.isr": enough,
            **_SMALL,
            **config,
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        write_privately(self.properties, text)

    def _listeners(self, protocol: str, among_brokers: str) -> dict[str, str]:
        """Return the listener properties; the inter-broker listener never uses TLS."""
        open_at = f"PLAINTEXT://{self.address}"
        names = "PLAINTEXT:PLAINTEXT"
        more = {}
        if self.inner is not None:
            open_at = f"{CLIENT_LISTENER}://{self.address},INNER://{self.inner}"
            names = f"{CLIENT_LISTENER}:{protocol},INNER:{among_brokers}"
            more = {"inter.broker.listener.name": "INNER"}
        return {
            "listeners": f"{open_at},CONTROLLER://{self.controller_address}",
            "advertised.listeners": open_at,
            "listener.security.protocol.map": f"{names},CONTROLLER:{among_brokers}",
            **more,
        }

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """Return the last lines of the log, for an error message."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def copy_format_from(self, source: Path, cluster_id: str) -> None:
        """Copy storage that was formatted with the same configuration, and set this broker's ids.

        The format tool would start a JVM for each broker, although the files that it writes differ
        only in the ids: with static voters nothing else depends on the broker or the cluster.
        """
        target = self.directory / "data"
        shutil.copytree(source, target)
        properties = target / "meta.properties"
        kept = [
            line
            for line in properties.read_text().splitlines()
            if not line.startswith(("cluster.id=", "node.id=", "directory.id=", "#"))
        ]
        ids = {"cluster.id": cluster_id, "node.id": self.node_id, "directory.id": random_kafka_id()}
        kept += [f"{name}={value}" for name, value in ids.items()]
        properties.write_text("\n".join(kept) + "\n")


@dataclass(frozen=True, slots=True)
class JavaSetup:
    """A Java installation and Kafka's jars; builds command lines."""

    home: Path
    jars: Path
    cache: Path
    heap: str = "384m"
    options: Sequence[str] = SMALL_JVM
    tools: Callable[[], Path] | None = None
    """Function that returns the directory of the console tools' jars, if `jars` lacks them."""

    @property
    def archive(self) -> Path:
        """The class data archive for this Java and these jars; the JVM checks that it matches."""
        release = self.home / "release"
        identity = f"{self.home}:{release.read_text() if release.is_file() else ''}:{self.jars}"
        name = f"classes-{self.jars.name}-{zlib.crc32(identity.encode()):08x}.jsa"
        return self.cache / name

    @property
    def formatted(self) -> Path:
        """Directory with storage that the format tool of these jars has formatted."""
        return self.cache / f"formatted-{self.jars.name}"

    def hidden(self, command: Sequence[str], file: Path) -> list[str]:
        """Return the command with its arguments moved to a file, so that `ps` doesn't show them.

        Arguments of Kafka's tools may contain passwords, and every user can run `ps`.
        """
        quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in command[1:])
        text = "".join(f'"{word}"\n' for word in quoted)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(text)
        return [command[0], f"@{file}"]

    def command(self, main: str, arguments: Sequence[str], log4j: Path, *options: str) -> list[str]:
        """Return the command line of a Kafka main class."""
        folder = self.jars
        if main.startswith(_TOOLS) and self.tools is not None:
            folder = self.tools()
        elif self.archive.is_file():
            # with `auto`, the JVM silently ignores an archive that doesn't match
            options = (*options, f"-XX:SharedArchiveFile={self.archive}", "-Xshare:auto")
        return [
            str(self.home / "bin" / "java"), f"-Xmx{self.heap}",
            *self.options,
            "-Djava.awt.headless=true", "-Dlog4j2.disable.jmx=true",
            f"-Dlog4j2.configurationFile={log4j}", *options,
            "-cp", f"{folder}/*", main, *arguments,
        ]  # fmt: skip


def write_log4j(path: Path, level: str) -> None:
    """Write a logging configuration; without a configuration, Log4j logs only errors."""
    path.write_text(_LOG4J.format(level=level))
