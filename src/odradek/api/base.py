"""What every client's facade shares: engine and host put together, calls that end in time.

In: an engine that was just built, perhaps a host. Out: `_call`, which runs a flow of the engine to
its end or to the caller's deadline; `listen`, `explain`, `close`. Must not: know what a flow does.
R-RT-2: no public call outlives its timeout by more than 100 ms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from odradek.api.left_open import Opened, closed, made_at, opened
from odradek.clients.client_engine import ClientEngine
from odradek.common.arguments import checked_timeout as checked_timeout
from odradek.common.arguments import function, text
from odradek.common.config import Config
from odradek.common.errors import (
    AuthorizationError,
    ClientClosedError,
    IllegalStateError,
    KafkaError,
)
from odradek.common.events import Listener
from odradek.common.habits import missing_method
from odradek.common.secret import Secret
from odradek.network.flow import Flow
from odradek.network.host import Host

if TYPE_CHECKING:
    from odradek.api.event_topic import EventTopic
    from odradek.clients.explain.explanation import Explanation
    from odradek.runtime.tls_context import TlsSource


E = TypeVar("E", bound=ClientEngine)
T = TypeVar("T")

GRACE = 0.02
"""Seconds that a flow gets to raise its own, better error at the deadline."""
CLOSE_TIMEOUT = 5.0
EVENTS_TIMEOUT = 1.0
"""Seconds that the last events get at `close`, at most."""
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

    def __init__(self, config: Config, host: Host | None, build: Callable[[Host], E]) -> None:
        """Take a host, or make the client's usual one; `build` makes the engine for it."""
        self._config = config
        self._closed = False
        self._opened: Opened | None = None
        self._build = build
        self._listeners: list[Listener] = []
        self._close_events: list[Callable[[float], None]] = []
        self._event_topic: EventTopic | None = None
        directory = config["events.dir"]
        if host is None:
            host = _host_from_sources(config)
        real = host is None
        if host is None:
            directory = directory or os.environ.get(EVENTS_DIR)
            host = self._usual_host()
        self._host: Host = host
        self._engine: E = build(host)
        if config["security.protocol"].startswith("SASL"):
            from odradek.api.authentication import mechanism

            self._engine.network.mechanism = mechanism(config, host, real=real)
        if directory:
            from odradek.runtime.events_dir import EventFile

            events = EventFile(directory, client=config["client.id"])
            self.listen(events)
            self._close_events.append(lambda timeout: events.close())
        if real and config["events.topic"]:
            from odradek.api.event_topic import EventTopic

            self._event_topic = EventTopic(config)
            self.listen(self._event_topic.queue)
            self._close_events.append(self._event_topic.queue.close)
        self._engine.events.surface = host.surface
        host.attach(self._engine)
        if real:
            self._opened = self._left_open(host)
            opened(self, self._opened)

    def _left_open(self, host: Host) -> Opened:
        """What is to be known of this client when it is dropped without having been closed."""
        name, timeout = self._config["client.id"], CLOSE_TIMEOUT
        return Opened(type(self).__name__, name, host, self._engine, None, timeout, *made_at())

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
        from odradek.runtime.tls_context import tls_source

        return tls_source(self._config)

    # Calls

    def _deadline(self, timeout: float | None, option: str = "default.api.timeout.ms") -> float:
        """The engine's time at which a call must end; `option` gives the timeout for None."""
        seconds: float = self._config[option] if timeout is None else timeout
        return self._host.now() + checked_timeout(seconds)

    def _call(
        self,
        flow: Callable[[float], Flow[T]],
        timeout: float | None,
        what: str,
        option: str = "default.api.timeout.ms",
    ) -> T:
        """Run `flow(deadline)` to its end, or raise at the deadline with all that was tried.

        `what` says what the call waits for, in words that fit behind "no … in time".
        """
        self._check_open()
        deadline = self._deadline(timeout, option)
        engine, host = self._engine, self._host
        completion = engine.start(flow(deadline))
        engine.track(completion, what, deadline)
        try:
            host.wake()
            done = host.run(completion, deadline + GRACE)
        except BaseException:  # Ctrl-C, a fork, no descriptors: nobody waits for it any more
            engine.cancel(completion, ClientClosedError(f"the call for {what} was interrupted"))
            raise
        if not done:
            error = engine.overdue(what, host.now())
            engine.cancel(completion, error)
            host.wake()
            host.drive()
            try:
                raise error
            finally:
                del error, completion  # or the error holds this frame, which holds the error
        ended = engine.ended
        if isinstance(completion.error, AuthorizationError):
            completion.error.of(engine.network.user)
        if ended is not None and completion.error is ended:
            raise ended.with_traceback(None)  # it is raised again by every later call
        try:
            return completion.result()
        finally:
            del completion

    def _check_open(self) -> None:
        """Before anything is done, and before any lock is taken."""
        if self._closed:
            raise ClientClosedError(f"this {type(self).__name__} is closed")
        self._host.check()
        if self._host.torn:
            self._renew()

    def _renew(self) -> None:
        """Go on with a new engine: an exception from outside ended a step of the old one halfway.

        The torn one is only read, and its flows are closed (R-HO-1). What is left of it is what its
        user has done: listeners, an assignment, positions. Interrupted, this begins again at the
        next call.
        """
        old, new = self._engine, self._build(self._host)
        if old.ended is not None and not old.torn:
            raise old.ended.with_traceback(None)  # not because of the interruption
        new.events.surface = self._host.surface
        new.network.mechanism = old.network.mechanism
        new.metadata.cluster_id = old.metadata.cluster_id
        for listener in self._listeners:
            new.events.listen(listener)
        self._carry_over(old, new)
        old.let_go()
        self._engine = new
        if self._opened is not None:
            self._opened.engine = new
        self._host.renew(new)

    def _carry_over(self, old: E, new: E) -> None:
        """Give a new engine what the user told the old one."""

    def _check_uninterrupted(self, what: str) -> None:
        """Refuse what can't be done amid something else of this client, in its own thread."""
        if self._host.interrupted:
            raise IllegalStateError(
                f"{what} was called by what has interrupted this {type(self).__name__} amid "
                "something else (a signal handler, a finaliser, a listener): call it later"
            )

    # What all clients can do

    if not TYPE_CHECKING:  # a checker of types goes on to refuse names that aren't there

        def __getattr__(self, name: str) -> object:
            raise missing_method(self, name)

    def listen(self, listener: Listener) -> None:
        """Have each event (R-EV-1) of this client handed to `listener`.

        It is called inside the client's step and must be quick; it must not call the client.
        `odradek.common.events.KINDS` lists the kinds with their fields; `event.at` is monotonic
        seconds.
        """
        function("listener", listener)
        self._listeners.append(listener)
        self._engine.events.listen(listener)

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

        if not self._closed:
            self._host.check()
        return explain(self._engine, type(self).__name__, self._host.now())

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all connections. Always ends within `timeout` seconds; may be called twice.

        Any thread may call it, and so may a signal handler. A call of another thread that waits
        raises `ClientClosedError`. Later calls raise `ClientClosedError`.
        """
        host, deadline = self._host, self._host.now() + checked_timeout(timeout)
        host.surfacing = False
        if not self._closed:
            self._closed = True
            closed(self._opened)
            self._engine.shut()
        host.close(deadline)
        for close in self._close_events:
            close(min(EVENTS_TIMEOUT, max(0.0, deadline - host.now())))
        host.surfacing = True
        if not host.forked:
            host.check()

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
            return
        try:  # the block's own error is what its caller has to hear of, and soon
            self.close(self._close_after_error)
        except KafkaError as another:
            error.add_note(f"close() failed as well: {type(another).__name__}: {another}")

    def __repr__(self) -> str:
        if not hasattr(self, "_config"):  # its construction failed, and somebody looks at why
            return f"<{type(self).__name__}>"
        servers = ",".join(str(a) for a in self._config["bootstrap.servers"])
        state = " closed" if self._closed else ""
        return f"<{type(self).__name__} {self._config['client.id']} of {servers}{state}>"
