"""Run real Kafka brokers with one fixed bootstrap address, and cause faults: `LocalCluster`.

In: a number of brokers, a Kafka version. Out: `bootstrap_servers`, and faults of the brokers. Must
not: leave a process or a temporary directory, however it ends (`keeper` takes care of that), or use
Odradek's client.

    with LocalCluster(brokers=3) as cluster:
        producer = odradek.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.move()
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from odradek.runtime.private_files import write_privately
from odradek.testing import jars
from odradek.testing.brokers.broker import FULL_JVM, SMALL_JVM, JavaSetup, LocalBroker
from odradek.testing.brokers.broker_set import BrokerSet, Timeline
from odradek.testing.brokers.front_door import FrontDoor
from odradek.testing.brokers.process import Keeper
from odradek.testing.brokers.security import ClientCertificates, Protocol, Security, properties_text
from odradek.testing.java import java_home, own_cache

if TYPE_CHECKING:
    from odradek.testing.brokers.authority import Authority, Kind

_LARGEST = 30  # IP addresses end in 10 + node id; more JVMs need too much memory


class LocalCluster:
    """A real Kafka cluster on loopback: `brokers` combined KRaft brokers, with ids from 0.

    `version` may be short ("4.3"); Odradek must contain a list of its jars. `config` is added to
    every broker's properties. With a `directory` the data is kept there and used again by the next
    cluster of the same size; otherwise it is temporary. `port` sets the port of the bootstrap
    address. The brokers start quickly and need little memory; `full_jvm` runs them as Kafka's own
    scripts do, for benchmarks.

    `security`: the protocol for clients: SSL, SASL_SSL or SASL_PLAINTEXT. Certificates, keys and
    `users` (name: password) are created; `client_config`, `java_properties` and `librdkafka_config`
    return settings for clients. `mutual_tls`: client certificates are "required" or "requested".
    `acls`: users only have the permissions granted with `allow`. `jwks`: OAUTHBEARER accepts tokens
    signed by a key from this URL instead of unsigned ones. Connections between brokers and those
    of Kafka's tools use separate listeners without TLS (`inner_servers`), which require a password
    with `acls`.

    Raises `ClusterStartError` if the cluster can't be started.

        with LocalCluster(brokers=3) as cluster:
            producer = odradek.Producer({"bootstrap.servers": cluster.bootstrap_servers})
            cluster.move()
    """

    def __init__(
        self,
        brokers: int = 3,
        version: str = jars.DEFAULT_VERSION,
        *,
        auto_create_topics: bool = False,
        config: Mapping[str, str] | None = None,
        directory: Path | None = None,
        heap: str = "384m",
        full_jvm: bool = False,
        port: int = 0,
        security: Protocol = "PLAINTEXT",
        mechanisms: Sequence[str] = (),
        users: Mapping[str, str] | None = None,
        mutual_tls: ClientCertificates | Literal[False] = False,
        acls: bool = False,
        jwks: str | None = None,
        java_options: Sequence[str] = (),
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not 1 <= brokers <= _LARGEST:
            raise ValueError(f"brokers must be 1 to {_LARGEST}, not {brokers}")
        self.version = jars.resolve_version(version)
        self.timeline = Timeline()
        self._count = brokers
        self._config = dict(config or {})
        if auto_create_topics:
            self._config["auto.create.topics.enable"] = "true"
        self._kept = directory.resolve() if directory is not None else None
        self._heap = heap
        self._options = FULL_JVM if full_jvm else SMALL_JVM
        self._security = Security(security, mechanisms, users or {}, mutual_tls, acls, jwks)
        self._java_options = tuple(java_options)
        self._report = report
        self._door = FrontDoor(port=port)
        self._keeper: Keeper | None = None
        self._java: JavaSetup | None = None
        self._directory = Path()
        self._original: BrokerSet | None = None
        self._current: BrokerSet | None = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Fetch missing files, start all brokers and wait until they answer."""
        if self._keeper is not None:
            raise RuntimeError("the cluster is already open")
        # Bind the port first, so that of two starts with the same port one fails before formatting.
        self._door.start()
        try:
            home = java_home()  # before a download that would be useless without Java
            folder = jars.fetch(self.version, self._report)
            self._java = JavaSetup(
                home,
                folder,
                own_cache(),
                self._heap,
                self._options,
                self._tools if self.version in jars.TOOLS_OF else None,
            )
            self._keeper = Keeper()
            temporary = Path(tempfile.mkdtemp(prefix="odradek-cluster-"))
            self._keeper.remove_at_end(temporary)
            self._directory = self._kept or temporary
            self._prepare_archive(temporary)
            self._security.prepare(self._directory)
            many = f"{self._count} broker{'s' * (self._count != 1)}"
            self._report(f"starting {many} of Kafka {self.version}")
            self._original = self._current = self._new_set(self._directory)
            self._original.format()
            self._original.start_all()
            self._lead()
        except BaseException:  # including KeyboardInterrupt
            self.close()
            raise
        return self

    def _tools(self) -> Path:
        """Return the console tools' jars (tens of MB), downloaded when a test first needs them."""
        return jars.fetch(jars.TOOLS_OF[self.version], self._report)

    def close(self) -> None:
        """Stop all processes and remove temporary data; may be called again."""
        keeper, self._keeper = self._keeper, None
        self._door.lead_to(())
        if keeper is not None:
            if self._kept is not None and self._current is not None:
                # Temporary data is removed anyway, so only kept data needs a clean shutdown.
                self._current.stop(self._current.brokers, graceful=True)
            keeper.close()
        self._door.close()

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap address; it never changes, even if the brokers move."""
        return str(self._door.address)

    @property
    def front_door(self) -> FrontDoor:
        """The forwarder at the bootstrap address, for tests that cut or count its connections."""
        return self._door

    @property
    def broker_addresses(self) -> tuple[str, ...]:
        """The brokers' own current addresses ("host:port") by id, running or not."""
        return tuple(str(broker.address) for broker in self._now.brokers)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that the bootstrap address leads to."""
        return self._now.cluster_id

    @property
    def directory(self) -> Path:
        """The directory of the brokers' files."""
        return self._directory

    @property
    def running(self) -> tuple[int, ...]:
        """Ids of the brokers that have a process, including paused brokers."""
        return tuple(broker.node_id for broker in self._now.brokers if broker.running)

    def pids(self) -> dict[int, int]:
        """Return the process ids of the running brokers by broker id."""
        return {
            broker.node_id: broker.child.pid
            for broker in self._now.brokers
            if broker.child is not None and broker.running
        }

    def logs(self, i: int) -> str:
        """Return the whole log of broker `i`, from all starts of the broker."""
        path = self._broker(i).log
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, i: int) -> None:
        """Kill broker `i` (SIGKILL) and wait until its process has ended."""
        self._now.stop([self._broker(i)], graceful=False)
        self._lead()

    def stop(self, i: int) -> None:
        """Shut down broker `i` (SIGTERM) and wait until its process has ended."""
        self._now.stop([self._broker(i)], graceful=True)
        self._lead()

    def start(self, i: int) -> None:
        """Start broker `i` again at its address and wait until the running brokers know it."""
        self._now.spawn(self._broker(i))
        self._now.wait_ready()
        self._lead()

    def pause(self, i: int) -> None:
        """Pause broker `i` (SIGSTOP): its connections stay open, but it doesn't answer."""
        self._now.pause(self._broker(i))

    def resume(self, i: int) -> None:
        """Resume a paused broker (SIGCONT)."""
        self._now.resume(self._broker(i))

    def move(self, *, graceful: bool = False) -> None:
        """Stop all brokers and start them at other addresses, with the same data and cluster id.

        By default, the brokers are killed; with `graceful` they shut down cleanly, and other
        brokers become leaders of their partitions first.
        """
        self.timeline.add("move_started")
        self._now.stop(self._now.brokers, graceful=graceful)
        self._lead()
        self._now.move_all()
        self._now.spawn_all()
        self._lead()  # the bootstrap address uses each broker once it accepts connections
        self._now.wait_ready()
        self.timeline.add("moved")

    def swap(self, i: int, j: int) -> None:
        """Kill two brokers and start each at the other's address, with its own data and id.

        A client with old metadata then reaches the wrong broker (KIP-1242).
        """
        self.timeline.add("swap_started")
        self._now.swap(self._broker(i), self._broker(j))
        self._lead()
        self.timeline.add("swapped")

    def replace_with_foreign(self, *, same_addresses: bool = False) -> str:
        """Stop the cluster and start a different one at the same bootstrap address.

        All methods and properties then apply to the new cluster, until `restore()`. With
        `same_addresses` its brokers use the old ones' addresses. Return the new cluster's id.
        """
        old = self._now
        if old is not self._original:
            raise RuntimeError("the cluster is already replaced; call restore() first")
        self.timeline.add("foreign_started")
        old.stop(old.brokers, graceful=False)
        self._door.lead_to(())
        foreign = self._new_set(self._directory / "foreign" / f"{len(self.timeline)}")
        if same_addresses:
            foreign.take_addresses_of(old)
        self._current = foreign
        foreign.format()
        foreign.start_all()
        self._lead()
        self.timeline.add("foreign_up")
        return foreign.cluster_id

    def restore(self) -> None:
        """Stop the replacement and start the original cluster again at its own addresses."""
        foreign, original = self._now, self._original
        if original is None or foreign is original:
            raise RuntimeError("the cluster isn't replaced: there is nothing to restore")
        foreign.stop(foreign.brokers, graceful=False)
        self._current = original
        original.start_all()
        self._lead()
        self.timeline.add("restored")

    def run_tool(
        self,
        main: str,
        arguments: Iterable[str],
        *,
        given: bytes | None = None,
        timeout: float = 60.0,
        check: bool = True,
        java_options: Iterable[str] = (),
    ) -> str:
        """Run one of Kafka's Java programs (a main class) and return its standard output.

        `arguments`: the program's arguments, with `--bootstrap-server` (see `tool_arguments`).
        `given`: the program's standard input.
        `timeout`: seconds after which the program is killed.
        `check`: whether to raise `ToolError` if the program fails.
        `java_options`: options of the JVM.

        Raises `ToolError` if the program times out.
        """
        return self._now.run_tool(
            main, arguments, given=given, timeout=timeout, check=check, java_options=java_options
        )

    def create_topic(
        self, topic: str, partitions: int = 1, replication_factor: int | None = None
    ) -> None:
        """Create a topic and wait until all running brokers know it."""
        self._now.create_topic(topic, partitions, replication_factor or min(3, self._count))

    def console_producer(self, topic: str, lines: bytes, *options: str) -> None:
        """Send lines with Kafka's console producer; `options` are passed to it unchanged."""
        self.run_tool(
            "org.apache.kafka.tools.ConsoleProducer",
            [*self.tool_arguments("--producer.config"), "--topic", topic, *options],
            given=lines,
        )

    def console_consumer(
        self, topic: str, *options: str, max_messages: int | None = None, timeout: float = 10.0
    ) -> str:
        """Read a topic from its beginning with Kafka's console consumer; return the tool's output.

        The tool stops after `max_messages`, or if no record arrives for `timeout` seconds.
        """
        where = self.tool_arguments("--consumer.config")
        arguments = [*where, "--topic", topic, "--from-beginning",
                     "--timeout-ms", str(int(timeout * 1000)), *options]  # fmt: skip
        if max_messages is not None:
            arguments += ["--max-messages", str(max_messages)]
        # If the time limit ends the tool, the exit status is that of a failed tool.
        return self.run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            arguments,
            timeout=timeout + 60.0,
            check=max_messages is not None,
        )

    # Settings for clients

    def client_config(
        self, user: str | None = None, mechanism: str | None = None, password: str | None = None
    ) -> dict[str, Any]:
        """Return settings for Odradek's clients: the bootstrap address and the credentials.

        The default is the first user with the first mechanism; `password` replaces the correct one.
        """
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **self._security.ours(user, mechanism, password),
        }

    def java_config(
        self,
        user: str | None = None,
        mechanism: str | None = None,
        password: str | None = None,
        stores: Kind = "PEM",
    ) -> dict[str, str]:
        """Return settings for Java clients; `stores` is the type of the key and trust stores."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **self._security.java(user, mechanism, password, stores),
        }

    def java_properties(
        self, user: str | None = None, mechanism: str | None = None, stores: Kind = "PEM"
    ) -> Path:
        """Write `java_config` to a properties file for Java's clients; return its path."""
        settings = self.java_config(user, mechanism, stores=stores)
        words = [user or "client", settings.get("sasl.mechanism", ""), stores]
        path = self._directory / f"{'-'.join(filter(None, words)).lower()}.properties"
        write_privately(path, properties_text(settings))
        return path

    def librdkafka_config(
        self, user: str | None = None, mechanism: str | None = None, password: str | None = None
    ) -> dict[str, str]:
        """Return settings for librdkafka, for confluent-kafka."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **self._security.librdkafka(user, mechanism, password),
        }

    @property
    def security(self) -> Protocol:
        """The security protocol for clients."""
        return self._security.protocol

    @property
    def client_names(self) -> tuple[str, ...]:
        """Names of the users, or one name for clients that only have a certificate.

        The list is empty without security.
        """
        return self._security.client_names

    @property
    def authority(self) -> Authority:
        """The certificate authority of the brokers' and clients' certificates."""
        return self._security.authority

    @property
    def inner_servers(self) -> str:
        """Addresses of the running brokers' inter-broker listeners, without TLS.

        Clients authenticate there only if the cluster has `acls`: use `inner_config` then.
        """
        return ",".join(str(one.plain_address) for one in self._now.brokers if one.running)

    def inner_config(self) -> dict[str, str]:
        """Return settings for Odradek's and Java's clients to connect to `inner_servers`.

        The user in these settings has all permissions, even with `acls`.
        """
        return {"bootstrap.servers": self.inner_servers, **self._security.inner_java()}

    def change_password(self, user: str, password: str) -> None:
        """Change a user's password; existing connections remain until they authenticate again.

        PLAIN passwords are in the brokers' files, so with PLAIN each broker is restarted in turn.
        """
        from odradek.api.admin import Admin
        from odradek.clients.admin.users import UserScramCredentialUpsertion

        mechanisms = self._security.change_password(user, password)
        if mechanisms:
            with Admin(self.inner_config()) as admin:
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(user, m, password) for m in mechanisms]
                )
        self._now.rewrite_properties()
        if "PLAIN" in self._security.mechanisms:
            for i in self.running:
                self.stop(i)
                self.start(i)

    def rotate_certificates(self) -> None:
        """Replace the brokers' keys and certificates by new ones, without a restart."""
        self._now.rotate_certificates()

    def allow(self, user: str, *arguments: str) -> None:
        """Grant a user a permission.

        `arguments` are those of Kafka's ACL tool: "--operation", "Read", "--topic", "flights".

        Needs `acls`; without a grant a user has no permissions.
        """
        self.run_tool(
            "org.apache.kafka.tools.AclCommand",
            [*self.tool_arguments(), "--add", "--allow-principal", f"User:{user}",
             *arguments],
        )  # fmt: skip

    @property
    def _now(self) -> BrokerSet:
        if self._current is None:
            raise RuntimeError("the cluster is not open")
        return self._current

    def tool_arguments(self, option: str = "--command-config") -> list[str]:
        """Return the arguments with which Kafka's tools connect to `inner_servers`.

        `option` is the name of the tool's option for a file of settings.
        """
        return self._now.inner_arguments((b for b in self._now.brokers if b.running), option)

    def _broker(self, i: int) -> LocalBroker:
        if not 0 <= i < self._count:
            raise IndexError(f"there is no broker {i}; the ids are 0 to {self._count - 1}")
        return self._now.brokers[i]

    def _lead(self) -> None:
        self._door.lead_to(one.address for one in self._now.brokers if one.running)

    def _new_set(
        self, directory: Path, count: int | None = None, security: Security | None = None
    ) -> BrokerSet:
        if self._keeper is None or self._java is None:
            raise RuntimeError("the cluster is not open")
        return BrokerSet(
            keeper=self._keeper,
            java=self._java,
            directory=directory,
            count=count or self._count,
            config=self._config,
            timeline=self.timeline,
            security=security or self._security,
            java_options=self._java_options,
        )

    def _prepare_archive(self, temporary: Path) -> None:
        """Create the class data archive unless it exists; it halves the time of later starts."""
        if self._java is None or self._java.archive.is_file():
            return
        lock = self._java.archive.with_suffix(".lock")
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self._java.archive.is_file():
                return
            self._report("creating a class data archive (once)")
            timeline, self.timeline = self.timeline, Timeline()
            try:
                plain = Security("PLAINTEXT")
                trainee = self._new_set(temporary / "training", count=1, security=plain)
                trainee.format()
                trainee.train_archive()
            finally:
                self.timeline = timeline
