"""What every client's facade shares: engine and host put together, calls that end in time.

In: an engine that was just built, perhaps a host. Out: `_run`, which carries out a caller's half in
the caller's thread; `listen`, `explain`, `close`. Must not: decide what a call does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, ParamSpec, Self, TypeVar

from odradek.api.left_open import Opened, made_at, opened
from odradek.clients.calls.caller_flow import CallerFlow
from odradek.clients.calls.client_calls import API_TIMEOUT, ClientCalls
from odradek.clients.client_engine import ClientEngine
from odradek.common.arguments import text
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.events import Listener
from odradek.common.habits import missing_method
from odradek.common.secret import Secret
from odradek.network.flow import Flow
from odradek.network.host import Host
from odradek.runtime.hosts.caller import carried_out

if TYPE_CHECKING:
    from odradek.api.event_topic import EventTopic
    from odradek.clients.explain.explanation import Explanation
    from odradek.runtime.tls.tls_context import TlsSource


E = TypeVar("E", bound=ClientEngine)
T = TypeVar("T")
P = ParamSpec("P")

CLOSE_TIMEOUT = 5.0
EVENTS_DIR = "ODRADEK_EVENTS_DIR"


HostSource = Callable[[Config], Host | None]
"""Gives a client's host, or None where the usual one shall be made."""
_sources: list[HostSource] = []


@contextmanager
def hosts_from(source: HostSource) -> Iterator[None]:
    """Let clients that are made meanwhile get their hosts from `source`.

    So code that makes its own clients can be tested in a simulation as it is, wherever it has the
    classes from: `odradek.testing` does so. The latest source is asked first.
    """
    _sources.append(source)
    try:
        yield
    finally:
        _sources.remove(source)


def on_host(host: Host, make: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Make a client, `make(*arguments, **keywords)`, on a host that is there: a simulated one."""
    with hosts_from(lambda config: host):
        return make(*arguments, **keywords)


def _host_from_sources(config: Config) -> Host | None:
    for source in reversed(_sources):
        host = source(config)
        if host is not None:
            return host
    return None


class Client(Generic[E]):
    """Base of `Producer`, `Consumer` and `Admin`; not made directly.

    A client belongs to the process that made it: after a fork, calls in the child raise
    `ClientForkedError`. Nothing is opened before the first call.
    """

    def __init__(
        self,
        config: Config,
        build: Callable[[Host], E],
        calls: Callable[..., ClientCalls[E]] = ClientCalls,
    ) -> None:
        """Take a host that is given (`hosts_from`), or make the usual one; `build` its engine."""
        self._config = config
        self._event_topic: EventTopic | None = None
        directory = config["events.dir"]
        host = _host_from_sources(config)
        real = host is None
        if host is None:
            directory = directory or os.environ.get(EVENTS_DIR)
            host = self._usual_host()
        self._host: Host = host
        self._calls = calls(type(self).__name__, config, host, build)
        if config["security.protocol"].startswith("SASL"):
            from odradek.api.authentication import mechanism

            self._calls.use(mechanism(config, host, real=real))
        if directory:
            from odradek.runtime.events.events_dir import EventFile

            events = EventFile(directory, client=config["client.id"])
            self.listen(events)
            self._calls.close_events.append(lambda timeout: events.close())
        if real and config["events.topic"]:
            from odradek.api.event_topic import EventTopic

            self._event_topic = EventTopic(config)
            self.listen(self._event_topic.queue)
            self._calls.close_events.append(self._event_topic.queue.close)
        host.attach(self._engine)
        if real:
            self._calls.left_open = self._left_open()
            opened(self, self._calls.left_open)

    def _left_open(self) -> Opened:
        """What is to be known of this client when it is dropped without having been closed."""
        name, timeout = self._config["client.id"], CLOSE_TIMEOUT
        return Opened(
            type(self).__name__, name, self._host, self._engine, None, timeout, *made_at()
        )

    @property
    def _engine(self) -> E:
        return self._calls.engine

    @property
    def _closed(self) -> bool:
        return self._calls.closed

    def _usual_host(self) -> Host:
        """All work is done in the caller's thread, unless a client says otherwise."""
        from odradek.runtime import SelectorHost

        return SelectorHost(tls=self._tls())

    def _host_in_thread(self) -> Host:
        """For clients that go on while nobody calls."""
        from odradek.runtime import ThreadHost

        return ThreadHost(tls=self._tls())

    def _tls(self) -> TlsSource | None:
        """What a host makes TLS of; None without, so that `ssl` isn't even imported."""
        if not self._config["security.protocol"].endswith("SSL"):
            return None
        from odradek.runtime.tls.tls_context import tls_source

        return tls_source(self._config)

    def _run(self, flow: CallerFlow[T]) -> T:
        """Carry out a call in the caller's thread."""
        return carried_out(flow, self._host)

    def _call(
        self,
        flow: Callable[[float], Flow[T]],
        timeout: float | None,
        what: str,
        option: str = API_TIMEOUT,
    ) -> T:
        """Run `flow(deadline)` to its end, or raise at the deadline with all that was tried."""
        return self._run(self._calls.call(flow, timeout, what, option))

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
        from odradek.api.authentication import replace_credentials

        username, hidden = (
            text("username", username),
            Secret(text("password", password, private=True)),
        )
        replace_credentials(self._engine.network.mechanism, username, hidden)
        if self._event_topic is not None:
            self._event_topic.set_sasl_credentials(username, hidden.reveal())

    @property
    def ended(self) -> KafkaError | None:
        """What has ended this client for good, and every call raises; None while it works."""
        return self._engine.ended

    def cluster_id(self, timeout: float | None = None) -> str:
        """The id of the cluster, from its metadata."""
        snapshot = self._call(self._engine.snapshot, timeout, "metadata of the cluster")
        return snapshot.cluster_id or ""

    def explain(self) -> Explanation:
        """Say why nothing is happening, and when the next attempt is.

        Does no I/O and never waits. The result prints as text; `to_dict()` gives plain data.
        """
        from odradek.clients.explain.explanation import explain

        self._calls.check_here()
        return explain(self._engine, self._calls.kind, self._host.now())

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all connections. Always ends within `timeout` seconds; may be called twice.

        Any thread may call it, and so may a signal handler. A call of another thread that waits
        raises `ClientClosedError`. Later calls raise `ClientClosedError`.
        """
        self._run(self._calls.close(timeout))

    @property
    def _close_after_error(self) -> float:
        """Seconds for `close` where the `with` block has ended with an error."""
        return CLOSE_TIMEOUT

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
            self._calls.noting(error, lambda: self.close(self._close_after_error))

    def __repr__(self) -> str:
        # Without calls its construction failed, and somebody looks at why.
        return repr(self._calls) if "_calls" in vars(self) else f"<{type(self).__name__}>"
