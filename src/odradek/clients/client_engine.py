"""Combine network and metadata of one client, and the steps that calls of all clients share.

In: the I/O host's inputs (passed to the network), clients' calls. Out: completions. Producer,
consumer and admin engines add their components to it. Must not: know records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from odradek.clients.any_broker import Brokers
from odradek.clients.bootstrap_timeout import AWAY, FIRST_CONTACT, seconds_to_reach
from odradek.clients.missing_topics import LIST_TIME, MissingTopics, did_you_mean, similar_names
from odradek.common.config import Config
from odradek.common.errors import (
    Attempt,
    ClientClosedError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
    first_use,
)
from odradek.common.errors.kafka import UnknownTopicOrPartitionError, error_for
from odradek.common.events import EventLog
from odradek.common.outage_log import OutageLog
from odradek.common.printable import cure, looks_at, sentence
from odradek.common.topic_names import check_sendable, check_topic
from odradek.common.types import Address, Rng
from odradek.metadata.cluster import Cluster, Topic, from_hint
from odradek.metadata.metadata import Metadata
from odradek.metadata.metadata_updater import CONNECT, MetadataUpdater
from odradek.metadata.refusals import Refusal
from odradek.network.connection import DATA, Connection
from odradek.network.connection_state import ConnectionState
from odradek.network.effects import AnyRequest
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.network.network_client import NetworkClient
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.clients.descriptions import TopicDescription
    from odradek.clients.traces import Traces
    from odradek.metadata.not_leader_errors import NotLeaderErrors

M = TypeVar("M", bound=Message)

FINAL_TOPIC_ERRORS = frozenset((17, 29))
"""INVALID_TOPIC_EXCEPTION and TOPIC_AUTHORIZATION_FAILED, after which waiting doesn't help."""
UNANSWERED = 0.1
"""Seconds after which a request without a response is listed among the attempts of a timeout."""
UNFINISHED = {
    ConnectionState.RESOLVING: "name not resolved yet",
    ConnectionState.CONNECTING: "not connected yet",
    ConnectionState.CHECKING_API_VERSIONS: "connected, but no answer to ApiVersions",
    ConnectionState.AUTHENTICATING: "connected, but no answer to the authentication",
}
"""Descriptions of connections that aren't ready, for errors."""


def again(error: KafkaError) -> KafkaError:
    """Return a copy of an error for another caller, with a separate traceback."""
    made = copy(error)
    made.__cause__ = error.__cause__
    return made


class Parts(NamedTuple):
    """Classes that decide when a client connects and which broker it asks.

    Simulations replace them with the rules of other clients.
    """

    network: type[NetworkClient] = NetworkClient
    updater: type[MetadataUpdater] = MetadataUpdater


SHIPPED = Parts()


