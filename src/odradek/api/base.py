"""What every client's facade shares: engine and host put together, calls that end in time.

In: a configuration, perhaps a host. Out: `_run`, which carries out a caller's half in
the caller's thread; `listen`, `explain`, `close`. Must not: decide what a call does.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.client_calls import API_TIMEOUT, CLOSE_TIMEOUT, ClientCalls
from odradek.clients.client_engine import ClientEngine
from odradek.common.arguments import text
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.events import Listener
from odradek.common.options.habits import missing_method
from odradek.common.secret import Secret
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
P = ParamSpec("P")


def on_host(host: Host, make: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Make a client, `make(*arguments, **keywords)`, on a host that is there: a simulated one."""
    with hosts_from(only_here(host)):
        return make(*arguments, **keywords)


class Facade(Generic[E]):
    """Base of all clients, sync and asyncio: what never waits; not made directly.

    A client belongs to the process that made it: after a fork, calls in the child raise
    `ClientForkedError`. Nothing is opened before the first call.
    """

    def __init__(
        self,
        config: Any,
        make_host: Callable[[Config], Host],
        build: Callable[[Config, Host], E],
        producer: Callable[[dict[str, Any]], Any],
        calls: Callable[..., ClientCalls[E]] = ClientCalls,
    ) -> None:
        """Take a host that is given (`hosts_from`), or make the usual one; `build` its engine.

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

    # What all clients can do

    if not TYPE_CHECKING:  # a checker of types goes on to refuse names that aren't there

        def __getattr__(self, name: str) -> object:
            raise missing_method(self, name)

    def listen(self, listener: Listener) -> None:
        """Have each event of this client handed to `listener`.

        It is called inside the client's step and must be quick; it must not call the client.
        `odradek.common.events.KINDS` lists the kinds with their fields; `event.at` is monotonic
        seconds.
        """
        self._calls.listen(listener)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another name and password from now on (PLAIN and SCRAM), as after a change of them.

        Connections that stand go on; they show the new ones when their session ends (KIP-368).
        The producer of `events.topic` uses them too.
        """
        name, hidden = text("username", username), text("password", password, private=True)
        self._calls.set_credentials(name, Secret(hidden))

    @property
    def ended(self) -> KafkaError | None:
        """What has ended this client for good, and every call raises; None while it works."""
        return self._engine.ended

    def explain(self) -> Explanation:
        """Say why nothing is happening, and when the next attempt is.

        Does no I/O and never waits. The result prints as text; `to_dict()` gives plain data.
        """
        from odradek.clients.explain.explanation import explain

        self._calls.check_here()
        return explain(self._engine, self._calls.kind, self._host.now())

    def health(self) -> Health:
        """Say whether this client can do its work, cheaply enough to be asked each second.

        Does no I/O, takes no lock and never waits; any thread may ask. `ok` turns false for what a
        person or another machine has to mend: a cluster that doesn't answer, credentials that are
        refused, a group that gives nothing to read or a record that finds no leader for 15 s, a
        program that doesn't poll. A client that works in its callers' calls alone (an `Admin`, a
        `Consumer` without a group) says what its last call knew.

        >>> producer.health().to_dict()["ok"]
        True
        """
        from odradek.clients.explain.health import health

        self._calls.check_here()
        return health(self._calls)

    def metrics(self) -> Metrics:
        """What this client has counted and measured, under the names of Kafka's Java clients.

        Does no I/O, takes no lock and never waits; any thread may ask. Totals count from the
        client's beginning; averages and maxima are of the last 30 to 60 s, and not a number where
        nothing was measured. Times are milliseconds where `unit` doesn't say `s`. There are no
        rates: whoever asks twice has them from the totals.

        >>> producer.metrics().value("record-error-total")
        0
        """
        self._calls.check_here()
        return self._calls.metrics()

    def __repr__(self) -> str:
        # Without calls its construction failed, and somebody looks at why.
        return repr(self._calls) if "_calls" in vars(self) else f"<{type(self).__name__}>"


class Client(Facade[E]):
    """Base of `Producer`, `Consumer` and `Admin`: calls that wait; not made directly."""

    def _run(self, flow: CallerFlow[T]) -> T:
        """Carry out a call in the caller's thread."""
        return carried_out(flow, self._calls.host)

    _end = _run
    """Carry out a call that closes."""

    def _call(
        self,
        flow: Callable[[float], Flow[T]],
        timeout: float | None,
        what: str,
        option: str = API_TIMEOUT,
    ) -> T:
        """Run `flow(deadline)` to its end, or raise at the deadline with all that was tried."""
        return self._run(self._calls.call(flow, timeout, what, option))

    def cluster_id(self, timeout: float | None = None) -> str:
        """The id of the cluster, from its metadata."""
        snapshot = self._call(self._engine.snapshot, timeout, "metadata of the cluster")
        return snapshot.cluster_id or ""

    def client_instance_id(self, timeout: float | None = None) -> UUID:
        """The id that a broker has given this client for the metrics that it pushes (KIP-714).

        Asks a broker for it where none has given one yet, and stays the same for as long as this
        client lives; brokers' receivers name clients so. Raises `IllegalStateError` with
        `enable.metrics.push=false`, `UnsupportedVersionError` where brokers have no receiver of
        metrics, and `KafkaTimeoutError`.
        """
        return self._call(self._calls.client_instance_id, timeout, "id of this client")

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all connections. Always ends within `timeout` seconds; may be called twice.

        Any thread may call it, and so may a signal handler. A call of another thread that waits
        raises `ClientClosedError`. Later calls raise `ClientClosedError`.
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
