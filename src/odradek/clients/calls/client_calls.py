"""Run the calls that all clients share in their caller: deadlines, a new engine, closing.

In: an engine that was just built, and its host. Out: `call`, which runs a flow of the engine to its
end or to the caller's deadline; `close`. Must not: know what a flow does. R-RT-2: no public call
takes more than 100 ms longer than its timeout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from odradek.clients.bootstrap_timeout import API_TIMEOUT
from odradek.clients.caller_flow import DUE, CallerFlow, Do, run_always
from odradek.clients.client_engine import ClientEngine
from odradek.common.arguments import checked_timeout, function
from odradek.common.config import Config
from odradek.common.errors import (
    AuthorizationError,
    ClientClosedError,
    IllegalStateError,
    KafkaError,
    NoBrokerAvailableError,
    first_use,
)
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.common.events import Event, Listener
from odradek.common.secret import Secret
from odradek.network.flow import START, Flow, Wait
from odradek.network.host import Host

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.clients.metrics.metric import Metrics
    from odradek.clients.producer.producer_engine import ProducerEngine
    from odradek.clients.telemetry.metrics_push import MetricsPush
    from odradek.clients.traces import Traces
    from odradek.clients.workers.work_totals import WorkTotals
    from odradek.network.sasl.mechanism import Mechanism

E = TypeVar("E", bound=ClientEngine)
T = TypeVar("T")

CLOSE_TIMEOUT = 5.0
GRACE = 0.02
"""Seconds after the deadline in which a flow may still raise its own, better error."""
LAST_PUSH_TIMEOUT = 0.5
"""Maximum number of seconds for the last push of metrics at `close`."""
TAKES_METRICS = 71
"""Key of GetTelemetrySubscriptions, which brokers with a receiver of metrics support."""
EVENTS_TIMEOUT = 1.0
"""Maximum number of seconds for the last events at `close`."""


class UnclosedWatch(Protocol):
    """Watches a client that may never be closed, and knows nothing else of it."""

    engine: ClientEngine

    def closed(self) -> None:
        """Note that the client was closed properly."""


class CredentialsShown(Protocol):
    """Another user of this client's credentials, such as the producer of its events."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this name and password from now on."""


