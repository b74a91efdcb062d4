"""`client.health()`: whether a client can do its work, for probes that run every second.

In: the engine of a client, read from any thread. Out: a frozen dataclass with one reason and its
cure. No request is sent for it, no lock is taken, and without a problem no text is formatted. Must
not: change anything, wait, or report a problem that passes by itself in seconds: a supervisor that
restarts programs because of it would make an outage worse.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.group.membership import MemberState
from odradek.clients.consumer.group.poll_overdue import OVERDUE_CURE, why_overdue
from odradek.clients.consumer.group.unmatched_pattern import pattern_cure
from odradek.clients.explain.causes import cure_of
from odradek.clients.explain.explain_producer import HINTS
from odradek.clients.explain.explanation import QUIET, explain
from odradek.clients.missing_topics import WARN_AFTER_S, Missing, did_you_mean
from odradek.clients.producer.transaction_state import TransactionState
from odradek.common.errors import KafkaError
from odradek.common.notebooks.display import Shown
from odradek.common.printable import cleaned, cure, lists_members, looks_at, shell_quoted
from odradek.network.connection_state import worded

if TYPE_CHECKING:
    from odradek.clients.calls.client_calls import ClientCalls
    from odradek.clients.consumer.consumer_engine import ConsumerEngine
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup
    from odradek.clients.producer.producer_engine import ProducerEngine

STUCK = 15.0
"""Seconds that a record may wait for its leader, or a consumer for its group, without a problem.

Elections and rebalances take less.
"""
TAKES = 5


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """One broker of the cluster."""

    id: int
    address: str
    state: str
    """`ready`: connected; `failing`: the last attempt failed, or the broker doesn't respond;
    `idle`: no connection is needed now."""


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """A consumer's state as a member of its group."""

    group_id: str
    state: str
    """The member's state as in `explain()`; `none` for a consumer that only commits."""
    assigned: int
    """Number of assigned partitions."""


@dataclass(frozen=True, slots=True)
class Health(Shown):
    """Whether a client can do its work. `to_dict()` returns plain data."""

    ok: bool
    """Whether the client can do its work, as far as it knows."""
    since: float | None
    """Time since which `ok` has this value, in seconds since the epoch like `time.time()`; None
    before the first event."""
    reason: str | None
    """The problem, as a sentence; also set for a problem with which `ok` remains true, such as one
    failed broker of three."""
    cure: str | None
    """The remedy, if something has to be done."""
    brokers: tuple[BrokerHealth, ...]
    """The cluster's brokers by id; empty before the first contact."""
    group: GroupHealth | None
    """State of the group; None except for consumers with a `group.id`."""
    lag: int | None
    """Total lag in offsets of the assigned partitions whose log end is known; None if no log end is
    known, and for clients that aren't consumers."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)


class _Finding(NamedTuple):
    """A problem that `health` reports; times are on the engine's clock."""

    ok: bool
    since: float | None
    reason: str
    cure: str | None


def health(calls: ClientCalls[Any]) -> Health:
    """Return the client's health; control characters in brokers' texts are replaced (R-IN-3)."""
    for _ in range(TAKES):
        try:
            return _picture(calls)
        except RuntimeError:  # the client's thread changed a dictionary that is read here
            continue
    return _picture(calls)


def _picture(calls: ClientCalls[Any]) -> Health:
    engine, now = calls.engine, calls.host.now()
    reads = cast("ConsumerEngine", engine) if hasattr(engine, "subscription") else None
    group = None if reads is None else reads.group
    found = _finding(calls, engine, now)
    if found is None:
        found = _Finding(True, _well_since(engine), "", None)
    shift = calls.host.wall_clock() - now
    return Health(
        found.ok,
        None if found.since is None else round(found.since + shift, 3),
        cleaned(found.reason) or None,
        cleaned(found.cure),
        _brokers(engine),
        None if group is None else _group(group),
        None if reads is None else _lag(reads),
    )


