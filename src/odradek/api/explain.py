"""`client.explain()`: why nothing is happening, and when the next attempt is (R-EV-1).

In: an engine and its time. Out: a frozen picture that prints as text and converts to plain data.
Must not: do I/O, wait, or change anything.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from odradek.clients.client_engine import ClientEngine
from odradek.common.types import Address
from odradek.network.cluster_connection_states import AddressState


@dataclass(frozen=True, slots=True)
class AddressExplanation:
    """One broker or bootstrap address."""

    address: str
    role: str
    """`broker N`, `bootstrap`, or both; `former` for one that no longer belongs to the cluster."""
    state: str
    """Kafka's words: disconnected, resolving, connecting, checking_api_versions, ready."""
    silent: bool
    """A question is open and no byte came for the suspicion time (R-RB-2)."""
    in_flight: int
    failures: int
    """Failures in a row since the address last proved itself."""
    last_error: str | None
    last_error_age: float | None
    """Seconds."""
    backoff_left: float
    """Seconds until it may be dialled again."""


@dataclass(frozen=True, slots=True)
class RebootstrapExplanation:
    """One rebootstrap (KIP-899)."""

    why: str
    age: float
    """Seconds since it began."""
    seconds: float | None
    """How long it took; None while it lasts."""
    address: str | None
    """Who answered."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a client knows, what it tries and what its callers wait for. Times are in seconds."""

    client: str
    client_id: str
    ended: str | None
    """Why the client can't go on, if so."""
    cluster_id: str | None
    metadata_age: float | None
    metadata_why: str | None
    """Why the next refresh is due; None while none is."""
    next_attempt_in: float | None
    rounds_failed: int
    """Passes over all candidates that brought nothing, since the last good answer (R-MD-3)."""
    recovery_strategy: str
    addresses: tuple[AddressExplanation, ...]
    rebootstraps: tuple[RebootstrapExplanation, ...]
    rebootstrapping: bool
    waiting: tuple[tuple[str, float], ...]
    """What callers wait for, and how many seconds they still do."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.client} {self.client_id}, cluster {self.cluster_id or 'not known yet'}"]
        if self.ended:
            lines.append(f"  it has ended: {self.ended}")
        age = "none yet" if self.metadata_age is None else f"{self.metadata_age:.1f} s old"
        refresh = f"; refresh due: {self.metadata_why}" if self.metadata_why else ""
        when = "" if self.next_attempt_in is None else f"; next in {self.next_attempt_in:.1f} s"
        failed = f"; {self.rounds_failed} failed rounds" if self.rounds_failed else ""
        lines.append(f"  metadata: {age}{refresh}{when}{failed}")
        lines += [f"  {_line(a)}" for a in self.addresses]
        for r in self.rebootstraps:
            end = "not ended yet" if r.seconds is None else f"took {r.seconds:.1f} s, {r.address}"
            lines.append(f"  rebootstrap {r.age:.1f} s ago: {r.why}; {end}")
        if not self.rebootstraps:
            lines.append(f"  no rebootstrap so far (strategy {self.recovery_strategy})")
        lines += [f"  waits for {what}, {left:.1f} s left" for what, left in self.waiting]
        if not self.waiting:
            lines.append("  no call waits")
        return "\n".join(lines)


def _line(a: AddressExplanation) -> str:
    text = f"{a.address} ({a.role}): {a.state}"
    if a.silent:
        text += ", silent"
    if a.in_flight:
        text += f", {a.in_flight} in flight"
    if a.failures:
        text += f", {a.failures} failures in a row"
    if a.last_error is not None and a.last_error_age is not None:
        text += f", last error {a.last_error_age:.1f} s ago: {a.last_error}"
    if a.backoff_left > 0:
        text += f", next dial in {a.backoff_left:.2f} s"
    return text


def explain(engine: ClientEngine, client: str, now: float) -> Explanation:
    """Take the picture."""
    updater, metadata = engine.updater, engine.metadata
    snapshot = metadata.snapshot
    due = metadata.requested or snapshot is None
    attempt = updater.next_attempt_at
    finite = attempt is not None and attempt < 1e15
    return Explanation(
        client=client,
        client_id=engine.config["client.id"],
        ended=None if engine.ended is None else f"{type(engine.ended).__name__}: {engine.ended}",
        cluster_id=metadata.cluster_id,
        metadata_age=None if snapshot is None else max(0.0, now - snapshot.updated_at),
        metadata_why=metadata.why if due else None,
        next_attempt_in=max(0.0, attempt - now) if finite and attempt is not None else None,
        rounds_failed=updater.rounds_failed,
        recovery_strategy=engine.config["metadata.recovery.strategy"],
        addresses=_addresses(engine, now),
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
        waiting=tuple((w, max(0.0, until - now)) for w, until in list(engine.waiting.items())),
    )


def _addresses(engine: ClientEngine, now: float) -> tuple[AddressExplanation, ...]:
    snapshot = engine.metadata.snapshot
    roles: dict[Address, list[str]] = {}
    for broker in snapshot.brokers.values() if snapshot is not None else ():
        roles.setdefault(broker.address, []).append(f"broker {broker.id}")
    for address in engine.updater.bootstrap:
        roles.setdefault(address, []).append("bootstrap")
    for state in engine.network.states.all():
        roles.setdefault(state.address, ["former"])
    states = {state.address: state for state in engine.network.states.all()}
    return tuple(
        _address(engine, a, ", ".join(role), states.get(a) or AddressState(a), now)
        for a, role in roles.items()
    )


def _address(
    engine: ClientEngine, address: Address, role: str, state: AddressState, now: float
) -> AddressExplanation:
    connection = engine.network.connection(address)
    error = state.last_error
    return AddressExplanation(
        address=str(address),
        role=role,
        state="disconnected" if connection is None else connection.state.value,
        silent=connection is not None and connection.suspect,
        in_flight=0 if connection is None else len(connection.in_flight),
        failures=state.failures,
        last_error=None if error is None else f"{type(error).__name__}: {error}",
        last_error_age=None if error is None else max(0.0, now - state.last_error_at),
        backoff_left=max(0.0, state.backoff_until - now),
    )
