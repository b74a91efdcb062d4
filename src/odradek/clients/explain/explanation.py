"""`client.explain()`: why nothing is happening, and when the next attempt is (R-EV-1).

In: an engine and its time. Out: a frozen dataclass that prints as text and converts to plain data.
Must not: do I/O, wait, or change anything. Any thread may call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from odradek.clients.client_engine import ClientEngine
from odradek.clients.explain.causes import cause
from odradek.clients.explain.explain_group import GroupExplanation, explain_group
from odradek.clients.explain.explain_producer import (
    LONG,
    RecordsExplanation,
    TransactionExplanation,
    explain_records,
    explain_transaction,
    explain_weaker,
)
from odradek.clients.explain.explain_reading import ReadingExplanation, explain_reading
from odradek.clients.missing_topics import did_you_mean
from odradek.common.notebooks.display import Shown
from odradek.common.outage import BOOTSTRAP, DNS, EXPIRED, KNOWN, REBOOTSTRAP, RETRY, ROUND, number
from odradek.common.printable import cleaned
from odradek.common.types import Address
from odradek.network.cluster_connection_states import AddressState
from odradek.network.connection import Connection
from odradek.network.connection_policy import AllowedTime, AttemptDelay, next_dial
from odradek.network.connection_state import worded
from odradek.record import PoolState, pool_state

if TYPE_CHECKING:
    from odradek.clients.consumer.subscription_state import SubscriptionState
    from odradek.clients.producer.producer_engine import ProducerEngine

NEVER = 1e15
"""Lower limit of times that mean "never, unless an event comes first"."""
TAKES = 5
QUIET = 1.0
"""Seconds of throttling from which on the text mentions it."""
SOON = 0.05
"""Seconds below which the text says "in progress", as the time would print as 0.0."""
SHOWN_ATTEMPTS = 5
"""Maximum number of different attempts in the text; `attempts` has all."""


@dataclass(frozen=True, slots=True)
class AddressExplanation:
    """One broker or bootstrap address."""

    address: str
    role: str
    """`broker N`, `bootstrap`, or both; `former` if the address no longer belongs to the
    cluster."""
    state: str
    """State of the connection, with Kafka's name: disconnected, resolving, connecting,
    checking_api_versions, ready."""
    ip: str | None
    """IP address of the last connection attempt."""
    proved: bool
    """Whether this address has ever answered a request other than ApiVersions."""
    silent: bool
    """Whether a request or a connection attempt has had no response for so long that the client
    asks other brokers for metadata as well (R-RB-2)."""
    in_flight: int
    pending_for: float | None
    """Seconds since the start of the current connection attempt."""
    setup_left: float | None
    """Seconds until the current connection attempt times out (KIP-601)."""
    throttled_for: float
    """Remaining seconds for which the broker throttles this client (KIP-219)."""
    failures: int
    """Failures in a row since the last successful response of this address."""
    last_error: str | None
    last_error_age: float | None
    """Seconds since the last error."""
    meaning: str | None
    """The usual cause of the last error."""
    backoff_left: float
    """Remaining reconnect backoff of this address, in seconds (KIP-144)."""
    next_dial_in: float | None = None
    """Seconds until the next connection attempt is allowed; None if that depends on an event, or if
    there is a connection."""
    next_dial_after: str = ""
    """Reason why the next connection attempt waits; empty if it doesn't."""
    stage: str | None = None
    """Where the last error occurred: name, network, proxy, tls, sasl, protocol, broker or cluster;
    None without an error."""
    cure: str | None = None
    """The usual remedy for the last error."""

    @property
    def ready(self) -> bool:
        """Whether requests can be sent to this address."""
        return self.state == "ready"


@dataclass(frozen=True, slots=True)
class RebootstrapExplanation:
    """One rebootstrap (KIP-899)."""

    why: str
    age: float
    """Seconds since the rebootstrap began."""
    seconds: float | None
    """Duration of the rebootstrap; None while it is running."""
    address: str | None
    """The address that answered."""


