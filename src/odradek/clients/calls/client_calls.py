"""Run the part of a call that all clients share: deadline, replacing the engine, closing.

In: a new engine, and its I/O host (thread or event loop). Out: `call`, which runs a flow to its
end or the caller's deadline; `close`. A flow is a generator of the engine. R-RT-2: no public call
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
"""Seconds after the deadline in which the engine may still raise a more specific error."""
LAST_PUSH_TIMEOUT = 0.5
"""Maximum number of seconds for the last push of metrics at `close`."""
TAKES_METRICS = 71
"""API key of GetTelemetrySubscriptions; brokers that support it accept client metrics."""
EVENTS_TIMEOUT = 1.0
"""Maximum number of seconds in which `close` publishes the last events."""


class UnclosedWatch(Protocol):
    """Interface of the object that warns if a client is never closed."""

    engine: ClientEngine

    def closed(self) -> None:
        """Note that the client was closed properly."""


class CredentialsShown(Protocol):
    """Interface of another client with this client's credentials, such as its events' producer."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this user name and password from now on."""


class ClientCalls(Generic[E]):
    """Calls that all kinds of clients share."""

    least_to_close = 0.0
    """Minimum number of seconds for closing connections, even after the timeout."""

    def __init__(self, kind: str, config: Config, host: Host, build: Callable[[Host], E]) -> None:
        """Set `kind`, the public class's name, and `build`, which creates an engine."""
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
        """Client instance id of KIP-714, from this client's former engine; zeros without one."""
        self.engine.events.surfaces_by(host.surface)
        self._hear_of_connections(self.engine)

    def publishes_to(self, topic: CredentialsShown) -> None:
        """Register the producer of the client's events, which also needs changed credentials."""
        self.event_topic = topic

    def set_unclosed_watch(self, left_open: UnclosedWatch) -> None:
        """Register the object that warns if the client is never closed."""
        self.left_open = left_open

    def use(self, mechanism: Mechanism | None) -> None:
        """Authenticate by this mechanism from the first connection on."""
        self.engine.network.authenticates_by(mechanism)

    def listen(self, listener: Listener) -> None:
        """Pass each event to this listener from now on."""
        function("listener", listener)
        self._listeners.append(listener)
        self.engine.events.listen(listener)

    def traced_by(self, make: Callable[[ClientCalls[Any]], Traces]) -> Traces:
        """Trace this client with the object that `make` returns, until the client is freed."""
        self.check_untraced()
        traces = make(self)
        self.engine.traced_by(traces)
        return traces

    def check_untraced(self) -> None:
        """Raise if the client is closed or already traced."""
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
        """The engine of a producer, which may have unsent records; None for other clients."""
        return None

    @property
    def close_timeout(self) -> float:
        """Seconds for closing the client after an error, or at the program's end."""
        return CLOSE_TIMEOUT

    # Metrics, also those that brokers request (KIP-714)

    work: WorkTotals | None = None
    """Totals of a consumer's workers; None before it has workers."""

    def metrics(self) -> Metrics:
        """Take a snapshot of the client's metrics."""
        with first_use():
            from odradek.clients.metrics.snapshot import metrics

            return metrics(self.kind, self.engine, self.host, self.work)

    def _hear_of_connections(self, engine: E) -> None:
        if self.config["enable.metrics.push"]:
            engine.events.listen(self._note_connection)

    def _note_connection(self, event: Event) -> None:
        """Start to push metrics when a broker is connected that accepts them."""
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
            self.engine.metadata.request("the id of this client")  # this opens a connection
        while True:
            push, changed = self._push, [network.changed]
            if push is not None:
                if any(push.instance_id):
                    from uuid import UUID  # most clients don't need it

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
        """Run `flow(deadline)` to its end; at the deadline, raise an error that lists all attempts.

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
        """Run a generator in the engine until its end or the deadline; the client must be open."""
        engine, host = self.engine, self.host
        completion = engine.start(flow(deadline))
        engine.track(completion, what, deadline, unreached_until)
        try:
            host.wake()
            # `tuple.__new__` is faster than Wait(…).
            now = yield tuple.__new__(Wait, ((completion,), deadline + GRACE))
        # After a Ctrl-C, a fork or a lack of file descriptors, no caller needs the result.
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
                # Avoid a reference cycle between the error and this frame.
                del error, completion
        ended = engine.ended
        if completion.error is not None:
            _name_user(completion.error, engine.network.user)
        if ended is not None and completion.error is ended:
            raise ended.with_traceback(None)  # raised again by later calls: drop its traceback
        try:
            return completion.result()
        finally:
            del completion

    def check_open(self) -> None:
        """Raise if the client is closed; replace an interrupted engine. Requires no lock."""
        if self.closed:
            raise ClientClosedError(f"this {self.kind} is closed")
        self.host.check()
        if self.host.torn:
            self._renew()

    def check_here(self) -> None:
        """Raise in a forked child, unless the client was closed before the fork."""
        if not self.closed:
            self.host.check()

    def check_free(self, what: str) -> None:
        """Raise if the client is closed or another call of it is running in this thread."""
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
        """Replace the engine after an exception (a signal handler's, Ctrl-C) interrupted its step.

        The new engine takes over the user's settings: listeners, an assignment, positions. The old
        engine's calls are only ended as the last step (R-HO-1), so the next call can
        repeat this method if it is interrupted.
        """
        old, new = self.engine, self._build(self.host)
        if old.ended is not None and not old.torn:
            raise old.ended.with_traceback(None)  # the engine had ended before the interruption
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
        """Copy the state that the user's calls have set from the old engine to the new one."""

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
        """Mark the client as closed, then end its I/O thread, even after a Ctrl-C in between."""
        first, self.closed = not self.closed, True
        # Local variables, because another thread may close the client, too.
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
        """Close the client after `error`; if closing fails as well, add a note to `error`."""
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
    """Add the user's name to authorization errors, also to those in `errors` of a call's error."""
    if isinstance(failure, KafkaError):
        for error in (failure, *failure.errors.values()):
            if isinstance(error, AuthorizationError):
                error.of(user)
