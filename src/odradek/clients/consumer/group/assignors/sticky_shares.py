"""Balance for the sticky assignors, starting with the partitions that members may keep.

In: members in order, topics with their partition counts, and valid claims. Out: each member's
partitions. If all subscribe to the same topics the result is exact: numbers that differ by at most
one, with the fewest moves. Otherwise partitions move along chains of members, from one that has
more to one that has at least two less, until no such chain is left.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from odradek.clients.consumer.group.assignors.assignor import Assignments, java_order
from odradek.clients.consumer.group.assignors.sticky_racks import Nearness
from odradek.common.types import TopicPartition

CHAIN_STEPS = 3_000_000
"""Maximum number of steps of the search for chains of moves: a second or two at worst.

Java's assignor doesn't search for chains, so its result is never more balanced.
"""

GIVERS_COMPARED = 32
"""Maximum number of equally loaded members among which a partition to move is searched."""


def share_alike(
    members: Sequence[str], topics: Mapping[str, int], kept: Assignments
) -> Assignments:
    """Share the topics among members that all subscribe to all of these topics."""
    if not members:
        return {}
    each, one_more = divmod(sum(topics.values()), len(members))
    given: Assignments = {}
    needy: list[str] = []
    even: list[str] = []
    for member in members:
        mine = sorted(kept[member], key=lambda p: (p.partition, java_order(p.topic)))
        room = each
        if len(mine) > each and one_more:
            room, one_more = each + 1, one_more - 1
        given[member] = mine[:room]
        if len(given[member]) < each:
            needy.append(member)
        elif len(given[member]) == each:
            even.append(member)
    taken = set().union(*given.values())
    free = (
        partition
        for topic in sorted(topics, key=java_order)
        for partition in (TopicPartition(topic, n) for n in range(topics[topic]))
        if partition not in taken
    )
    # Round-robin until each member has `each` partitions; then some members get one more.
    turns: deque[str] = deque(needy)
    extra: Iterator[str] = iter(even)  # also yields members that are appended later
    for partition in free:
        member = turns.popleft() if turns else next(extra)
        given[member].append(partition)
        if len(given[member]) < each:
            turns.append(member)
        elif len(given[member]) == each:
            even.append(member)
    return given


def share_unlike(
    members: Sequence[str],
    subscribed: Mapping[str, frozenset[str]],
    topics: Mapping[str, int],
    kept: Assignments,
    racks: Nearness | None = None,
) -> Assignments:
    """Assign partitions to members with different subscriptions.

    A member loses former partitions without a replica in its rack only if more partitions thereby
    get a member in a replica's rack. Otherwise a cooperative group may never become stable: the
    partitions that are free between two rebalances could be assigned to other members each time,
    and displace the partitions that were just assigned.
    """
    if racks is None:
        return _deal(members, subscribed, topics, kept, {}, None)
    far = {p: m for m, partitions in kept.items() for p in partitions if racks.far(m, p)}
    steady = _deal(members, subscribed, topics, kept, {}, racks)
    if not far:
        return steady
    nearer = _deal(members, subscribed, topics, kept, far, racks)
    return nearer if racks.count(nearer) > racks.count(steady) else steady


def _deal(
    members: Sequence[str],
    subscribed: Mapping[str, frozenset[str]],
    topics: Mapping[str, int],
    kept: Assignments,
    far: Mapping[TopicPartition, str],
    racks: Nearness | None,
) -> Assignments:
    """Balance all partitions, starting from `kept`; those in `far` go to nearer members first."""
    shares = _Shares(members, subscribed, racks)
    for member, partitions in kept.items():
        for partition in partitions:
            if partition not in far:
                shares.add(member, partition, loose=False)
    taken = set().union(*kept.values()).difference(far)
    if racks is not None:
        _share_near(shares, topics, far, taken, racks)
    for topic in sorted(shares.takers, key=lambda t: (len(shares.takers[t]), java_order(t))):
        heap = [(shares.load[m], n, m) for n, m in enumerate(shares.takers[topic])]
        heapq.heapify(heap)
        for number in range(topics[topic]):
            partition = TopicPartition(topic, number)
            if partition not in taken:
                load, n, member = heap[0]
                shares.add(member, partition, loose=True)
                heapq.heapreplace(heap, (load + 1, n, member))
    shares.fill_up()
    shares.balance()
    return {m: [p for there in shares.held[m].values() for p in there] for m in members}


def _share_near(
    shares: _Shares,
    topics: Mapping[str, int],
    far: Mapping[TopicPartition, str],
    taken: set[TopicPartition],
    racks: Nearness,
) -> None:
    """Assign free partitions to members in a replica's rack, or else to their member in `far`."""
    for topic in sorted(shares.takers, key=lambda t: (len(shares.takers[t]), java_order(t))):
        for partition in (TopicPartition(topic, n) for n in range(topics[topic])):
            if partition in taken:
                continue
            near = [m for m in shares.takers[topic] if racks.near(m, partition)]
            member = min(near, key=shares.load.__getitem__, default=far.get(partition))
            if member is not None:
                # A partition that the member had before isn't free to move.
                shares.add(member, partition, loose=far.get(partition) != member)
                taken.add(partition)