@dataclass(frozen=True, slots=True)
class OutageExplanation:
    """The current outage; its counters cover the last `counted_for` seconds."""

    seconds: float
    what: str
    """The failure that started the outage."""
    total: bool
    """True if no address answers; False if some addresses fail while others work."""
    in_a_row: int
    """Number of outages in close succession, including this one."""
    counted_for: float
    dials_of_known: int
    dials_of_bootstrap: int
    attempts_of_known: int
    """Number of failed connection attempts and metadata requests (R-MD-3)."""
    attempts_of_bootstrap: int
    rounds: int
    retries: int
    rebootstraps: int
    expired: int
    unresolved: int = 0
    """Number of failed name resolutions; these aren't counted as connection attempts."""


@dataclass(frozen=True, slots=True)
class AttemptExplanation:
    """A connection attempt or request that failed since the last successful response."""

    address: str | None
    what: str
    error: str
    age: float


@dataclass(frozen=True, slots=True)
class MissingExplanation:
    """A topic or a partition that is in use but doesn't exist."""

    topic: str
    partition: int | None
    """The missing partition; None if the whole topic is missing."""
    seconds: float
    """Seconds since a call first needed the topic or partition."""
    near: tuple[str, ...]
    """Existing topics with similar names, once they have been looked up."""

    def __str__(self) -> str:
        what = "" if self.partition is None else f"partition {self.partition} of "
        text = f"{what}topic {self.topic} still doesn't exist after {self.seconds:.1f} s"
        return text + did_you_mean(self.near)


@dataclass(frozen=True, slots=True)
class BufferExplanation:
    """Sizes of the buffers that a client keeps for reuse, in bytes."""

    received: int
    """Receive buffers of this client, including those in use."""
    received_limit: int
    received_made: int
    received_reused: int
    columns: PoolState
    """Decode buffers, shared by all clients of this process."""