class ClientEngine(Engine):
    """Engine, network and metadata of one client."""

    right = "DESCRIBE"
    """Operation on topics that this kind of client needs; READ and WRITE imply DESCRIBE."""

    def __init__(
        self,
        config: Config,
        rng: Rng,
        *,
        frame_limit: int = 64 << 20,
        hint: Mapping[str, Any] | None = None,
        parts: Parts = SHIPPED,
    ) -> None:
        super().__init__(EventLog(config["client.id"]))
        self.config = config
        self.rng = rng
        self.traces: Traces | None = None
        """Observer of the callers' calls, if the client is traced."""
        network = self.network = parts.network(self, config, rng, frame_limit=frame_limit)
        # The I/O host (thread or event loop) calls these methods of the network directly.
        self.connected, self.disconnected = network.connected, network.disconnected
        self.get_buffer, self.buffer_updated = network.get_buffer, network.buffer_updated
        self.sent, self.received = network.sent, network.received
        self.writable, self.resolved = network.writable, network.resolved
        self.metadata = Metadata(
            max_age=config["metadata.max.age.ms"],
            max_idle=config["metadata.max.idle.ms"],
            retry=config.backoff("retry.backoff"),
            rng=rng,
            clock=lambda: self.now,
        )
        self.updater = parts.updater(self, self.network, self.metadata, config, rng)
        self._denials: NotLeaderErrors | None = None
        self.metadata.on_denied.append(lambda what, at: self._deny(lambda d: d.leading(what, at)))
        servers = self.updater.bootstrap
        self.outages = OutageLog(
            config["client.id"], [str(a) for a in servers], partial(looks_at, servers)
        )
        self.events.listen(self.outages)
        self.components += [self.network, self.outages]
        self.updater.refusals.told_to(self._refused)
        self._callers: dict[Completion[Any], str] = {}
        self.waiting: dict[str, tuple[float, str]] = {}
        """The calls that wait, with their deadlines and reasons; shown by `explain()`."""
        if hint is not None:
            self.post(lambda now: self.metadata.start_from(from_hint(hint, now), now))
        self.brokers = Brokers(
            self,
            self.network,
            self.metadata,
            config.backoff("retry.backoff"),
            rng,
            timeout=self.timeout,
            denied=lambda *denial: self._deny(lambda d: d.denied(*denial)),
            just_created=self.just_made,
            right=self.right,
        )
        self.missing = MissingTopics(
            self, self.metadata, config["client.id"], self.updater.bootstrap, self._topics_there
        )
        if config[AWAY] is not None:
            # Imported here, because most clients don't set this timeout.
            from odradek.clients.unavailable_timeout import UnavailableTimeout

            polls_alone = AWAY not in config.given
            waits = (self.callers, self.unavailable_until, self._give_up)
            self.components.append(UnavailableTimeout(*waits, polls_alone=polls_alone))
        self.start(self.updater.run())
        self.start(self.missing.run())

    def not_sent(self, connection: int, correlation_id: int, error: BaseException) -> None:
        """Fail a request that couldn't be encoded; the address has not failed."""

        def give_back(_: float) -> None:
            for found in self.network.connections.values():
                if found.id == connection:
                    found.in_flight.give_back(correlation_id, error)
            self.network.changed.notify()

        self.post(give_back)

    def _deny(self, tell: Callable[[NotLeaderErrors], None]) -> None:
        """Report a NOT_LEADER or NOT_COORDINATOR error to the tracker, created on first use."""
        if self._denials is None:
            try:
                from odradek.metadata.not_leader_errors import NotLeaderErrors
            except OSError:  # no free file descriptor: try again at the next error
                return

            name, backoff = self.config["client.id"], self.config["retry.backoff.max.ms"]
            self._denials = NotLeaderErrors(name, self.network, self.metadata, self.rng, backoff)
        tell(self._denials)

    def traced_by(self, traces: Traces) -> None:
        """Trace the callers' calls with `traces` from now on."""
        self.traces = traces

    # Generators that calls share

    def snapshot(self, deadline: float) -> Flow[Cluster]:
        """Wait for the first metadata snapshot, and return it."""
        now = yield START
        while self.metadata.snapshot is None:
            now = yield from self.pause("metadata of the cluster", deadline, now)
        return self.metadata.snapshot

    def topic(self, name: str, deadline: float) -> Flow[Topic]:
        """Wait until a topic is known; raise at once if waiting can't help."""
        now = yield START
        check_topic(name)
        if self.metadata.topic_errors.get(name) in FINAL_TOPIC_ERRORS:
            del self.metadata.topic_errors[name]  # so that new metadata is requested
        while True:
            snapshot = self.metadata.snapshot
            found = snapshot.topic(name) if snapshot is not None else None
            if found is not None and found.partitions:
                return found
            code = self.metadata.topic_errors.get(name, 0)
            if code in FINAL_TOPIC_ERRORS:
                raise error_for(code, f"topic {name}").needing(self.right, name)
            self.metadata.want([name])
            if found is not None and self.metadata.in_flight_topics is None:
                self.metadata.request(f"topic {name} has no partitions yet")
            near = self.missing.near(name)
            so_far = f"; last answer: {error_for(code)}{near}" if code else ""
            now = yield from self.pause(f"metadata of topic {name}", deadline, now, so_far)

    def pause(self, what: str, deadline: float, now: float, so_far: str = "") -> Flow[float]:
        """Wait for the next change of the metadata; raise at the deadline (R-RT-2).

        `so_far` follows `what` in errors and says what is known. It is also part of the caller's
        own error if this generator can't raise in time on a busy machine.
        """
        if now >= deadline:
            raise self.timeout(what + so_far, now)
        self.waiting[what] = (deadline, so_far)
        try:
            now = yield Wait((self.metadata.changed,), deadline)
        finally:
            self.waiting.pop(what, None)
        return now

    def connect(self, address: Address, deadline: float, now: float) -> Flow[Connection]:
        """Wait for a usable connection to an address."""
        while True:
            found = self.network.ready(address, now, purpose=DATA)
            if found is not None:
                return found
            if now >= deadline:
                raise self.timeout(f"a connection to {address}", now)
            until = min(deadline, self.network.next_dial_at(address, now))
            now = yield Wait((self.network.changed,), until)

    def ask(
        self, address: Address, body: AnyRequest, response: type[M], deadline: float
    ) -> Flow[M]:
        """Send one request to one broker, without a retry; any `KafkaError` may be raised."""
        now = yield START
        connection = yield from self.connect(address, deadline, now)
        now = self.now
        # The caller's deadline ends the call, not the connection, which other calls share.
        reply = self.network.send(connection, body, now)
        now = yield Wait((reply,), deadline)
        if not reply.done:
            raise self.timeout(f"the response of {address} to {body.API_NAME}", now)
        return cast("M", reply.result())

    # Errors

    def timeout(
        self, what: str, now: float, own_attempts: Sequence[Attempt] = ()
    ) -> KafkaTimeoutError:
        """Return the error of a call that timed out, with every address tried and why it failed."""
        return self.timed_out(f"timed out waiting for {what}", now, own_attempts)

    def timed_out(
        self, happened: str, now: float, own_attempts: Sequence[Attempt] = ()
    ) -> KafkaTimeoutError:
        """Return the error of a timed-out call, with failed attempts; `happened` is its text."""
        attempts = [*self.recent_attempts(now), *own_attempts]
        error = self._timeout(happened, now, attempts)
        if (refusal := self.updater.refusals.latest()) is not None:
            error.__cause__ = refusal
        return error

    def _timeout(self, happened: str, now: float, attempts: Sequence[Attempt]) -> KafkaTimeoutError:
        unavailable = self.updater.unavailable_since is not None or self.metadata.snapshot is None
        if not unavailable or not attempts:
            return KafkaTimeoutError(happened, attempts, now)
        return self._no_broker(happened, "no broker can be reached", attempts, now)

    def _no_broker(
        self, what: str, why: str, attempts: Sequence[Attempt], now: float
    ) -> NoBrokerAvailableError:
        doctor = looks_at(self.updater.bootstrap)
        if not self.reached:
            error = NoBrokerAvailableError(f"{what}: {sentence(why)} {doctor}", attempts, now)
            error.reached_before = False
            return error
        strategy = self.config["metadata.recovery.strategy"]
        cure = (
            "With this strategy the client only retries the brokers it knows; "
            "metadata.recovery.strategy=rebootstrap would try bootstrap.servers again."
            if strategy == "none"
            else "Until it is closed, the client retries the known brokers and bootstrap.servers."
        )
        text = f"{what}: {why} (metadata.recovery.strategy={strategy}). {cure} {doctor}"
        return NoBrokerAvailableError(text, attempts, now)

    # Unavailable clusters (R-RB-6)

    def unavailable_since(self) -> float | None:
        """Return since when no broker can be reached; None while a broker can."""
        since = self.updater.unavailable_since
        return self.updater.due_since if since is None and self.metadata.snapshot is None else since

    def unavailable_until(self) -> float:
        """Return when a call may raise because no broker can be reached; infinite if never."""
        limit: float | None = self.config["metadata.unavailable.timeout.ms"]
        since = self.unavailable_since()
        return math.inf if limit is None or since is None else since + limit

    def unavailable(self, what: str, now: float, option: str = AWAY) -> NoBrokerAvailableError:
        """Return the error of a call; `option` names the limit that ends its wait."""
        since = self.unavailable_since()
        seconds = now - (now if since is None else since)
        why = f"no broker could be reached for {seconds:.1f} s ({option})"
        error = self._no_broker(
            f"timed out waiting for {what}", why, self.recent_attempts(now), now
        )
        error.__cause__ = self.updater.refusals.latest()
        return error

    def _give_up(self, call: Completion[Any], what: str, now: float) -> None:
        self.cancel_now(call, self.unavailable(what, now))

    # Clusters that were never reached (R-RB-10)

    @property
    def reached(self) -> bool:
        """Whether this client has reached a broker, or knows the cluster from another client."""
        return self.network.states.reached_anywhere or self.metadata.snapshot is not None

    def unreached_until(self, begun: float, governed_by: str | None) -> float:
        """Return when a call that began at `begun` ends if no broker is reached."""
        return math.inf if self.reached else begun + seconds_to_reach(self.config, governed_by)

    def unreached(self, what: str, now: float) -> NoBrokerAvailableError:
        """Return the error of a call that ends because no broker was reached."""
        return self.unavailable(what, now, FIRST_CONTACT)

    def _end_unreached(self, call: Completion[Any], what: str, until: float) -> Flow[None]:
        """End a call if no broker is reached until the time `until`."""
        yield START
        now = yield Wait((call,), until)
        if not call.done and not self.reached:
            self.cancel_now(call, self.unreached(what, now))

    def callers(self) -> list[tuple[Completion[Any], str]]:
        """Return the waiting calls, and descriptions of what they wait for."""
        return list(self._callers.items())

    def recent_attempts(self, now: float) -> list[Attempt]:
        """Return the last failure of each failing address, and of the metadata requests.

        It iterates over copies, because the I/O thread may open and close connections meanwhile.
        """
        found: dict[tuple[Address | None, str], Attempt] = {}
        late = now - UNANSWERED
        for attempt in tuple(self.updater.attempts):
            found[attempt.address, attempt.what] = attempt
        for state in self.network.states.all():
            if state.last_error is not None:
                error = f"{type(state.last_error).__name__}: {state.last_error}"
                attempt = Attempt(state.address, CONNECT, error, state.last_error_at)
                found[state.address, CONNECT] = attempt
        for connection in tuple(self.network.connections.values()):
            address = connection.address
            if not connection.ready:
                what = UNFINISHED.get(connection.state, "the connection is being closed")
                found[address, CONNECT] = Attempt(address, CONNECT, what, connection.dialled_at)
                continue
            unanswered = connection.in_flight.head
            if connection.suspect:
                silent = Attempt(
                    address, "request", "connected, but no response", connection.last_received
                )
                found[address, "request"] = silent
            elif unanswered is not None and unanswered.sent_at + unanswered.patience <= late:
                what = unanswered.body.API_NAME
                found[address, "request"] = Attempt(address, what, "no answer", unanswered.sent_at)
        return sorted(found.values(), key=lambda a: a.at)

    def shut(self) -> None:
        """Close the client: in the next step, all open futures and calls fail."""
        error: KafkaError = ClientClosedError("the client is closed")
        self.post(lambda now: self.end(error, "closed"))

    def track(
        self,
        completion: Completion[Any],
        what: str,
        deadline: float,
        unreached_until: float = math.inf,
    ) -> None:
        """Note a caller's wait for `explain()`.

        The wait ends at `unreached_until` if the client has reached no broker by then.
        """
        self.waiting[what] = (min(deadline, unreached_until), "")
        if unreached_until < deadline:
            self.start(self._end_unreached(completion, what, unreached_until))
        self._callers[completion] = what

        def untrack(_: object) -> None:
            self.waiting.pop(what, None)
            self._callers.pop(completion, None)

        completion.when_done(untrack)
        refusals = self.updater.refusals
        if refusals.last is not None and refusals.standing(self.now) is not None:
            self.start(self._refuse(completion, what))

    def waits(self) -> list[tuple[str, float]]:
        """Return the callers' waits with their deadlines, for `explain()`."""
        return [(what + so_far, until) for what, (until, so_far) in list(self.waiting.items())]

    def overdue(self, what: str, now: float) -> KafkaTimeoutError:
        """Return the error of a caller that timed out, with the state of what it waits for."""
        return self.timeout(what + self.waiting.get(what, (0.0, ""))[1], now)

    def _topics_there(self, deadline: float) -> Flow[list[str]]:
        """Return the names of all topics."""
        with first_use():  # most clients never miss a topic
            from odradek.clients.descriptions import list_topics

        return list_topics(self.brokers, deadline, internal=False)

    def describe_topics(
        self, topics: Sequence[str | UUID], deadline: float, *, operations: bool = False
    ) -> Flow[dict[str, TopicDescription]]:
        """Describe topics; the error of a missing one contains similar names and the solution."""
        with first_use():  # most clients describe no topic
            from odradek.clients.descriptions import describe_each

        yield START
        for topic in topics:
            if isinstance(topic, str):
                check_sendable(topic)
        found = yield from describe_each(self.brokers, topics, deadline, operations=operations)
        unknown = UnknownTopicOrPartitionError
        missing = [n for n, e in found.errors.items() if isinstance(e, unknown)]
        there: list[str] = []
        if missing:
            with suppress(KafkaError):  # without the list, errors name no similar topics
                there = yield from self._topics_there(min(deadline, self.now + LIST_TIME))
        for name in missing:
            if isinstance(name, str):
                near, cures = (
                    did_you_mean(similar_names(name, there)),
                    cure(name, self.updater.bootstrap),
                )
                found.errors[name] = unknown(f"topic {name} doesn't exist{near}. {cures}")
        return {topic.name: topic for topic in found.settled().values()}

    def just_made(self, topic: str) -> bool:
        """Return whether this client has just created a topic unknown to some brokers."""
        return False

    # Refusals (R-CS-4)

    def patient(self, what: str) -> bool:
        """Return whether a call continues to wait while no broker accepts this client."""
        return False

    def _refused(self, refusal: Refusal) -> None:
        """Fail every waiting call, because the brokers refuse this client's credentials."""
        for completion, what in list(self._callers.items()):
            if not completion.done and not self.patient(what):
                self.cancel_now(completion, again(refusal.error))

    def _refuse(self, completion: Completion[Any], what: str) -> Flow[None]:
        """Fail a new call at once if credentials were refused and no other attempt is due yet."""
        now = yield START
        error = self.updater.refusals.standing(now)
        if error is not None and not completion.done and not self.patient(what):
            self.cancel_now(completion, again(error))