def _well_since(engine: ClientEngine) -> float | None:
    """Return the time of the first response, or of the end of the last outage."""
    outages = engine.outages
    return None if outages.known_since is None else max(outages.known_since, outages.last_ended)


def _finding(calls: ClientCalls[Any], engine: ClientEngine, now: float) -> _Finding | None:
    """Return the most serious problem; None if there is none."""
    if calls.closed:
        return _Finding(False, None, f"this {calls.kind} is closed", None)
    if engine.ended is not None:
        text = f"the client has stopped: {type(engine.ended).__name__}: {engine.ended}"
        return _Finding(
            False, engine.ended_at, text, cure_of(engine.ended) or "Create a new client."
        )
    outage = engine.outages.current
    if outage is not None and outage.total:
        return _outage(engine, outage.begun, now)
    return (
        _of_group(engine, now)
        or _of_transactions(engine)
        or _of_records(engine, now)
        or _of_topics(engine, now)
        or _of_pattern(engine)
        or (None if outage is None else _trouble(engine, outage.begun, now))
        or _of_quotas(engine, now)
    )


def _outage(engine: ClientEngine, begun: float, now: float) -> _Finding:
    """Return the problem that no broker answers."""
    picture = explain(engine, "", now)
    failing = [a for a in picture.addresses if a.cure is not None]
    refusal = engine.updater.refusals.latest()
    mends = cure_of(refusal) or (failing[0].cure if failing else None)
    return _Finding(False, begun, picture.diagnosis, mends)


def _trouble(engine: ClientEngine, begun: float, now: float) -> _Finding | None:
    """Return a problem with brokers that fail while others answer.

    Addresses that aren't needed any more don't count.
    """
    failing = any(broker.state == "failing" for broker in _brokers(engine))
    return _outage(engine, begun, now)._replace(ok=True) if failing else None


def _of_group(engine: ClientEngine, now: float) -> _Finding | None:
    group: ConsumerGroup | None = getattr(engine, "group", None)
    if group is None or group.membership is None:
        return None
    membership, error = group.membership, group.error
    since, name = membership.unsettled_since, f"group {group.group_id}"
    if isinstance(error, KafkaError):
        text = f"{name} refuses this consumer: {type(error).__name__}: {error}"
        return _Finding(False, since, text, cure_of(error))
    if membership.state is MemberState.STALE:
        return _Finding(False, since, why_overdue(group.config), OVERDUE_CURE)
    if cast("ConsumerEngine", engine).subscription.suspended:
        text = (
            f"no heartbeat to {name} was answered within session.timeout.ms: poll() returns no "
            "records until one is"
        )
        return _Finding(False, since, text, None)
    if since is None or now - since < STUCK or group.owned():
        return None
    text = (
        f"{name} has assigned this consumer no partitions for {now - since:.0f} s "
        f"({worded(membership.state)})"
    )
    waits = group.waits_for(now)
    if waits is not None:
        text += f". {waits[1]}"
    mends = lists_members(group.group_id, engine.updater.bootstrap)
    return _Finding(False, since, text, mends)


def _of_transactions(engine: ClientEngine) -> _Finding | None:
    manager = getattr(engine, "transactions", None)
    if manager is None or manager.state is not TransactionState.FATAL_ERROR:
        return None
    text = f"transactional id {manager.transactional_id}: {manager.error}"
    return _Finding(False, None, text, f"{HINTS['fatal_error'].capitalize()}.")


def _of_records(engine: ClientEngine, now: float) -> _Finding | None:
    """Return a problem with records whose leader is unavailable.

    A missing topic isn't one: a misspelled name delays no other topic.
    """
    if not hasattr(engine, "sender"):
        return None
    sends, missing = cast("ProducerEngine", engine), engine.missing.topics
    waits = [b for b in sends.incomplete() if b.count and b.partition.topic not in missing]
    oldest = min(waits, key=lambda batch: batch.created_at, default=None)
    if oldest is None or now - oldest.created_at < STUCK + sends.config["linger.ms"]:
        return None
    seconds, topic = now - oldest.created_at, oldest.partition.topic
    text = (
        f"a record for topic {topic} is {seconds:.0f} s old and waits for "
        f"{sends.wait_reasons.of(oldest, now)}"
    )
    mends = f"{looks_at(engine.updater.bootstrap)} --topic {shell_quoted(topic)}"
    return _Finding(False, oldest.created_at, text, mends)