@dataclass(frozen=True, slots=True)
class Explanation(Shown):
    """State of a client, its attempts, and the calls that are waiting. Times are in seconds."""

    client: str
    client_id: str
    diagnosis: str
    """A summary of one or two sentences."""
    ended: str | None
    """Why the client has stopped, else None."""
    cluster_id: str | None
    metadata_age: float | None
    metadata_why: str | None
    """Why a metadata refresh is due; None if none is due."""
    metadata_running: bool
    """Whether a metadata request is in flight."""
    next_attempt_in: float | None
    """Time until the client next tries to refresh its metadata: if it waits for a connection
    attempt, until that times out; if no refresh is due, until the next regular one."""
    rounds_failed: int
    """Number of times that all brokers failed since the last successful response (R-MD-3)."""
    recovery_strategy: str
    outage: OutageExplanation | None
    addresses: tuple[AddressExplanation, ...]
    rebootstraps: tuple[RebootstrapExplanation, ...]
    rebootstrapping: bool
    waiting: tuple[tuple[str, float], ...]
    """Calls that are waiting: what each waits for, and the seconds until it times out."""
    attempts: tuple[AttemptExplanation, ...]
    """Failed attempts of the current outage, the latest last."""
    buffers: BufferExplanation
    group: GroupExplanation | None = None
    """State of the group; None except for consumers with a `group.id`."""
    transaction: TransactionExplanation | None = None
    """State of the transactions; None except for producers with a `transactional.id`."""
    records: RecordsExplanation | None = None
    """The oldest unacknowledged records of a producer; None if there are none."""
    weaker: str | None = None
    """The guarantees that a producer without idempotence lacks, and why; None for other clients."""
    missing: tuple[MissingExplanation, ...] = ()
    """Topics and partitions in use that don't exist."""
    reading: ReadingExplanation | None = None
    """Progress in the assigned partitions; None except for consumers that have some."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.client} {self.client_id}, cluster {self.cluster_id or 'not known yet'}"]
        lines.append(f"  {self.diagnosis}")
        lines.append(f"  {self.metadata_line()}")
        parts: tuple[object, ...] = (self.group, self.reading, self.transaction, self.records)
        parts += (self.weaker, *self.missing)
        lines += [f"  {part}" for part in parts if part is not None]
        lines += [f"  {line(a)}" for a in self.addresses]
        lines += [f"  {text}" for text in self.outage_lines()]
        lines += [f"  {text}" for text in self.rebootstrap_lines()]
        lines += [f"  a call waits for {what} ({left:.1f} s left)" for what, left in self.waiting]
        if not self.waiting:
            lines.append("  no call is waiting")
        if self.buffers.received_made:
            lines.append(f"  {self._buffer_line()}")
        return "\n".join(lines)

    def metadata_line(self) -> str:
        """Return a line with the age of the metadata and the reason of the next refresh."""
        age = "none yet" if self.metadata_age is None else f"{self.metadata_age:.1f} s old"
        if self.metadata_why is not None:
            refresh = f"; refresh due: {self.metadata_why}"
            if self.metadata_running:
                refresh += "; request in flight"
            elif self.next_attempt_in is not None:
                refresh += f"; next attempt in {self.next_attempt_in:.1f} s"
            else:
                refresh += "; waiting for a connection"
        elif self.next_attempt_in is not None:
            refresh = f"; next refresh in {self.next_attempt_in:.1f} s (metadata.max.age.ms)"
        else:
            refresh = ""
        if self.rounds_failed:
            refresh += f"; all brokers failed {number(self.rounds_failed, 'time')}"
        return f"metadata: {age}{refresh}"

    def _buffer_line(self) -> str:
        b, c = self.buffers, self.buffers.columns
        return (
            f"buffers for responses: {_mib(b.received)} of {_mib(b.received_limit)} (created "
            f"{b.received_made}, reused {number(b.received_reused, 'time')}); for columns: "
            f"{_mib(c.lent)} in use, {_mib(c.idle)} of {_mib(c.limit)} idle (created {c.made}, "
            f"reused {number(c.reused, 'time')}, shared by all clients of this process)"
        )

    def outage_lines(self) -> list[str]:
        """Return lines that describe the current outage and its latest failed attempts."""
        outage = self.outage
        if outage is None:
            return []
        kind = "no broker answers" if outage.total else "other brokers answer"
        row = f"; {outage.in_a_row} outages in a row" if outage.in_a_row > 1 else ""
        dials = (
            (outage.dials_of_known, outage.attempts_of_known, KNOWN),
            (outage.dials_of_bootstrap, outage.attempts_of_bootstrap, BOOTSTRAP),
        )
        counts = [
            f"{number(begun, 'connection attempt')} to {whose} ({number(failed, 'failure')})"
            for begun, failed, whose in dials
            if begun or failed
        ]
        others = ((outage.unresolved, DNS), (outage.rounds, ROUND), (outage.retries, RETRY))
        counts += [number(count, kind) for count, kind in others if count]
        lines = [
            f"outage for {outage.seconds:.1f} s ({kind}{row}), began with {outage.what}",
            f"  in {outage.counted_for:.1f} s: {', '.join(counts) or 'no attempts yet'}",
        ]
        groups: dict[tuple[str, str, str], list[float]] = {}
        for a in self.attempts:
            key = (a.address or "any broker", a.what, a.error)
            groups[key] = [*groups.pop(key, ()), a.age]  # keep the latest at the end
        for (address, what, error), ages in list(groups.items())[-SHOWN_ATTEMPTS:]:
            times = f"{len(ages)} times, last " if len(ages) > 1 else ""
            lines.append(f"  {times}{ages[-1]:.1f} s ago: {address}: {what}: {error}")
        return lines

    def rebootstrap_lines(self) -> list[str]:
        """Return a line for each rebootstrap, with its reason and its result."""
        lines = []
        for r in self.rebootstraps:
            end = "still running"
            if r.seconds is not None:
                end = f"{r.address} answered after {r.seconds:.1f} s"
            lines.append(f"rebootstrap {r.age:.1f} s ago: {r.why}; {end}")
        strategy = f"metadata.recovery.strategy={self.recovery_strategy}"
        return lines or [f"no rebootstrap so far ({strategy})"]


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def explain(engine: ClientEngine, client: str, now: float) -> Explanation:
    """Return the explanation; control characters in brokers' texts are replaced (R-IN-3)."""
    for _ in range(TAKES):
        try:
            return cleaned(_picture(engine, client, now))
        except RuntimeError:  # the client's thread changed a dictionary that is read here
            continue
    return cleaned(_picture(engine, client, now))


