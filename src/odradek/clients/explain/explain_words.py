"""A client's addresses in a line each, and its state in a sentence.

In: the parts of a picture that `explain` takes. Out: words for people who wonder why nothing
happens. Must not: look at an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.network.dial_policy import Why, next_dial

if TYPE_CHECKING:
    from odradek.clients.explain.explanation import AddressExplanation, OutageExplanation

QUIET = 1.0
"""Seconds of quiet that brokers want, from which on somebody may wonder why nothing happens."""
SOON = 0.05
"""Seconds that would be shown as 0.0."""


def line(a: AddressExplanation) -> str:
    """An address in one line."""
    text = f"{a.address} ({a.role}): {a.state}"
    if a.silent:
        text += ", silent"
    if a.pending_for is not None:
        text += f" for {a.pending_for:.1f} s"
        if a.setup_left is not None:
            text += f", given up in {a.setup_left:.1f} s"
    if a.in_flight:
        text += f", {a.in_flight} in flight"
    if a.throttled_for:
        text += f", throttled for {a.throttled_for:.1f} s"
    if a.failures:
        text += f", {a.failures} {'failure' if a.failures == 1 else 'failures'} in a row"
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
    return "being made" if seconds < SOON else f"in {seconds:.1f} s"


def diagnosis(
    ended: str | None,
    cluster_id: str | None,
    outage: OutageExplanation | None,
    addresses: Sequence[AddressExplanation],
    next_attempt: float | None,
) -> str:
    """A client's state in a sentence or two."""
    if ended is not None:
        return f"It has ended: {ended}"
    brokers = [a for a in addresses if "broker" in a.role]
    starts = [a for a in addresses if "bootstrap" in a.role]
    ready = sum(a.ready and not a.silent for a in brokers)
    soon = "" if next_attempt is None else f" The next attempt is {_in(next_attempt)}."
    if not brokers:
        failing = [a for a in starts if a.failures or a.silent]
        if not failing:
            waits = [a for a in starts if a.next_dial_after == Why.FIRST]
            if waits and waits[0].next_dial_in is not None:
                return (
                    "The cluster wasn't reached yet: the first dial waits for "
                    f"{waits[0].next_dial_in:.1f} s more (reconnect.first.jitter.ms)."
                )
            return "The cluster wasn't reached yet: " + (
                "a first connection is being made."
                if any(a.pending_for is not None or a.ready for a in starts)
                else "nothing was asked of this client."
            )
        return f"The cluster can't be reached: {_causes(failing, 'bootstrap address')}.{soon}"
    failing = [a for a in brokers if a.failures or a.silent]
    answered = any(a.proved and not a.failures and not a.silent for a in starts)
    if answered and len(failing) == len(brokers) and not any(a.proved for a in brokers):
        named = ", ".join(a.address for a in brokers[:3])
        return (
            f"A bootstrap address answers, but none of the brokers that it names ({named}) can be "
            f"reached: are their advertised.listeners right for this machine? "
            f"Of them, {_causes(failing, 'broker')}.{soon}"
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
        return f"It works: {known}; when it was last tried, {_causes(failing, 'broker')}."
    if failing:
        all_fail = len(failing) == len(brokers)
        how = "Every known broker fails" if all_fail else "It works, with trouble"
        return f"{how}: {known}; {_causes(failing, 'broker')}.{soon if all_fail else ''}"
    return f"It works: {known}; brokers are dialled when they are needed."


def throttled(addresses: Sequence[AddressExplanation]) -> str | None:
    """Who has this client wait because of a quota (KIP-219), if somebody does for long."""
    quiet = [a for a in addresses if a.throttled_for >= QUIET]
    if not quiet:
        return None
    longest = max(quiet, key=lambda a: a.throttled_for)
    more = f", and {len(quiet) - 1} more do" if len(quiet) > 1 else ""
    return (
        f"{longest.address} wants this client to keep quiet for {longest.throttled_for:.1f} s more "
        f"because of a quota{more}"
    )


def _causes(failing: Sequence[AddressExplanation], what: str) -> str:
    causes: dict[str, int] = {}
    for a in failing:
        cause = a.meaning or a.last_error or "silent"
        causes[cause] = causes.get(cause, 0) + 1
    noun = f"{len(failing)} {what}{'es' if what.endswith('s') else 's'}"
    if len(failing) == 1:
        noun = f"{what} {failing[0].address}"
    if len(causes) == 1:
        return f"{noun} {'fails' if len(failing) == 1 else 'fail'} ({next(iter(causes))})"
    parts = "; ".join(f"{count}: {cause}" for cause, count in causes.items())
    return f"{noun} fail ({parts})"