def _of_topics(engine: ClientEngine, now: float) -> _Finding | None:
    """Return a problem with a missing topic or partition.

    `ok` is false for a consumer that has had nothing else to read for `STUCK`.
    """
    topics = {name: m for name, m in list(engine.missing.topics.items()) if _late(m, now)}
    numbers = {p: m for p, m in list(engine.missing.partitions.items()) if _late(m, now)}
    here, subscribed = set(), set()
    if hasattr(engine, "subscription"):
        reads = cast("ConsumerEngine", engine)
        here = set(reads.subscription.partitions)
        subscribed = set() if reads.group is None else set(reads.group.topics())
    missing = [*topics.values(), *(m for p, m in numbers.items() if p in here)]
    if not missing:
        return None
    since = max(m.since for m in missing)
    nothing = all(p in numbers or p.topic in topics for p in here) and subscribed <= topics.keys()
    ok = not (here or subscribed) or not nothing or now - since < STUCK
    if topics:
        name, found = next(iter(topics.items()))
        text = f"topic {name} doesn't exist{did_you_mean(found.near)}"
        return _Finding(ok, since, text, cure(name, engine.updater.bootstrap))
    partition = next(p for p in numbers if p in here)
    text = f"topic {partition.topic} has no partition {partition.partition}"
    mends = f"{looks_at(engine.updater.bootstrap)} --topic {shell_quoted(partition.topic)}"
    return _Finding(ok, since, text, mends)


def _of_pattern(engine: ClientEngine) -> _Finding | None:
    """Return a finding for a pattern that no topic matches; `ok`, as topics may be created."""
    group: ConsumerGroup | None = getattr(engine, "group", None)
    if group is None or group.unmatched is None:
        return None
    since, text = group.unmatched
    return _Finding(True, since, text, pattern_cure(group.config))


def _of_quotas(engine: ClientEngine, now: float) -> _Finding | None:
    """Return the problem that brokers throttle this client (KIP-219), which passes."""
    lines = list(engine.network.connections.values())
    quiet = max(lines, key=lambda line: line.throttled_until, default=None)
    left = 0.0 if quiet is None else quiet.throttled_until - now
    if quiet is None or left < QUIET:
        return None
    text = f"{quiet.address} throttles this client for {left:.0f} s more because of a quota"
    mends = "Raise the quota of this client's user or client.id, or send and fetch less."
    return _Finding(True, _well_since(engine), text, mends)


def _late(missing: Missing, now: float) -> bool:
    return now - missing.since >= WARN_AFTER_S


def _brokers(engine: ClientEngine) -> tuple[BrokerHealth, ...]:
    snapshot, states = engine.metadata.snapshot, engine.network.states
    if snapshot is None:
        return ()
    ready = set()
    for connection in list(engine.network.connections.values()):
        if connection.ready and not connection.suspect and not connection.secondary:
            ready.add(connection.address)
    found = []
    for broker in sorted(snapshot.brokers.values(), key=lambda one: one.id):
        record = states.find(broker.address)
        failing = record is not None and record.failures > 0
        state = "ready" if broker.address in ready else "failing" if failing else "idle"
        found.append(BrokerHealth(broker.id, str(broker.address), state))
    return tuple(found)


def _group(group: ConsumerGroup) -> GroupHealth:
    membership = group.membership
    state = "none" if membership is None else membership.state.value
    return GroupHealth(group.group_id, state, len(group.owned()))


def _lag(engine: ConsumerEngine) -> int | None:
    known = [lag for lag in engine.subscription.lags().values() if lag is not None]
    return sum(known) if known else None