def _picture(engine: ClientEngine, client: str, now: float) -> Explanation:
    updater, metadata = engine.updater, engine.metadata
    snapshot = metadata.snapshot
    due = metadata.requested or snapshot is None
    attempt = updater.next_attempt_at
    next_attempt = max(0.0, attempt - now) if attempt is not None and attempt < NEVER else None
    ended = None if engine.ended is None else f"{type(engine.ended).__name__}: {engine.ended}"
    outage, addresses = _outage(engine, now), _addresses(engine, now)
    dials = [a.setup_left for a in addresses if a.setup_left is not None]
    if due and dials:  # the refresh waits for these attempts, not for the updater's next check
        next_attempt = min([*dials, *([] if next_attempt is None else [next_attempt])])
    soon = next_attempt if due else min(dials, default=None)
    consumes, transacts = getattr(engine, "group", None), getattr(engine, "transactions", None)
    reads: SubscriptionState | None = getattr(engine, "subscription", None)
    sends = cast("ProducerEngine", engine) if hasattr(engine, "sender") else None
    group = explain_group(consumes, reads, metadata, now) if consumes and reads else None
    heard = ended is None and (outage is None or not outage.total)
    missing = _missing(engine, now)
    records = None if sends is None else explain_records(sends, now)
    buffers = engine.network.buffers
    trouble = ""
    if heard and group is not None:
        trouble = group.trouble({one.topic for one in missing})
    if heard and missing:
        trouble += f" But {missing[0]}."
    elif heard and records is not None and records.seconds >= LONG:
        trouble += f" But {records}."
    return Explanation(
        client=client,
        client_id=engine.config["client.id"],
        diagnosis=diagnosis(ended, metadata.cluster_id, outage, addresses, soon) + trouble,
        ended=ended,
        cluster_id=metadata.cluster_id,
        metadata_age=None if snapshot is None else max(0.0, now - snapshot.updated_at),
        metadata_why=metadata.why if due else None,
        metadata_running=metadata.in_flight_topics is not None,
        next_attempt_in=next_attempt,
        rounds_failed=updater.rounds_failed,
        recovery_strategy=engine.config["metadata.recovery.strategy"],
        outage=outage,
        addresses=addresses,
        rebootstraps=tuple(
            RebootstrapExplanation(
                r.why,
                max(0.0, now - r.started),
                None if r.ended is None else r.ended - r.started,
                None if r.address is None else str(r.address),
            )
            for r in list(updater.history)
        ),
        rebootstrapping=updater.current is not None,
        waiting=tuple((what, max(0.0, until - now)) for what, until in engine.waits()),
        attempts=tuple(
            AttemptExplanation(
                None if a.address is None else str(a.address), a.what, a.error, max(0.0, now - a.at)
            )
            for a in list(updater.attempts)
        ),
        buffers=BufferExplanation(
            buffers.kept, buffers.limit, buffers.made, buffers.reused, pool_state()
        ),
        group=group,
        transaction=transacts and explain_transaction(transacts),
        records=records,
        weaker=None if sends is None else explain_weaker(sends),
        missing=missing,
        reading=None if reads is None else explain_reading(reads, metadata),
    )


def _missing(engine: ClientEngine, now: float) -> tuple[MissingExplanation, ...]:
    found = engine.missing
    topics = [(name, None, m) for name, m in list(found.topics.items())]
    parts = [(p.topic, p.partition, m) for p, m in list(found.partitions.items())]
    return tuple(
        MissingExplanation(topic, number, max(0.0, now - m.since), m.near)
        for topic, number, m in [*topics, *parts]
    )


