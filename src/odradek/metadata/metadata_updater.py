"""Refresh the client's metadata whenever that is due, in one flow (a coroutine-like generator).

In: refreshes requested in `Metadata`, states of connections. Out: metadata requests; snapshots.
Terms of R-MD-3: an *attempt* is one request to one broker, or a connection attempt for it; a
*round* is one pass over all brokers that can be asked, the *candidates*; retry backoff is applied
between rounds only. Must not: store brokers outside the snapshot (R-MD-1).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import cast

from odradek.common.backoff import Backoff
from odradek.common.config import ADMIN, Config
from odradek.common.errors import (
    AnswerTooLargeError,
    Attempt,
    DisconnectedError,
    KafkaError,
    MalformedMessageError,
)
from odradek.common.errors.kafka import RebootstrapRequiredError, error_for
from odradek.common.sampled import Sampled
from odradek.common.types import Address, Rng
from odradek.metadata.bootstrap import Rebootstrap, UnexpectedBrokers, check_cluster_id, shuffled
from odradek.metadata.candidates import Candidates
from odradek.metadata.cluster import Cluster, is_possible
from odradek.metadata.late_responses import LateResponses
from odradek.metadata.least_loaded_node import Action, Candidate, Choice, choose
from odradek.metadata.metadata import Metadata
from odradek.metadata.refusals import Refusal, Refusals
from odradek.metadata.round import PendingRequest, Round
from odradek.network.connection import COORDINATOR, Connection
from odradek.network.connection_policy import PENDING_ATTEMPT_WAIT_S
from odradek.network.engine import Engine
from odradek.network.failures import in_words
from odradek.network.flow import START, Flow, Wait
from odradek.network.network_client import SUSPECT_AFTER_S, NetworkClient
from odradek.protocol.messages.metadata import MetadataRequestTopic, MetadataResponse
from odradek.protocol.packed_metadata import PackedMetadataRequest

logger = logging.getLogger("odradek.metadata")

ATTEMPTS_KEPT = 64
CONNECT = "connect"
"""Value of `Attempt.what` if the attempt was to connect."""
MAY_REFUSE = 4
"""First version of the Metadata API whose requests can disable topic creation (KIP-361)."""
WARNED_OF = 100
"""Maximum number of brokers with an invalid address for which a warning is logged."""
SAME_OUTAGE = 60.0
"""Seconds after a rebootstrap during which another one may count as its continuation."""


class MetadataUpdater:
    """The refreshes of one client's metadata, and its rebootstraps."""

    def __init__(
        self, engine: Engine, network: NetworkClient, metadata: Metadata, config: Config, rng: Rng
    ) -> None:
        self._engine = engine
        self._events = engine.events
        self._network = network
        self.metadata = metadata
        self._config = config
        self.bootstrap = shuffled(config["bootstrap.servers"], rng.shuffle)
        self._candidates = Candidates(network, metadata, self.bootstrap)
        creates = config.client != ADMIN and config["allow.auto.create.topics"]
        self._creates: bool = creates
        self._rebootstraps = config["metadata.recovery.strategy"] == "rebootstrap"  # R-RB-1
        self._trigger: float = config["metadata.recovery.rebootstrap.trigger.ms"]
        self._retry = Backoff(config.backoff("retry.backoff"), rng)
        self.refusals = Refusals(network)
        self.rounds = 0
        self.latency = Sampled()
        """Response times in seconds of good metadata responses."""
        self.current: Rebootstrap | None = None
        self.history: deque[Rebootstrap] = deque(maxlen=32)
        self.attempts: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT)
        """The last failed attempts since the last good response."""
        self.due_since: float | None = None
        self.unavailable_since: float | None = None
        """Time since which all known brokers have been unavailable, if they are (R-RB-6)."""
        self.next_attempt_at: float | None = None
        self._failed_in_a_row: dict[Address, None] = {}
        self._late = LateResponses(network, self._candidates)
        self._misled = UnexpectedBrokers(config["retry.backoff.max.ms"])
        self._forced: str | None = None
        self._warned_of: set[tuple[int, str, int]] = set()
        if self._rebootstraps and config["metadata.cluster.check.enable"]:
            network.means(self._meant_by)
        network.on_lost.append(self._lost)
        network.on_suspect.append(self._suspected)
        expected = config["cluster.id.expected"]
        if expected:
            metadata.expect(expected)

    @property
    def rounds_failed(self) -> int:
        """Number of failed rounds since the last good response."""
        return self._retry.failures

    @property
    def hedged(self) -> int:
        """Number of requests with a late response, so that another broker was asked as well."""
        return self._late.added

    # The flow that refreshes the metadata

    def run(self) -> Flow[None]:
        """Refresh the metadata whenever that is due, for as long as the client lives."""
        now = yield START
        self._network.dials.started(now)
        while True:
            due = self.metadata.due_at()
            if due > now and self._forced is None:
                self.next_attempt_at = due
                now = yield Wait((self.metadata.wanted,), None if due == math.inf else due)
                continue
            if self.due_since is None:
                self.due_since = now
            now = yield from self._refresh(now)

    def _refresh(self, now: float) -> Flow[float]:
        """Run rounds until a good metadata response arrives."""
        round_ = Round(self.rounds + 1)
        while True:
            self.rounds += 1
            done, now = yield from self._round(round_, now)
            if done:
                self._retry.succeeded()
                self.next_attempt_at = None
                return now
            until = self._retry.failed(now)
            round_ = Round(self.rounds + 1)
            self._events.emit(now, "round_failed", round=self.rounds, backoff=until - now)
            at = self._candidates.may_begin(
                round_, until, now, rebootstrapping=self.current is not None
            )
            self.next_attempt_at = at
            self.refusals.look(now, at)
            while now < min(at, self._trigger_at()) and self._forced is None:
                if self._late.forget_failures():
                    break  # a late response arrived
                waits = [self.metadata.wanted, *[a.reply for a in self._late.asked]]
                # If another component opens a connection, the round can use it earlier.
                if at > until:
                    waits.append(self._network.changed)
                now = yield Wait(tuple(waits), min(at, self._trigger_at()))
                if self._network.connections:
                    at = self.next_attempt_at = until

    def _round(self, round_: Round, now: float) -> Flow[tuple[bool, float]]:
        """Ask one broker after the other; return whether a good response came, and the time."""
        while True:
            while self._reads_on(round_, now):  # a large response is decoded in parts
                now = yield Wait((), math.nextafter(now, math.inf))
            if self._take_answers(round_, now):
                return True, now
            if self._engine.ended is not None:
                return False, now
            self._note_ends(round_, now)
            self._check_rebootstrap(round_, now)
            self.refusals.look(now)
            wait_until = min(self._trigger_at(), self.refusals.due_at)
            asked = round_.asked
            if asked is not None:
                wait_until = min(wait_until, asked.connection.held_at or math.inf)
                if now < (late_at := asked.sent_at + SUSPECT_AFTER_S):
                    wait_until = min(wait_until, late_at)
            else:
                choice = self._choose(round_, now)
                if choice is None:
                    return False, now
                if choice.action is Action.USE and choice.candidate is not None:
                    self._ask(round_, choice.candidate, now)
                    continue
                if choice.action is Action.DIAL and choice.address is not None:
                    made = self._network.dial_for_metadata(choice.address, now)
                    round_.dialled.append(made)
                    wait_until = min(wait_until, now + PENDING_ATTEMPT_WAIT_S)
                else:
                    wait_until = min(wait_until, choice.until)
            wait_until = min(wait_until, self._late.prove(now))
            self.next_attempt_at = wait_until
            now = yield Wait(
                (self._network.changed,), None if wait_until == math.inf else wait_until
            )

    # Requests

    def _choose(self, round_: Round, now: float) -> Choice | None:
        """Choose the broker to ask next; None if each one has failed or is silent."""
        if self._late.only_slow(now):
            return Choice(Action.NONE)
        rebootstrapping = self.current is not None
        found = self._candidates.of_round(
            round_, now, rebootstrapping=rebootstrapping, but=self._late.arriving(now)
        )
        dials, starts, known = self._network.dials, found.starts, found.known
        self._metadata_only(not any(c.answering for c in found.connected))
        self._make_room(starts, now)
        choice = choose(found.connected, now, lambda: dials.whom(starts, known, now))
        acts = choice.action in (Action.USE, Action.DIAL)
        return None if not acts and found.exhausted(some_failed=bool(round_.failed)) else choice

    def _metadata_only(self, only: bool) -> None:
        """Set whether connections to leaders must wait until metadata is available (R-CS-8)."""
        if self._network.dials.metadata_only(only):
            self._network.changed.notify()

    def _make_room(self, starts: list[Address], now: float) -> None:
        """End a pending attempt if some bootstrap address wasn't tried in this outage.

        Once all bootstrap addresses were tried, pending attempts continue: in a dead cluster,
        replacing them wouldn't help.
        """
        since = self.due_since if self.due_since is not None else now
        find = self._network.states.find
        if any((record := find(a)) is None or record.last_dial < since for a in starts):
            self._network.make_room(now)

    def _ask(self, round_: Round, candidate: Candidate, now: float) -> None:
        connection = candidate.connection
        topics, partial = self.metadata.next_topics(full=candidate.bootstrap)
        body = PackedMetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
        try:
            version = self._network.version_for(connection, PackedMetadataRequest)
            body.allow_auto_topic_creation = self._creates or version < MAY_REFUSE
            reply = self._network.send(connection, body, now)
        except KafkaError as error:
            self._attempt_failed(round_, candidate.address, "metadata request", error, now)
            return
        serial = self.metadata.sent(topics)
        round_.asks(
            PendingRequest(connection, reply, topics, partial, candidate.bootstrap, serial, now)
        )
        self._events.emit(
            now,
            "metadata_request",
            address=str(candidate.address),
            why=self.metadata.why,
            topics=len(topics),
            round=round_.number,
        )

    # Responses

    def _reads_on(self, round_: Round, now: float) -> bool:
        """Decode the next part of a large response; return whether a part was left."""
        waited_for = [] if round_.asked is None else [round_.asked]
        for asked in (*waited_for, *self._late.asked):
            try:
                answer = asked.read_on()
            except MalformedMessageError as error:
                text = f"{asked.connection.address}: {in_words(error)}"
                asked.failed(DisconnectedError(text))
                self._network.fail(asked.connection, error, now)
                continue
            if answer is not None:
                self.metadata.look_over(answer)
                return True
        return False

    def _take_answers(self, round_: Round, now: float) -> bool:
        """Process responses to the current and to late requests; return True after a good one."""
        asked = round_.asked
        if asked is not None:
            if asked.reply.done:
                round_.asks_no_more()
                if asked.reply.error is not None:
                    self.metadata.failed()
                if self._take(round_, asked, now):
                    return True
            elif asked.connection.is_held(now) or self._takes_long(round_, asked, now):
                # The request waits for a write that the broker holds, or its large response arrives
                # slowly (R-TI-1). This is no failure, but another broker is asked.
                round_.asks_no_more()
                self._late.add(asked)
                self.metadata.failed(late=True)
            elif asked.connection.suspect:
                # R-RB-2: the request counts as failed, and the next broker is asked; if the
                # response still arrives, it is used.
                round_.asks_no_more()
                self._late.add(asked)
                self.metadata.failed(late=True)
                error = KafkaError(f"no response for {SUSPECT_AFTER_S:.0f} s")
                proves = self._candidates.proves(asked, rebootstrapping=self.current is not None)
                if proves:
                    self._candidates.silence.asked()
                address = asked.connection.address
                self._attempt_failed(round_, address, "metadata request", error, now, proves=proves)
        for late in self._late.take():
            if late.reply.error is None and self._take(round_, late, now):
                return True
        return False

    def _takes_long(self, round_: Round, asked: PendingRequest, now: float) -> bool:
        """Return whether to ask another broker although a response is on its way."""
        if now < asked.sent_at + SUSPECT_AFTER_S or asked.connection.suspect:
            return False
        if self._late.arriving(now):
            return False  # a late response is arriving already
        if asked.connection.last_received <= asked.sent_at:
            return False  # silent, so marked as suspect soon
        rebootstrapping = self.current is not None
        return self._candidates.has_other(round_, asked, rebootstrapping=rebootstrapping)

    def _take(self, round_: Round, asked: PendingRequest, now: float) -> bool:
        address = asked.connection.address
        error = asked.reply.error
        if error is None:
            response = cast("MetadataResponse", asked.reply.result())
            error = self._refusal(response, asked, now)
            if error is not None and round_.asked is None:  # no newer request is in flight
                self.metadata.failed()
        if error is not None:
            self._attempt_failed(round_, address, "metadata request", error, now)
            if isinstance(error, AnswerTooLargeError):
                self._too_large(error, now)
            return False
        self._accept(response, asked, now)
        return True

    def _too_large(self, error: AnswerTooLargeError, now: float) -> None:
        """Fail the waiting calls if the client has no metadata, as the response is too large.

        The broker works, so this is no outage. A rebootstrap wouldn't help, because the response of
        each broker would be as large.
        """
        self.due_since = now
        if self.metadata.snapshot is None:
            self.refusals.tell(Refusal(error, now))

    def _refusal(
        self, response: MetadataResponse, asked: PendingRequest, now: float
    ) -> BaseException | None:
        """Return why a response can't be used; None if it can (R-MD-5, R-RB-3, R-RB-5)."""
        address = asked.connection.address
        if response.error_code == RebootstrapRequiredError.code:
            if self._rebootstraps:
                self._forced = f"{address} answered REBOOTSTRAP_REQUIRED"
            return RebootstrapRequiredError("the broker requires a rebootstrap")
        # After any other error, other brokers are asked.
        if response.error_code:
            return KafkaError(str(error_for(response.error_code)))
        if not response.brokers:
            return KafkaError("the response contains no brokers")
        if not any(is_possible(broker.host, broker.port) for broker in response.brokers):
            names = ", ".join(f"{broker.host!r}:{broker.port}" for broker in response.brokers)
            return KafkaError(f"the response contains only invalid addresses: {names}")
        foreign = check_cluster_id(self.metadata.cluster_id, response.cluster_id, address)
        if foreign is None:
            return None
        self._events.emit(
            now,
            "foreign_cluster",
            address=str(address),
            expected=foreign.expected,
            found=foreign.found,
        )
        self._network.disown(asked.connection, foreign, now)
        if asked.bootstrap:
            self._engine.end(foreign, "broken", error=str(foreign))
        return foreign

    def _accept(self, response: MetadataResponse, asked: PendingRequest, now: float) -> None:
        restarted = self.current is not None and asked.bootstrap
        snapshot = self.metadata.apply(
            response,
            asked.topics,
            now,
            partial=asked.partial,
            fresh=restarted or self.metadata.snapshot is None,
            serial=asked.serial,
            at=asked.connection.address,
            sent_at=asked.sent_at,
        )
        self._warn_of_addresses(response)
        address = asked.connection.address
        self.latency.record(now - asked.sent_at, now)
        asked.connection.is_ours()
        self._events.emit(
            now,
            "metadata",
            address=str(address),
            brokers=len(snapshot.brokers),
            cluster_id=snapshot.cluster_id,
            leaders=snapshot.led,
            leaderless=snapshot.leaderless,
        )
        self.due_since = self.unavailable_since = None
        self._failed_in_a_row.clear()
        self._candidates.answered(quick=now - asked.sent_at < SUSPECT_AFTER_S)
        self._late.clear()
        self.attempts.clear()
        self.refusals.forget()
        self._metadata_only(False)
        if self.current is not None:
            self._rebootstrapped(restarted, asked.connection, now)
        self._close_unneeded(snapshot, asked.connection, now)
        if not asked.partial:
            known = [*snapshot.addresses(), *self.bootstrap]
            self._network.forget_addresses(known, now, self._config["metadata.max.idle.ms"])

    def _warn_of_addresses(self, response: MetadataResponse) -> None:
        """Log a warning once for each broker with an invalid address."""
        for broker in response.brokers:
            named = broker.node_id, broker.host, broker.port
            if named not in self._warned_of and not is_possible(broker.host, broker.port):
                if len(self._warned_of) >= WARNED_OF:  # limit the memory of the set
                    return
                self._warned_of.add(named)
                logger.warning(
                    "broker %d advertises the invalid address %r:%d: the client can't use the "
                    "partitions that it leads. Correct advertised.listeners in its configuration",
                    *named,
                )

    def _close_unneeded(self, snapshot: Cluster, used: Connection, now: float) -> None:
        """Close connections to brokers outside the cluster, and those used only for metadata.

        If a broker is silent while requests are in flight, request another refresh: if the broker
        is dead, metadata names new leaders before `request.timeout.ms` is over.
        """
        for connection, why in self._candidates.unneeded(snapshot, used):
            self._network.close(connection, now, why)
        waits = self._candidates.waited_for()
        if waits is not None:
            self.metadata.request(f"{waits} still does not answer")

    def _rebootstrapped(self, restarted: bool, used: Connection, now: float) -> None:
        current = cast("Rebootstrap", self.current)
        self.current = None
        if current.end(now, used.address):  # report each rebootstrap once
            self._events.emit(
                now,
                "rebootstrapped",
                address=str(used.address),
                seconds=round(now - current.started, 6),
                cluster_id=self.metadata.cluster_id,
            )
        # R-RB-4: old connections may lead to other brokers; their requests are retried.
        if restarted:
            for connection in list(self._network.connections.values()):
                if connection is not used:
                    self._network.close(connection, now, "rebootstrap")

    # Failures

    def _attempt_failed(
        self,
        round_: Round | None,
        address: Address,
        what: str,
        error: BaseException,
        now: float,
        *,
        proves: bool = True,
    ) -> None:
        text = f"{type(error).__name__}: {error}"
        shown = CONNECT if what == "dial" else what
        self.attempts.append(Attempt(address, shown, text, now))
        large = isinstance(error, AnswerTooLargeError)  # not a failure: the broker works
        if proves and not large:
            self._failed_in_a_row[address] = None
        if round_ is not None:
            if proves:
                round_.failed[address] = None
            self._events.emit(
                now,
                "metadata_failed",
                address=str(address),
                what=what,
                error=text,
                round=round_.number,
                failure=not large,
            )

    def _note_ends(self, round_: Round, now: float) -> None:
        """Count the addresses of this round's failed connection attempts as failed."""
        for connection in round_.dialled.copy() if round_.dialled else ():
            if connection.ended:
                round_.dialled.remove(connection)
                if connection.address not in round_.failed and not connection.steps_down:
                    error = connection.record.last_error or KafkaError("the connection was closed")
                    self._attempt_failed(round_, connection.address, "dial", error, now)

    def _lost(self, connection: Connection, error: KafkaError, failure: bool, now: float) -> None:
        if connection.ready_at < math.inf:
            self._misled.led_right(connection.address)
        if isinstance(error, RebootstrapRequiredError) and self._rebootstraps:
            _, meant = self._meant_by(connection.address)
            in_use = connection.ready_at < math.inf  # its setup was finished before
            began = self.history[-1].started if self.history else -math.inf
            if in_use or self._misled.starts_again(connection.address, meant, now - began):
                self._forced = f"{connection.address} answered ApiVersions: REBOOTSTRAP_REQUIRED"
                self.metadata.wanted.notify()
        self.refusals.note(connection.address, error, now)
        if connection.purpose == COORDINATOR or not (failure or connection.left_in_use):
            return
        if not connection.proved:
            self._failed_in_a_row[connection.address] = None
            if not connection.for_metadata:
                self.attempts.append(
                    Attempt(connection.address, CONNECT, f"{type(error).__name__}: {error}", now)
                )
        ready = connection.ready_at < math.inf
        what, happened = ("connection", "was lost") if ready else ("connection attempt", "failed")
        self.metadata.request(f"the {what} to {connection.address} {happened}")

    def _suspected(self, connection: Connection, now: float) -> None:
        # Ask another broker, but count no failure, because the silent broker may only be slow.
        if connection.ready:
            self._candidates.silence.fell(connection.address, now - SUSPECT_AFTER_S)
        else:
            self._failed_in_a_row[connection.address] = None
        if self._candidates.unsettling(connection):
            held = connection.is_held(now)
            self.metadata.request(
                f"{connection.address} {'delays writes' if held else 'does not answer'}"
            )

    def _meant_by(self, address: Address) -> tuple[str | None, int]:
        """Return the cluster id and broker id to expect at an address (R-RB-8).

        Return (None, -1) for a bootstrap address, which may lead to any broker, and for an address
        that several brokers share.
        """
        snapshot = self.metadata.snapshot
        if snapshot is None or snapshot.cluster_id is None or address in self.bootstrap:
            return None, -1
        ids = [broker.id for broker in snapshot.brokers.values() if broker.address == address]
        return (snapshot.cluster_id, ids[0]) if len(ids) == 1 else (None, -1)

    # Rebootstrap

    def _trigger_at(self) -> float:
        if not self._rebootstraps or self.due_since is None or self.metadata.snapshot is None:
            return math.inf
        return self.due_since + self._trigger + 0.001  # strictly later, as in Kafka

    def _check_rebootstrap(self, round_: Round, now: float) -> None:
        snapshot = self.metadata.snapshot
        if snapshot is None:
            self._forced = None
            return
        if self._forced is not None or now >= self._trigger_at():
            why = self._forced or f"no metadata for {self._trigger:.0f} s"
            self._forced = None
            self.due_since = now
            self._begin(why, now, forced=True)
            self._forget(round_, now)
            return
        if self.current is not None and self.unavailable_since is not None:
            for connection in self._network.connections.values():
                if connection.ready and not connection.secondary:
                    break
            else:
                return  # the brokers are still unavailable
        why_not = self._candidates.why_unavailable(snapshot, self._failed_in_a_row, now)
        if why_not is None:
            self.unavailable_since = None
        elif self.unavailable_since is None:
            self.unavailable_since = now
        if why_not is not None and self._rebootstraps and self.current is None:
            self._begin(why_not, now)
            for address in self.bootstrap:  # try bootstrap addresses again in this round
                round_.failed.pop(address, None)

    def _begin(self, why: str, now: float, *, forced: bool = False) -> None:
        if self.current is not None:
            return
        snapshot = self.metadata.snapshot
        known = snapshot.addresses() if snapshot is not None else []
        last = self.history[-1] if self.history else None
        if last is not None and not forced and self._goes_on(last, known, now):
            last.go_on()
            self.current = last
            return
        self.current = Rebootstrap(why, now)
        self.history.append(self.current)
        self._events.emit(now, "rebootstrap", why=why, known=[str(a) for a in known])

    def _goes_on(self, last: Rebootstrap, known: list[Address], now: float) -> bool:
        """Return whether the outage that caused the last rebootstrap continues (R-RB-4).

        It continues if a bootstrap address answered but no broker in its response was reached since
        then, as with advertised addresses that are unreachable from this machine.
        """
        if last.ended is None or now > last.ended + SAME_OUTAGE:
            return False
        states = self._network.states
        return not any(states.state(a).proved_at > last.ended for a in known)

    def _forget(self, round_: Round, now: float) -> None:
        """Drop the snapshot and all connections, and restart this round (R-RB-4)."""
        if round_.asked is not None:
            self.metadata.failed()
        self.metadata.forget()
        for connection in list(self._network.connections.values()):
            self._network.close(connection, now, "rebootstrap")
        round_.failed.clear()
        round_.dialled.clear()
        round_.asks_no_more()
        self._late.clear()
