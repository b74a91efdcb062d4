"""Base classes of the public clients: an engine and its I/O host (a thread or event loop).

In: a configuration, optionally an I/O host. Out: `_run`, which executes a call in the caller's
thread until its deadline; `listen`, `explain`, `close`. Must not: decide what a call does.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from odradek.clients.bootstrap_timeout import API_TIMEOUT
from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.client_calls import CLOSE_TIMEOUT, ClientCalls
from odradek.clients.client_engine import ClientEngine
from odradek.common.arguments import text
from odradek.common.config import Config
from odradek.common.errors import KafkaError, first_use
from odradek.common.events import Listener
from odradek.common.options.migration_hints import missing_method
from odradek.common.secret import Secret, private
from odradek.network.flow import Flow
from odradek.network.host import Host
from odradek.runtime.assembly import assembled
from odradek.runtime.hosts.caller import carried_out
from odradek.runtime.hosts.host_sources import hosts_from, only_here

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.clients.explain.explanation import Explanation
    from odradek.clients.explain.health import Health
    from odradek.clients.metrics.metric import Metrics

E = TypeVar("E", bound=ClientEngine)
T = TypeVar("T")


def on_host(host: Host, make: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Create a client with `make(*arguments, **keywords)` on this I/O host, real or simulated."""
    with hosts_from(only_here(host)):
        return make(*arguments, **keywords)


class Facade(Generic[E]):
    """Base class of all clients, sync and asyncio: the methods that never block.

    A client belongs to the process that created it: after a fork, its calls in the child raise
    `ClientForkedError`. No connection is opened before the first call. Not instantiated directly.
    """

    def __init__(
        self,
        config: Any,
        make_host: Callable[[Config], Host],
        build: Callable[[Config, Host], E],
        producer: Callable[[dict[str, Any]], Any],
        calls: Callable[..., ClientCalls[E]] = ClientCalls,
    ) -> None:
        """Create the engine with `build`, on the I/O host of `hosts_from` or of `make_host`.

        `producer` creates the producer of `events.topic`.
        """
        self._calls = assembled(self, config, make_host, build, calls, producer)

    @property
    def _host(self) -> Host:
        return self._calls.host

    @property
    def _engine(self) -> E:
        return self._calls.engine

    @property
    def _closed(self) -> bool:
        return self._calls.closed

    # Methods of all clients

    if not TYPE_CHECKING:  # type checkers must reject unknown names

        def __getattr__(self, name: str) -> object:
            raise missing_method(self, name)

    def listen(self, listener: Listener) -> None:
        """Call `listener` with each event of this client.

        The client waits until the listener returns, so it must be quick and must not call the
        client. `odradek.common.events.KINDS` lists the kinds of events with their fields;
        `event.at` is in seconds of the monotonic clock.
        """
        self._calls.listen(listener)

    @private
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the username and password (PLAIN and SCRAM), for example after a rotation.

        Open connections are kept; they use the new credentials when their SASL session expires
        (KIP-368). The producer of `events.topic` uses them, too.
        """
        name, hidden = text("username", username), text("password", password, private=True)
        self._calls.set_credentials(name, Secret(hidden))

    @property
    def ended(self) -> KafkaError | None:
        """Fatal error of this client, which every call raises; None while the client works."""
        return self._engine.ended

    def explain(self) -> Explanation:
        """Explain why the client makes no progress, and when it makes its next attempt.

        Does no I/O and never blocks. The result prints as text; `to_dict()` returns plain data.
        """
        with first_use():
            from odradek.clients.explain.explanation import explain

            self._calls.check_here()
            return explain(self._engine, self._calls.kind, self._host.now())

    def health(self) -> Health:
        """Report whether this client can do its work; cheap enough to be called every second.

        Does no I/O, takes no lock and never blocks; any thread may call it. `ok` is only false for
        problems that a person or another system has to fix: the cluster doesn't answer, credentials
        are refused, a consumer has had no assignment or no existing topic or a record no leader for
        15 s, or the application doesn't poll. A client that only works inside its callers' calls
        (an `Admin`, or a `Consumer` without a group) reports the state at the end of its last call.

        >>> producer.health().to_dict()["ok"]
        True
        """
        with first_use():
            from odradek.clients.explain.health import health

            self._calls.check_here()
            return health(self._calls)

    def metrics(self) -> Metrics:
        """Return a snapshot of this client's metrics, under the names of Kafka's Java clients.

        Does no I/O, takes no lock and never blocks; any thread may call it. Totals count from the
        creation of the client. Averages and maxima cover the last 30 to 60 s and are NaN if nothing
        was measured. Times are in milliseconds unless `unit` is `s`. There are no rates: compute
        them from the totals of two snapshots.

        >>> producer.metrics().value("record-error-total")
        0
        """
        self._calls.check_here()
        return self._calls.metrics()

    def __repr__(self) -> str:
        # `__init__` may have failed before `_calls` was set, and a debugger shows the object.
        return repr(self._calls) if "_calls" in vars(self) else f"<{type(self).__name__}>"


class Client(Facade[E]):
    """Base class of `Producer`, `Consumer` and `Admin`: the calls that block."""

    def _run(self, flow: CallerFlow[T]) -> T:
        """Execute a call in the caller's thread."""
        return carried_out(flow, self._calls.host)

    _end = _run
    """Execute a call that closes the client."""

    def _call(
        self,
        flow: Callable[[float], Flow[T]],
        timeout: float | None,
        what: str,
        option: str = API_TIMEOUT,
    ) -> T:
        """Run the generator `flow(deadline)`; at the deadline, raise an error with all attempts."""
        return self._run(self._calls.call(flow, timeout, what, option))

    def cluster_id(self, timeout: float | None = None) -> str:
        """Return the cluster's id. `timeout` in seconds, default `default.api.timeout.ms`."""
        snapshot = self._call(self._engine.snapshot, timeout, "metadata of the cluster")
        return snapshot.cluster_id or ""

    def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id that a broker has assigned to this client for its pushed metrics (KIP-714).

        Metrics receivers of brokers identify the client by this id. It is requested from a broker
        if the client doesn't have one yet, and stays the same for the lifetime of the client.
        Raises `IllegalStateError` with `enable.metrics.push=false`, `UnsupportedVersionError` if
        the brokers have no metrics receiver, and `KafkaTimeoutError`.
        """
        return self._call(self._calls.client_instance_id, timeout, "the id of this client")

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all connections within `timeout` seconds; closing twice has no effect.

        May be called from any thread and from signal handlers. Calls that wait in other threads,
        and all later calls, raise `ClientClosedError`.
        """
        self._run(self._calls.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._run(self._calls.noting(error, self.close))