def _outage(engine: ClientEngine, now: float) -> OutageExplanation | None:
    outages = engine.outages
    current, counts = outages.current, outages.counts
    if current is None:
        return None
    return OutageExplanation(
        seconds=max(0.0, now - current.begun),
        what=current.what,
        total=current.total,
        in_a_row=outages.in_a_row,
        counted_for=max(0.0, now - outages.counts_since),
        dials_of_known=counts.dials[KNOWN],
        dials_of_bootstrap=counts.dials[BOOTSTRAP],
        attempts_of_known=counts.attempts[KNOWN],
        attempts_of_bootstrap=counts.attempts[BOOTSTRAP],
        rounds=counts.others[ROUND],
        retries=counts.others[RETRY],
        rebootstraps=counts.others[REBOOTSTRAP],
        expired=counts.others[EXPIRED],
        unresolved=counts.names.total(),
    )


def _addresses(engine: ClientEngine, now: float) -> tuple[AddressExplanation, ...]:
    snapshot = engine.metadata.snapshot
    due = engine.metadata.requested or snapshot is None
    roles: dict[Address, list[str]] = {}
    for broker in snapshot.brokers.values() if snapshot is not None else ():
        roles.setdefault(broker.address, []).append(f"broker {broker.id}")
    for address in engine.updater.bootstrap:
        roles.setdefault(address, []).append("bootstrap")
    states = {state.address: state for state in engine.network.states.all()}
    for address in states:
        roles.setdefault(address, ["former"])
    lines: dict[Address, list[Connection]] = {}
    for connection in list(engine.network.connections.values()):
        lines.setdefault(connection.address, []).append(connection)
    return tuple(
        _address(
            ", ".join(role),
            states.get(a) or AddressState(a),
            lines.get(a, []),
            engine.network.dials.when(a, now, for_metadata=due),
            now,
        )
        for a, role in roles.items()
    )


def _address(
    role: str, state: AddressState, connections: list[Connection], dial: AllowedTime, now: float
) -> AddressExplanation:
    # An address may have several connections (such as one for metadata): the most useful one
    # counts.
    ordered = sorted(connections, key=lambda c: (not c.ready, c.beside, c.suspect, c.id))
    connection = ordered[0] if ordered else None
    pending = connection if connection is not None and not connection.ready else None
    silent = connection is not None and connection.suspect
    error = state.last_error
    name = "disconnected" if connection is None else connection.state.value
    throttled = 0.0 if connection is None else max(0.0, connection.throttled_until - now)
    usual = cause(error, name, silent=silent, unproved=state.dial_failed)
    return AddressExplanation(
        address=str(state.address),
        role=role,
        state=name,
        ip=state.last_ip,
        proved=state.proved_at > -NEVER,
        silent=silent,
        in_flight=sum(len(c.in_flight) for c in connections),
        pending_for=None if pending is None else max(0.0, now - pending.dialled_at),
        setup_left=None if pending is None else max(0.0, pending.setup_deadline - now),
        throttled_for=throttled,
        failures=state.failures,
        last_error=None if error is None else f"{type(error).__name__}: {error}",
        last_error_age=None if error is None else max(0.0, now - state.last_error_at),
        meaning=None if usual is None else usual.meaning,
        backoff_left=max(0.0, state.backoff_until - now),
        next_dial_in=dial.at - now if connection is None and dial.at < NEVER else None,
        next_dial_after="" if connection is not None else dial.why.value,
        stage=None if usual is None else usual.stage.value,
        cure=None if usual is None else usual.cure,
    )


# Texts


def line(a: AddressExplanation) -> str:
    """Return an address as one line."""
    text = f"{a.address} ({a.role}): {worded(a.state)}"
    if a.silent:
        text += ", no response"
    if a.pending_for is not None:
        text += f" for {a.pending_for:.1f} s"
        if a.setup_left is not None:
            text += f", times out in {a.setup_left:.1f} s"
    if a.in_flight:
        text += f", {number(a.in_flight, 'request')} in flight"
    if a.throttled_for:
        text += f", throttled for {a.throttled_for:.1f} s"
    if a.failures:
        text += f", {number(a.failures, 'failure')} in a row"
    if a.last_error is not None and a.last_error_age is not None:
        tried = f" at {a.ip}" if a.ip is not None else ""
        text += f", last error {a.last_error_age:.1f} s ago{tried}: {a.last_error}"
    if a.next_dial_after:
        text += f", {next_dial(a.next_dial_in, a.next_dial_after)}"
    elif a.state == "disconnected" and not a.failures:
        text += ", not needed now"
    if a.meaning is not None and a.meaning not in text:
        text += f" [{a.meaning}]"
    return text