class _Shares:
    """An assignment in progress: each member's partitions."""

    def __init__(
        self,
        members: Sequence[str],
        subscribed: Mapping[str, frozenset[str]],
        racks: Nearness | None,
    ) -> None:
        self.members = members
        self._racks = racks
        self.subscribed = subscribed
        self.held: dict[str, dict[str, dict[TopicPartition, bool]]] = {m: {} for m in members}
        """Partitions by member and topic; true if the member didn't have the partition before.

        Such a partition is free to move to another member.
        """
        self.load = dict.fromkeys(members, 0)
        self.takers: dict[str, list[str]] = {}
        for member in members:
            for topic in subscribed[member]:
                self.takers.setdefault(topic, []).append(member)
        self._steps = 0

    def add(self, member: str, partition: TopicPartition, *, loose: bool) -> None:
        """Assign a free partition to a member."""
        self.held[member].setdefault(partition.topic, {})[partition] = loose
        self.load[member] += 1

    def move(self, topic: str, giver: str, taker: str) -> None:
        """Move one partition of the topic between members.

        It is preferably one that the giver didn't have before; with racks, one that has a
        replica in the taker's rack.
        """
        there = self.held[giver][topic]
        racks = self._racks
        near = [p for p in there if racks.near(taker, p)] if racks is not None else ()
        choice = near or there
        partition = next((p for p in choice if there[p]), None)
        if partition is None:
            partition = next(reversed(choice))
        del there[partition]
        if not there:
            del self.held[giver][topic]
        self.load[giver] -= 1
        self.add(taker, partition, loose=True)

    def fill_up(self) -> None:
        """Move partitions from members with the most to those with the least that share a topic.

        This does nearly all of the work, usually with one check of a member for each move.
        """
        levels: dict[int, dict[str, None]] = {}
        for member in self.members:
            levels.setdefault(self.load[member], {})[member] = None
        queue = [(self.load[m], n, m) for n, m in enumerate(self.members)]
        heapq.heapify(queue)
        while queue:
            load, n, taker = queue[0]
            if load != self.load[taker]:  # the entry is outdated
                heapq.heapreplace(queue, (self.load[taker], n, taker))
                continue
            found = self._giver(taker, levels)
            if found is None:
                heapq.heappop(queue)
                continue
            giver, topic = found
            for member, change in ((giver, -1), (taker, 1)):
                before = self.load[member]
                del levels[before][member]
                levels.setdefault(before + change, {})[member] = None
            self.move(topic, giver, taker)
            heapq.heapreplace(queue, (load + 1, n, taker))

    def _giver(
        self, taker: str, levels: Mapping[int, Mapping[str, None]]
    ) -> tuple[str, str] | None:
        """Return a member with at least two partitions more than the taker, and a shared topic."""
        wanted = self.subscribed[taker]
        for load in sorted((n for n in levels if n >= self.load[taker] + 2), reverse=True):
            found: tuple[str, str] | None = None
            left = GIVERS_COMPARED
            for giver in levels[load]:
                held = self.held[giver]
                topics = [t for t in held if t in wanted]
                if not topics:
                    continue
                loose = next((t for t in topics if any(held[t].values())), None)
                if loose is not None:
                    return giver, loose
                found = found or (giver, topics[0])
                left -= 1
                if not left:
                    break
            if found is not None:
                return found
        return None

    def balance(self) -> None:
        """Move partitions along chains of members while that makes their numbers more equal."""
        for member in sorted(self.members, key=lambda m: -self.load[m]):
            least = min(self.load.values())
            while self.load[member] >= least + 2 and self._steps < CHAIN_STEPS:
                chain = self._chain(member)
                if not chain:
                    break
                for topic, giver, taker in chain:
                    self.move(topic, giver, taker)

    def _chain(self, start: str) -> list[tuple[str, str, str]]:
        """Return the shortest chain to a member with at least two partitions less; else empty."""
        reached: dict[str, tuple[str, str]] = {}
        seen: set[str] = set()
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            for topic in self.held[giver]:
                self._steps += 1
                if topic in seen:
                    continue
                seen.add(topic)
                self._steps += len(self.takers[topic])
                for taker in self.takers[topic]:
                    if taker == start or taker in reached:
                        continue
                    reached[taker] = (topic, giver)
                    if self.load[taker] <= self.load[start] - 2:
                        return self._way(reached, start, taker)
                    queue.append(taker)
        return []

    def _way(
        self, reached: Mapping[str, tuple[str, str]], start: str, end: str
    ) -> list[tuple[str, str, str]]:
        way = []
        while end != start:
            topic, giver = reached[end]
            way.append((topic, giver, end))
            end = giver
        return way
