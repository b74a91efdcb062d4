"""Assign partitions to members of the consumer protocol, as coordinators do.

In: subscriptions of each member (topic ids and their numbers of partitions), and the previous
target. Out: the new target. Both functions assign every partition of a subscribed topic to one
member that subscribes to it. Must not know the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Place = tuple[bytes, int]
"""A topic's id and a partition."""
Subscriptions = Mapping[str, Mapping[bytes, int]]
Target = dict[str, frozenset[Place]]


def _empty(subscriptions: Subscriptions) -> dict[str, set[Place]]:
    return {member: set() for member in subscriptions}


def _frozen(shares: Mapping[str, set[Place]]) -> Target:
    return {member: frozenset(places) for member, places in shares.items()}


def uniform(subscriptions: Subscriptions, before: Mapping[str, frozenset[Place]]) -> Target:
    """Assign partitions as evenly as possible, with as few changes as possible."""
    shares = _empty(subscriptions)
    places = {
        (topic, index): None
        for topics in subscriptions.values()
        for topic, count in topics.items()
        for index in range(count)
    }
    if not shares or not places:
        return _frozen(shares)
    quota, extra = divmod(len(places), len(shares))
    for member, share in shares.items():
        mine = [
            place
            for place in sorted(before.get(member, ()))
            if place in places and place[0] in subscriptions[member]
        ]
        room = quota + (1 if extra and len(mine) > quota else 0)
        extra -= room > quota
        for place in mine[:room]:
            share.add(place)
            del places[place]
    for place in sorted(places):
        candidates = [m for m in shares if place[0] in subscriptions[m]]
        shares[min(candidates, key=lambda m: len(shares[m]))].add(place)
    return _frozen(shares)


def by_range(subscriptions: Subscriptions, before: Mapping[str, frozenset[Place]]) -> Target:
    """Assign each member consecutive partitions of each topic that it subscribes to."""
    shares = _empty(subscriptions)
    counts = {t: c for topics in subscriptions.values() for t, c in topics.items()}
    for topic, count in counts.items():
        members = sorted(m for m in shares if topic in subscriptions[m])
        quota, extra = divmod(count, len(members))
        start = 0
        for at, member in enumerate(members):
            end = start + quota + (at < extra)
            shares[member].update((topic, index) for index in range(start, end))
            start = end
    return _frozen(shares)


ASSIGNORS: dict[str, Callable[[Subscriptions, Mapping[str, frozenset[Place]]], Target]] = {
    "uniform": uniform,
    "range": by_range,
}
DEFAULT_ASSIGNOR = "uniform"