class ClientCalls(Generic[E]):
    """Calls that all kinds of clients share."""

    least_to_close = 0.0
    """Minimum number of seconds for closing the connections, even if no time is left."""

    def __init__(self, kind: str, config: Config, host: Host, build: Callable[[Host], E]) -> None:
        """Set `kind`, the client's class as users know it, and `build`, which creates an engine."""
        self.kind = kind
        self.config = config
        self.host = host
        self.engine: E = build(host)
        self.closing = self.closed = False
        self.left_open: UnclosedWatch | None = None
        self.event_topic: CredentialsShown | None = None
        self.close_events: list[Callable[[float], object]] = []
        """Destinations of events: each is closed last, with a timeout in seconds."""
        self._build = build
        self._listeners: list[Listener] = []
        self._push: MetricsPush | None = None
        self._instance_id = bytes(16)
        """Id for metrics that a broker assigned to this client's former engine; 0 without one."""
        self.engine.events.surfaces_by(host.surface)
        self._hear_of_connections(self.engine)

    def publishes_to(self, topic: CredentialsShown) -> None:
        """Register the topic of the client's events, whose producer needs replaced credentials."""
        self.event_topic = topic

    def set_unclosed_watch(self, left_open: UnclosedWatch) -> None:
        """Register the watcher that acts if the client is never closed."""
        self.left_open = left_open

    def use(self, mechanism: Mechanism | None) -> None:
        """Authenticate by this mechanism from the first connection on."""
        self.engine.network.authenticates_by(mechanism)

    def listen(self, listener: Listener) -> None:
        """Pass each event to this listener, too."""
        function("listener", listener)
        self._listeners.append(listener)
        self.engine.events.listen(listener)

    def traced_by(self, make: Callable[[ClientCalls[Any]], Traces]) -> Traces:
        """Report this client's work to the object that `make` returns, for as long as it lives."""
        self.check_untraced()
        traces = make(self)
        self.engine.traced_by(traces)
        return traces

    def check_untraced(self) -> None:
        """Raise if this client can't be traced any more."""
        self.check_open()
        if self.engine.traces is not None:
            raise IllegalStateError(f"this {self.kind} is already traced")

    def set_credentials(self, username: str, password: Secret) -> None:
        """Use another name and password from now on (PLAIN and SCRAM)."""
        with first_use():
            from odradek.network.sasl.new_credentials import replace_credentials

        replace_credentials(self.engine.network.mechanism, username, password)
        if self.event_topic is not None:
            self.event_topic.set_sasl_credentials(username, password.reveal())

    @property
    def writes(self) -> ProducerEngine | None:
        """Return the engine if it may hold records that must be sent."""
        return None

    @property
    def close_timeout(self) -> float:
        """Return the seconds for closing a client after an error, or at the program's end."""
        return CLOSE_TIMEOUT

    # Metrics, also those that brokers request (KIP-714)

    work: WorkTotals | None = None
    """Totals of a consumer's workers, once it has some."""

    def metrics(self) -> Metrics:
        """Take a snapshot of the client's metrics."""
        with first_use():
            from odradek.clients.metrics.snapshot import metrics

            return metrics(self.kind, self.engine, self.host, self.work)

    def _hear_of_connections(self, engine: E) -> None:
        if self.config["enable.metrics.push"]:
            engine.events.listen(self._note_connection)

    def _note_connection(self, event: Event) -> None:
        """Push metrics once a broker is connected that accepts them."""
        if event.kind == "group" and self._push is not None:
            self._push.note_member()
        if event.kind != "ready":
            return
        if self._push is None:
            connections = list(self.engine.network.connections.values())
            if not any(TAKES_METRICS in connection.versions for connection in connections):
                return
            from odradek.clients.telemetry.metrics_push import MetricsPush, resource_of

            resource = resource_of(self.config)
            self._push = MetricsPush(self.engine, self.metrics, resource, self._instance_id)
        self._push.connected()

    def client_instance_id(self, deadline: float) -> Flow[UUID]:
        """Wait for a broker that accepts metrics, and for the id that it assigns to this client."""
        now = yield START
        if not self.config["enable.metrics.push"]:
            text = "only clients that push metrics get an id: set enable.metrics.push=true"
            raise IllegalStateError(text)
        network = self.engine.network
        if self._push is None:
            self.engine.metadata.request("the id of this client")  # so that there is a connection
        while True:
            push, changed = self._push, [network.changed]
            if push is not None:
                if any(push.instance_id):
                    from uuid import UUID  # imported here: most clients start without it

                    return UUID(bytes=push.instance_id)
                if push.refused is not None:
                    raise push.refused
                changed.append(push.changed)
            elif any(connection.ready for connection in network.connections.values()):
                raise UnsupportedVersionError(
                    "the brokers of this cluster don't accept client metrics (KIP-714)"
                )
            if now >= deadline:
                raise self.engine.timeout("the id of this client", now)
            now = yield Wait(tuple(changed), deadline)

    # Calls

    def seconds(self, timeout: float | None, option: str = API_TIMEOUT) -> float:
        """Return the seconds that a call may take; `option` names the default for None."""
        return checked_timeout(self.config[option] if timeout is None else timeout)

    def call(
        self,
        flow: Callable[[float], Flow[T]],
        timeout: float | None,
        what: str,
        option: str = API_TIMEOUT,
    ) -> CallerFlow[T]:
        """Run `flow(deadline)` to its end, or raise at the deadline with all attempts.

        `what` follows "timed out waiting for" in the error.
        """
        self.check_open()
        seconds, now = self.seconds(timeout, option), (yield START)
        unreached = self.engine.unreached_until(now, option if timeout is None else None)
        return (yield from self.by(now + seconds, flow, what, unreached))

    def by(
        self,
        deadline: float,
        flow: Callable[[float], Flow[T]],
        what: str,
        unreached_until: float = math.inf,
    ) -> CallerFlow[T]:
        """Run a flow until its end or the deadline; the client is known to be open."""
        engine, host = self.engine, self.host
        completion = engine.start(flow(deadline))
        engine.track(completion, what, deadline, unreached_until)
        try:
            host.wake()
            # A `Wait`, without a Python call.
            now = yield tuple.__new__(Wait, ((completion,), deadline + GRACE))
        # Ctrl-C, a fork, no descriptors: the flow's result isn't needed any more.
        except BaseException:
            engine.cancel(completion, ClientClosedError(f"the call for {what} was interrupted"))
            raise
        if not completion.done:
            error = engine.overdue(what, now)
            engine.cancel(completion, error)
            host.wake()
            yield DUE
            try:
                raise error
            finally:
                # Otherwise the error refers to this frame, which refers to the error.
                del error, completion
        ended = engine.ended
        if completion.error is not None:
            _name_user(completion.error, engine.network.user)
        if ended is not None and completion.error is ended:
            raise ended.with_traceback(None)  # the same error is raised by every later call
        try:
            return completion.result()
        finally:
            del completion

    def check_open(self) -> None:
        """Raise if the client is closed, before anything is done and any lock is taken."""
        if self.closed:
            raise ClientClosedError(f"this {self.kind} is closed")
        self.host.check()
        if self.host.torn:
            self._renew()

    def check_here(self) -> None:
        """Raise in a forked child, even if the client is closed, unless it was before the fork."""
        if not self.closed:
            self.host.check()

    def check_free(self, what: str) -> None:
        """Raise unless the client is open and no other call of it is running in this thread."""
        self.check_open()
        self.check_uninterrupted(what)

    def check_uninterrupted(self, what: str) -> None:
        """Raise if this call interrupts another one of this client in its thread."""
        if self.host.interrupted:
            raise IllegalStateError(
                f"{what} was called while another call of this {self.kind} is running in the same "
                "thread (from a signal handler, a finaliser or a listener): call it after that"
            )

    def _renew(self) -> None:
        """Continue with a new engine after an exception from outside interrupted the old one.

        The old one is only read, and its flows are closed (R-HO-1). Settings of the user are kept:
        listeners, an assignment, positions. If this method is interrupted, the next call starts it
        again.
        """
        old, new = self.engine, self._build(self.host)
        if old.ended is not None and not old.torn:
            raise old.ended.with_traceback(None)  # not because of the interruption
        new.events.surfaces_by(self.host.surface)
        new.network.authenticates_by(old.network.mechanism)
        new.network.dials.go_on()
        if old.reached:
            new.network.states.reached()
        if old.metadata.cluster_id is not None:
            new.metadata.expect(old.metadata.cluster_id)
        for listener in self._listeners:
            new.events.listen(listener)
        if old.traces is not None:
            new.traced_by(old.traces)
        if self._push is not None:
            self._instance_id, self._push = self._push.instance_id, None
        self._hear_of_connections(new)
        self.carry_over(old, new)
        old.let_go()
        self.engine = new
        if self.left_open is not None:
            self.left_open.engine = new
        self.host.renew(new)

    def carry_over(self, old: E, new: E) -> None:
        """Pass what the user told the old engine to the new one."""

    # Closing

    def close(
        self, timeout: float, work: Callable[[float], CallerFlow[None]] | None = None
    ) -> CallerFlow[None]:
        """Run `work(deadline)` and then close all connections, within `timeout` seconds.

        Connections are closed even after an error. Closing again has no effect.
        """
        seconds, until = checked_timeout(timeout), [0.0]
        return run_always(self._last_work(seconds, until, work), self._shut_down(until))

    def _last_work(
        self, seconds: float, until: list[float], work: Callable[[float], CallerFlow[None]] | None
    ) -> CallerFlow[None]:
        self.closing = True
        until[0] = seconds + (yield START)
        self.host.surfacing = False
        if work is not None:
            yield from work(until[0])
        if self._push is not None and self._push.subscribed:
            now = yield START
            if now < until[0]:
                seconds = min(LAST_PUSH_TIMEOUT, until[0] - now)
                with suppress(KafkaError):
                    yield from self.call(self._push.last, seconds, "the last push of metrics")

    def _shut_down(self, until: list[float]) -> CallerFlow[None]:
        """Mark the client as closed before anything is called, and then end the host.

        The host also ends if Ctrl-C comes before that.
        """
        first, self.closed = not self.closed, True
        # Of this call: another thread may close the client as well.
        deadline, begun = until[0], False

        def end_host() -> object:
            nonlocal begun
            begun = True
            return self.host.close(deadline)

        try:
            if first:
                self.engine.shut()
                if self.left_open is not None:
                    self.left_open.closed()
            now = yield START
            deadline = max(deadline, now + self.least_to_close)
            now = yield Do(end_host)
            for close in self.close_events:
                left = min(EVENTS_TIMEOUT, max(0.0, deadline - now))
                now = yield Do(partial(close, left), blocks=True)
        except GeneratorExit:
            raise
        except BaseException:
            if not begun:
                yield Do(end_host)
            raise
        finally:
            self.host.surfacing = True
        if not self.host.cut_off:
            self.host.check()

    def noting(self, error: BaseException, close: Callable[[float], object]) -> CallerFlow[None]:
        """Close after an error, and pass that error on without a long wait."""
        try:
            yield Do(partial(close, self.close_timeout))
        except KafkaError as another:
            away = NoBrokerAvailableError
            same = isinstance(error, away) and isinstance(another, away)
            why = ", for the same reason" if same else f": {type(another).__name__}: {another}"
            said = [f"close() failed as well{why}", *getattr(another, "__notes__", ())]
            error.add_note("\n".join(said))

    def __repr__(self) -> str:
        servers = ",".join(str(a) for a in self.config["bootstrap.servers"])
        state = " closed" if self.closed else ""
        return f"<{self.kind} {self.config['client.id']} of {servers}{state}>"


def _name_user(failure: BaseException | None, user: str | None) -> None:
    """Add the user's name to authorization errors, also to those of a call's items."""
    if isinstance(failure, KafkaError):
        for error in (failure, *failure.errors.values()):
            if isinstance(error, AuthorizationError):
                error.of(user)