def _in(seconds: float) -> str:
    return "in progress" if seconds < SOON else f"in {seconds:.1f} s"


def diagnosis(
    ended: str | None,
    cluster_id: str | None,
    outage: OutageExplanation | None,
    addresses: Sequence[AddressExplanation],
    next_attempt: float | None,
) -> str:
    """Return a client's state in a sentence or two."""
    if ended is not None:
        return f"The client has stopped: {ended}"
    brokers = [a for a in addresses if "broker" in a.role]
    starts = [a for a in addresses if "bootstrap" in a.role]
    ready = sum(a.ready and not a.silent for a in brokers)
    soon = "" if next_attempt is None else f" The next attempt is {_in(next_attempt)}."
    if not brokers:
        failing = [a for a in starts if a.failures or a.silent]
        if not failing:
            waits = [a for a in starts if a.next_dial_after == AttemptDelay.FIRST]
            if waits and waits[0].next_dial_in is not None:
                return (
                    "The cluster hasn't been reached yet: the first connection attempt is in "
                    f"{waits[0].next_dial_in:.1f} s (reconnect.first.jitter.ms)."
                )
            return "The cluster hasn't been reached yet: " + (
                "the first connection is being opened."
                if any(a.pending_for is not None or a.ready for a in starts)
                else "this client has had no call so far."
            )
        return f"The cluster can't be reached: {_causes(failing, 'bootstrap address')}.{soon}"
    failing = [a for a in brokers if a.failures or a.silent]
    answered = any(a.proved and not a.failures and not a.silent for a in starts)
    if answered and len(failing) == len(brokers) and not any(a.proved for a in brokers):
        named = ", ".join(a.address for a in brokers[:3])
        return (
            f"A bootstrap address answers, but none of the brokers in its metadata ({named}) can "
            "be reached: check that their advertised.listeners can be reached from this machine. "
            f"Connection attempts: {_causes(failing, 'broker')}.{soon}"
        )
    if outage is not None and outage.total:
        failing = [a for a in addresses if a.failures or a.silent]
        causes = _causes(failing, "address")
        return f"No broker has answered for {outage.seconds:.1f} s: {causes}.{soon}"
    known = f"cluster {cluster_id}, {ready} of {len(brokers)} brokers connected"
    quiet = throttled(addresses)
    if quiet is not None and not failing:
        return f"It works slowly: {known}; {quiet}."
    if failing and outage is None:
        return f"It works: {known}; at the last attempt, {_causes(failing, 'broker')}."
    if failing:
        all_fail = len(failing) == len(brokers)
        how = "Every known broker fails" if all_fail else "It works in part"
        return f"{how}: {known}; {_causes(failing, 'broker')}.{soon if all_fail else ''}"
    return f"It works: {known}; connections are opened when they are needed."


def throttled(addresses: Sequence[AddressExplanation]) -> str | None:
    """Return which broker throttles this client for long (KIP-219); None if no broker does."""
    quiet = [a for a in addresses if a.throttled_for >= QUIET]
    if not quiet:
        return None
    longest = max(quiet, key=lambda a: a.throttled_for)
    more = f" (and {number(len(quiet) - 1, 'other broker')} as well)" if len(quiet) > 1 else ""
    return (
        f"{longest.address} throttles this client for {longest.throttled_for:.1f} s more because "
        f"of a quota{more}"
    )


def _causes(failing: Sequence[AddressExplanation], what: str) -> str:
    causes: dict[str, int] = {}
    for a in failing:
        cause = a.meaning or a.last_error or "no response"
        causes[cause] = causes.get(cause, 0) + 1
    noun = f"{len(failing)} {what}{'es' if what.endswith('s') else 's'}"
    if len(failing) == 1:
        noun = f"{what} {failing[0].address}"
    if len(causes) == 1:
        return f"{noun} {'fails' if len(failing) == 1 else 'fail'} ({next(iter(causes))})"
    parts = "; ".join(f"{count}: {cause}" for cause, count in causes.items())
    return f"{noun} fail ({parts})"
