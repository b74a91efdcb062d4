"""Run the processes of one Kafka cluster: format, start, stop and move the brokers.

In: a keeper (the process that owns all others), a Java with jars, a directory, a number of brokers.
Out: brokers that answer, or a `ClusterStartError` with the tail of a log. Must not: know the
bootstrap address (`LocalCluster` does). To check whether the cluster is ready, the brokers
themselves are asked: each must return all running brokers at their present addresses, a controller,
and (if all brokers run) a leader for every partition.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.common.types import Address
from odradek.runtime.private_files import write_privately
from odradek.runtime.system_clock import monotonic
from odradek.testing.brokers import probe
from odradek.testing.brokers.broker import (
    BROKER_CLASS,
    JavaSetup,
    LocalBroker,
    free_addresses,
    random_kafka_id,
    write_log4j,
)
from odradek.testing.brokers.process import Exit, Keeper
from odradek.testing.brokers.security import Security, properties_text
from odradek.testing.errors import ClusterStartError, ToolError

_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 30.0
_NO_QUORUM_GRACE_S = 2.0
_FREEZE_TIMEOUT_S = 10.0
_TOOL_TIMEOUT_S = 60.0
_TOPIC_TIMEOUT_S = 60.0
_POLL_S = 0.03
_START_POLL_S = 0.1  # more frequent requests would slow the start down
_LISTENING_POLL_S = 0.01  # refused connection attempts don't slow the start down
# REQUEST_TIMED_OUT, NOT_CONTROLLER: the brokers are electing a controller.
_LATER = (7, 41)
_EXISTS = 36
_NETWORK_THREADS = 4  # more threads than brokers really have


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """Event of the cluster, with its time on the wall clock and the monotonic clock.

    `name` is one of `broker_started` (the process exists), `broker_listening` (it accepts
    connections; checked every 10 ms), `broker_up` (it answers), `broker_exited`, `broker_paused`,
    `broker_resumed`, `cluster_up` (all brokers answer and every partition has a leader),
    `move_started`, `moved`, `foreign_started` and `foreign_up` (another cluster replaces this one),
    `restored`.
    """

    name: str
    broker: int | None
    wall: float
    monotonic: float


class Timeline(list[TimelineEvent]):
    """Events of the cluster in the order in which they were noticed."""

    def add(self, name: str, broker: int | None = None, ended: Exit | None = None) -> None:
        """Append an event with the present time, or with the end time of a process."""
        wall = ended.wall if ended else time.time()
        at = ended.monotonic if ended else monotonic()
        self.append(TimelineEvent(name, broker, wall, at))


class BrokerSet:
    """The brokers of one cluster and their processes."""

    def __init__(
        self,
        *,
        keeper: Keeper,
        java: JavaSetup,
        directory: Path,
        count: int,
        config: Mapping[str, str],
        timeline: Timeline,
        security: Security | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self._keeper = keeper
        self._java = java
        self._config = dict(config)
        self._security = security = security or Security("PLAINTEXT")
        self._login = security.inner_login
        self._java_options = (*security.java_options, *java_options)
        self._timeline = timeline
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        write_log4j(directory / "broker-log4j2.properties", "info")
        write_log4j(directory / "tool-log4j2.properties", "warn")
        places = self._places(_other_network(""), count)
        self.brokers = [
            LocalBroker(node_id, directory / f"broker-{node_id}", *places[node_id])
            for node_id in range(count)
        ]
        self.cluster_id = self._remembered() or random_kafka_id()

    def format(self) -> None:
        """Format the storage of every broker; already formatted storage keeps its data."""
        for broker in self.brokers:
            broker.directory.mkdir(exist_ok=True)
        self._write_properties()
        if self._remembered():
            return
        # Storage contains users and unstable features, so it can't be reused for clusters with
        # them.
        asks = any(name.startswith("unstable.") for name in self._config)
        alike = not asks and not self._security.format_arguments()
        source, first = self._java.formatted, 0
        if not alike or not source.is_dir():
            source, first = self._run_format_tool(), 1
            if alike:
                self._keep_formatted(source)
        for broker in self.brokers[first:]:
            broker.copy_format_from(source, self.cluster_id)
        (self.directory / "cluster.json").write_text(
            json.dumps({"cluster_id": self.cluster_id, "brokers": len(self.brokers)})
        )

    def _run_format_tool(self) -> Path:
        """Format the first broker's storage; return its path."""
        first, users = self.brokers[0], self._security.format_arguments()
        arguments = ["format", "-t", self.cluster_id, "-c", str(first.properties), *users]
        try:
            self.run_tool("kafka.tools.StorageTool", arguments)
        except ToolError as error:
            raise ClusterStartError(
                f"the brokers' storage could not be formatted: {error}"
            ) from error
        return first.directory / "data"

    def _keep_formatted(self, source: Path) -> None:
        """Keep formatted storage in the cache, so that later clusters needn't run the tool."""
        kept = self._java.formatted
        temporary = kept.with_name(f"{kept.name}.{self._keeper.pid}")
        shutil.copytree(source, temporary)
        try:
            temporary.rename(kept)
        except OSError:  # another process stored them first
            shutil.rmtree(temporary)

    def start_all(self) -> None:
        """Start every broker and wait until the cluster is ready."""
        self.spawn_all()
        self.wait_ready()

    def spawn_all(self) -> None:
        """Start every broker's process without waiting until it answers."""
        for broker in self.brokers:
            self.spawn(broker)

    def spawn(self, broker: LocalBroker, *options: str) -> None:
        """Start a broker's process without waiting until it answers."""
        if broker.running:
            raise RuntimeError(f"broker {broker.node_id} is already running")
        child = self._keeper.spawn(
            self._java.command(
                BROKER_CLASS,
                [str(broker.properties)],
                self.directory / "broker-log4j2.properties",
                *self._java_options,
                *options,
            ),
            stdout=broker.log,
            cwd=broker.directory,
            on_exit=lambda ended: self._timeline.add("broker_exited", broker.node_id, ended),
        )
        broker.started(child)
        self._timeline.add("broker_started", broker.node_id)

    def wait_ready(self, timeout: float = _START_TIMEOUT_S) -> None:
        """Wait until all running brokers agree on the members and leaders of the cluster."""
        deadline = monotonic() + timeout
        waiting = [one for one in self.brokers if one.running and not one.paused]
        expected = {one.node_id: one.plain_address for one in waiting}
        lacks: dict[int, str] = {}
        while waiting:
            for broker in list(waiting):
                if not broker.running:
                    raise ClusterStartError(self._failure(broker, "ended while starting"))
                view = probe.ask(broker.plain_address, login=self._login)
                if view is not None and broker.answers():
                    self._note_listening([broker])
                    self._timeline.add("broker_up", broker.node_id)
                lacks[broker.node_id] = self._lacks(view, expected)
                if not lacks[broker.node_id]:
                    waiting.remove(broker)
            if waiting and monotonic() > deadline:
                why = lacks[waiting[0].node_id]
                raise ClusterStartError(
                    self._failure(waiting[0], f"is not ready after {timeout:.0f} s ({why})")
                )
            asked_again = monotonic() + _START_POLL_S
            while waiting and monotonic() < asked_again:
                self._note_listening(waiting)
                time.sleep(_LISTENING_POLL_S)
        self._timeline.add("cluster_up")

    def _note_listening(self, brokers: Iterable[LocalBroker]) -> None:
        """Note which of these brokers have begun to accept connections."""
        for broker in brokers:
            if not broker.listens and probe.accepts(broker.plain_address):
                broker.accepted()
                self._timeline.add("broker_listening", broker.node_id)

    def stop(self, brokers: Iterable[LocalBroker], *, graceful: bool) -> None:
        """Stop these brokers' processes with a signal and wait until they have ended."""
        stopping = [one for one in brokers if one.running]
        for broker in stopping:
            self._signal(broker, signal.SIGTERM if graceful else signal.SIGKILL)
            if broker.paused:  # SIGTERM has no effect before SIGCONT
                self._go_on(broker)
        deadline = monotonic() + _STOP_TIMEOUT_S
        for broker in stopping:
            if not _ended(broker, deadline - monotonic()):
                self._signal(broker, signal.SIGKILL)
                _ended(broker, _STOP_TIMEOUT_S)
            if 2 * sum(one.running for one in self.brokers) <= len(self.brokers):
                # A broker that shuts down cleanly asks the controllers for permission; without a
                # quorum of controllers, it would retry for minutes.
                deadline = min(deadline, monotonic() + _NO_QUORUM_GRACE_S)

    def pause(self, broker: LocalBroker) -> None:
        """Pause a broker (SIGSTOP): its connections stay open, but it doesn't answer."""
        self._require_running(broker)
        self._signal(broker, signal.SIGSTOP)
        broker.stopped(True)
        deadline = monotonic() + _FREEZE_TIMEOUT_S
        while not _frozen(broker) and monotonic() < deadline:
            time.sleep(_POLL_S)
        self._timeline.add("broker_paused", broker.node_id)

    def resume(self, broker: LocalBroker) -> None:
        """Resume a paused broker, unless its process has ended."""
        if not broker.paused:
            self._require_running(broker)
        self._go_on(broker)

    def move_all(self) -> None:
        """Move all (stopped) brokers to other addresses and ports, with the same data and ids."""
        network = _other_network(self.brokers[0].address.host.rsplit(".", 1)[0])
        for broker, place in zip(
            self.brokers, self._places(network, len(self.brokers)), strict=True
        ):
            broker.move(*place)
        self._write_properties()

    def swap(self, one: LocalBroker, other: LocalBroker) -> None:
        """Kill two brokers and start each at the other's addresses."""
        self.stop([one, other], graceful=False)
        one.swap_addresses(other)
        self._write_properties()
        for broker in (one, other):
            self.spawn(broker)
        self.wait_ready()

    def _places(self, network: str, count: int) -> list[tuple[Address, Address, Address | None]]:
        """Return each broker's addresses: for clients, for controllers and perhaps without TLS."""
        kinds = 3 if self._security.secured else 2
        hosts = [_host(network, node_id) for node_id in range(count) for _ in range(kinds)]
        found = list(free_addresses(hosts))
        open_too = found[2::kinds] if self._security.secured else [None] * count
        return list(zip(found[::kinds], found[1::kinds], open_too, strict=True))

    def take_addresses_of(self, other: BrokerSet) -> None:
        """Use the addresses of another cluster's (stopped) brokers from the next start on."""
        for mine, theirs in zip(self.brokers, other.brokers, strict=True):
            mine.move(theirs.address, theirs.controller_address, theirs.inner)

    def rewrite_properties(self) -> None:
        """Rewrite the configuration files after a change, which takes effect at the next start."""
        for broker in self.brokers:
            lines = {**self._security.broker_lines(broker), **self._config}
            broker.write_properties(
                self.brokers, lines, self._security.protocol, self._security.among_brokers
            )

    def rotate_certificates(self) -> None:
        """Replace every broker's key and certificate; running brokers reload them at once."""
        for broker in self.brokers:
            self._security.certify(broker)
            if broker.running:
                self.run_tool(
                    "kafka.admin.ConfigCommand",
                    [*self.inner_arguments([broker]), "--alter",
                     "--entity-type", "brokers", "--entity-name", str(broker.node_id),
                     "--add-config", self._security.reload(broker)],
                )  # fmt: skip
        self._wait_for_certificates(_START_TIMEOUT_S)

    def inner_arguments(
        self, brokers: Iterable[LocalBroker], option: str = "--command-config"
    ) -> list[str]:
        """Return arguments with which Kafka's tools connect to the brokers' inner listener.

        All operations are allowed on this listener.
        """
        servers = ",".join(str(one.plain_address) for one in brokers)
        settings = self._security.inner_java()
        if not settings:
            return ["--bootstrap-server", servers]
        path = self.directory / "inner.properties"
        write_privately(path, properties_text(settings))
        return ["--bootstrap-server", servers, option, str(path)]

    def create_topic(self, topic: str, partitions: int, copies: int) -> None:
        """Create a topic and wait until every running broker knows it and its leaders."""
        live = [one.plain_address for one in self.brokers if one.running and not one.paused]
        if not live:
            raise ToolError(f"topic {topic!r} can't be created: no broker is running")
        deadline = monotonic() + _TOPIC_TIMEOUT_S
        perhaps = False  # whether a lost response may mean that the topic was created
        for address in itertools.cycle(live):
            left = max(0.1, deadline - monotonic())
            found = probe.create_topic(address, topic, partitions, copies, left, self._login)
            code = found.error_code if found else None
            if code == 0 or (code == _EXISTS and perhaps):
                break
            if code not in (None, *_LATER) or monotonic() > deadline:
                why = f"{found.text} (error {code})" if found else "no broker answers"
                raise ToolError(f"topic {topic!r} can't be created: {why}")
            perhaps = True
            time.sleep(_POLL_S)
        for address in live:
            while not _leads(probe.ask(address, topic=topic, login=self._login)):
                if monotonic() > deadline:
                    raise ToolError(f"topic {topic!r} was created, but {address} doesn't know it")
                time.sleep(_POLL_S)

    def run_tool(
        self,
        main: str,
        arguments: Iterable[str],
        *,
        given: bytes | None = None,
        timeout: float = _TOOL_TIMEOUT_S,
        check: bool = True,
        java_options: Iterable[str] = (),
    ) -> str:
        """Run one of Kafka's Java programs and return the program's output."""
        number = sum(1 for _ in self.directory.glob("tool-*.out"))
        output = self.directory / f"tool-{number}.out"
        errors = output.with_suffix(".err")
        stdin = None
        if given is not None:
            stdin = output.with_suffix(".in")
            stdin.write_bytes(given)
        command = self._java.command(
            main, list(arguments), self.directory / "tool-log4j2.properties", *java_options
        )
        written = output.with_suffix(".args")
        try:
            child = self._keeper.spawn(
                self._java.hidden(command, written), stdout=output, stderr=errors, stdin=stdin
            )
            in_time = child.ended.wait(timeout)
            if not in_time:
                self._keeper.signal(child, signal.SIGKILL)
                child.ended.wait(_STOP_TIMEOUT_S)
        finally:
            written.unlink(missing_ok=True)
        text = output.read_text(errors="replace")
        if not in_time or (check and (child.exit is None or child.exit.status != 0)):
            how = f"exit status {child.exit.status}" if child.exit and in_time else "too slow"
            raise ToolError(f"{main} failed ({how}):\n{text}{errors.read_text(errors='replace')}")
        return text

    def train_archive(self) -> None:
        """Run a broker once, so that the JVM writes an archive of the loaded classes.

        Later starts map the archive instead of reading and verifying 45 jars, which halves their
        time.
        """
        target = self._java.archive
        if not (self._java.home / "lib" / "server" / "classes.jsa").exists():
            return  # a Java without such a file can't create archives
        temporary = self.directory / "classes.jsa"
        broker = self.brokers[0]
        self.spawn(broker, f"-XX:ArchiveClassesAtExit={temporary}")
        self.wait_ready()
        self.stop([broker], graceful=True)
        if temporary.is_file():
            shutil.move(temporary, f"{target}.{self._keeper.pid}")
            Path(f"{target}.{self._keeper.pid}").replace(target)

    def _wait_for_certificates(self, timeout: float) -> None:
        """Wait until every network thread of each broker uses the new certificate.

        Brokers confirm the change before they have read the file, and each network thread reads it
        separately; connections are distributed round-robin to these threads.
        """
        deadline = monotonic() + timeout
        for broker in self.brokers:
            seen = 0
            while broker.running and seen < 2 * _NETWORK_THREADS:
                seen = seen + 1 if self._security.shows_certificate(broker) else 0
                if monotonic() > deadline:
                    raise ToolError(self._failure(broker, "doesn't use its new certificate"))
                time.sleep(0 if seen else _POLL_S)

    def _signal(self, broker: LocalBroker, number: signal.Signals) -> None:
        if broker.child is not None:
            self._keeper.signal(broker.child, number)

    def _go_on(self, broker: LocalBroker) -> None:
        """Resume a paused process; from then on the broker doesn't count as paused."""
        if broker.running:
            self._signal(broker, signal.SIGCONT)
            self._timeline.add("broker_resumed", broker.node_id)
        broker.stopped(False)

    def _require_running(self, broker: LocalBroker) -> None:
        if not broker.running:
            raise RuntimeError(f"broker {broker.node_id} isn't running")

    def _write_properties(self) -> None:
        for broker in self.brokers:
            self._security.certify(broker)
        self.rewrite_properties()

    def _lacks(self, view: probe.ClusterView | None, expected: dict[int, Address]) -> str:
        """Return what is missing in a broker's view of the cluster; "" if nothing is missing."""
        if view is None:
            return "it does not answer"
        if view.controller < 0:
            return "it doesn't know the controller"
        absent = [node for node, address in expected.items() if view.brokers.get(node) != address]
        if absent:
            return f"it does not know the current addresses of brokers {absent}"
        # If brokers are down, a test may want partitions without a leader.
        if view.leaderless and len(expected) == len(self.brokers):
            return f"partitions without a leader: {view.leaderless}"
        return ""

    def _failure(self, broker: LocalBroker, what: str) -> str:
        return (
            f"broker {broker.node_id} at {broker.address} {what}; "
            f"the end of its log ({broker.log}):\n{broker.log_tail()}"
        )

    def _remembered(self) -> str | None:
        """Return the cluster id that an earlier run has stored in this directory."""
        path = self.directory / "cluster.json"
        if not path.is_file():
            return None
        stored = json.loads(path.read_text())
        if stored["brokers"] != len(self.brokers):
            raise RuntimeError(
                f"{self.directory} contains a cluster of {stored['brokers']} brokers, not of "
                f"{len(self.brokers)}"
            )
        return str(stored["cluster_id"])


def _leads(view: probe.ClusterView | None) -> bool:
    """Return whether a broker knows the requested topics, with a leader for each partition.

    If a broker learns of a new topic only later, tests with this broker become slow.
    """
    return view is not None and not view.refused and not view.leaderless


def _ended(broker: LocalBroker, timeout: float) -> bool:
    return broker.child is None or broker.child.ended.wait(max(0.0, timeout))


def _frozen(broker: LocalBroker) -> bool:
    """Return whether all threads of a process have stopped; they stop one after the other.

    Also return True if the process has ended, or if the system has no /proc.
    """
    if broker.child is None or not broker.child.alive:
        return True
    try:
        stats = [path.read_text() for path in Path(f"/proc/{broker.child.pid}/task").glob("*/stat")]
    except OSError:
        return not Path(f"/proc/{broker.child.pid}").is_dir()  # a thread ended meanwhile: retry
    return all(text[text.rindex(")") + 2] in "TtZX" for text in stats)


def _other_network(present: str) -> str:
    """Return the first three bytes of a loopback address that differs from the present ones."""
    while True:
        found = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"
        if found != present:
            return found


def _host(network: str, node_id: int) -> str:
    return f"{network}.{10 + node_id}"
