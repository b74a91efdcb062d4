"""Properties of the sticky assignors for random groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.volume import examples

from odradek.clients.consumer.group.assignors import (
    Assignments,
    MemberSubscription,
    find,
    user_data,
)
from odradek.clients.consumer.group.assignors.assignor import PartitionRacks
from odradek.clients.consumer.group.assignors.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from odradek.common.types import TopicPartition

TOPICS = ("a", "b", "c", "d")
Members = dict[str, MemberSubscription]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 8), min_size=1)
subscriptions = st.frozensets(st.sampled_from(TOPICS), min_size=1)
names = st.sampled_from([f"m{n}" for n in range(9)])
unlike = st.dictionaries(names, subscriptions, min_size=1)
alike = st.builds(dict.fromkeys, st.lists(names, min_size=1, unique=True), subscriptions)
groups = st.one_of(alike, unlike)


def joined(
    name: str,
    topics: Mapping[str, frozenset[str]],
    before: Mapping[str, list[TopicPartition]],
    generation: int,
) -> Members:
    """Return the subscriptions of members with the assignment `before`; others are new."""
    (assignor,) = find([name])
    members = {}
    for member, wanted in topics.items():
        last = before.get(member, [])
        known = generation if member in before else -1
        members[member] = MemberSubscription(
            tuple(sorted(wanted)),
            tuple(last) if name == "cooperative-sticky" else (),
            known,
            user_data=user_data(assignor, last, known),
        )
    return members


def run(
    name: str, members: Members, topics: Mapping[str, int], racks: PartitionRacks | None = None
) -> Assignments:
    (assignor,) = find([name])
    if racks is not None:
        assert isinstance(assignor, StickyAssignor | CooperativeStickyAssignor)
        assignor.partition_racks = racks
    return {m: list(p) for m, p in assignor.assign(members, topics).items()}


def check_balanced(
    given: Assignments, topics: Mapping[str, int], wanted: Mapping[str, frozenset[str]]
) -> None:
    """Check that each partition has a subscribed owner, and no chain of moves is more balanced."""
    everything = [p for partitions in given.values() for p in partitions]
    assert len(everything) == len(set(everything))
    somebody = frozenset[str]().union(*wanted.values())
    assert set(everything) == {
        TopicPartition(t, n) for t, count in topics.items() if t in somebody for n in range(count)
    }
    assert all(p.topic in wanted[m] for m, partitions in given.items() for p in partitions)
    for start in given:
        reached, queue = {start}, [start]
        while queue:
            held = {p.topic for p in given[queue.pop()]}
            for taker in given:
                if taker not in reached and held & wanted[taker]:
                    reached.add(taker)
                    queue.append(taker)
        assert min(len(given[m]) for m in reached) >= len(given[start]) - 1


@settings(max_examples=examples(80))
@given(groups, groups, counts, counts)
def test_sticky_balances_and_moves_no_partition_without_need(
    before: dict[str, frozenset[str]],
    after: dict[str, frozenset[str]],
    topics: dict[str, int],
    more: dict[str, int],
) -> None:
    first = run("sticky", joined("sticky", before, {}, -1), topics)
    check_balanced(first, topics, before)
    # If the same group is assigned again, nothing moves.
    again = run("sticky", joined("sticky", before, first, 1), topics)
    assert {m: set(p) for m, p in again.items()} == {m: set(p) for m, p in first.items()}
    # Members join and leave, subscriptions and topics change.
    grown = topics | {t: max(n, topics.get(t, 0)) for t, n in more.items()}
    second = run("sticky", joined("sticky", after, first, 1), grown)
    check_balanced(second, grown, after)
    if len(set(after.values())) == 1:
        each, one_more = divmod(
            sum(n for t, n in grown.items() if t in next(iter(after.values()))), len(after)
        )
        had = {m: [p for p in first.get(m, []) if p.topic in after[m]] for m in after}
        over = sum(len(p) > each for p in had.values())
        could_stay = sum(min(len(p), each) for p in had.values()) + min(over, one_more)
        assert sum(len(set(had[m]) & set(second[m])) for m in after) == could_stay


Say = Callable[[Members], Members]


def settled(
    before: Mapping[str, frozenset[str]],
    after: Mapping[str, frozenset[str]],
    topics: Mapping[str, int],
    racks: PartitionRacks | None = None,
    say: Say = lambda members: members,
) -> Assignments:
    """Return the partitions of cooperative members after a change, once rounds change nothing.

    No round may assign a partition that another member still owns; `say` changes the metadata
    of joining members.
    """
    name, rounds = "cooperative-sticky", 4 if racks is None else 7
    owned = run(name, say(joined(name, before, {}, -1)), topics, racks)
    check_balanced(owned, topics, before)
    for generation in range(2, 2 + rounds):
        given = run(name, say(joined(name, after, owned, generation)), topics, racks)
        holders = {p: m for m, partitions in owned.items() if m in after for p in partitions}
        assert all(holders.get(p, m) == m for m, found in given.items() for p in found)
        stays = {m: set(p) for m, p in given.items()} == {m: set(owned.get(m, ())) for m in after}
        owned = given
        if stays:
            check_balanced(owned, topics, after)
            return owned
    raise AssertionError(f"no end of rounds: {owned}")


@settings(max_examples=examples(80))
@given(groups, groups, counts)
def test_cooperative_rounds_assign_no_partition_that_is_still_owned(
    before: dict[str, frozenset[str]], after: dict[str, frozenset[str]], topics: dict[str, int]
) -> None:
    settled(before, after, topics)


def near(given: Assignments, members: Members, racks: PartitionRacks) -> int:
    """Count the partitions with a replica in their member's rack."""
    return sum(members[m].rack in racks.get(p, ()) for m, found in given.items() for p in found)


@settings(max_examples=examples(80))
@given(groups, groups, counts, st.randoms(use_true_random=False))
def test_cooperative_rounds_with_racks_are_balanced_and_end(
    before: dict[str, frozenset[str]],
    after: dict[str, frozenset[str]],
    topics: dict[str, int],
    rng: random.Random,
) -> None:
    every = [TopicPartition(t, n) for t, count in topics.items() for n in range(count)]
    racks = {p: frozenset(rng.sample("xyz", rng.choice((0, 1, 1, 2)))) for p in every}
    home = {m: rng.choice(("x", "y", "z", None)) for m in sorted({*before, *after})}

    def at_home(members: Members) -> Members:
        return {m: replace(s, rack=home[m]) for m, s in members.items()}

    owned = settled(before, after, topics, racks, at_home)
    if len(set(after.values())) == 1:  # both members gain by an exchange, so they exchange
        far = [(m, p) for m, found in owned.items() for p in found if home[m] not in racks[p]]
        for m, p in far:
            for n, q in far:
                assert home[n] not in racks[p] or home[m] not in racks[q], f"{m} {p}, {n} {q}"


def rounds_until_settled(seed: int, *, one_leader: bool = True) -> int:
    """Count rounds for a random group with racks and different subscriptions after a change.

    Groups are small and have few partitions, so that each move displaces another partition.
    """
    rng = random.Random(seed)
    topics = {t: rng.randint(1, 4) for t in TOPICS[: rng.randint(3, 4)]}
    every = [TopicPartition(t, n) for t, count in topics.items() for n in range(count)]
    racks = {p: frozenset(rng.choice("xy")) for p in every}
    members: Members = {}
    for n in range(rng.randint(3, 6)):
        wanted = tuple(rng.sample(sorted(topics), rng.randint(1, len(topics))))
        members[f"m{n}"] = MemberSubscription(wanted, (), 1, rack=rng.choice(("x", "y", None)))
    owned: dict[str, tuple[TopicPartition, ...]] = dict.fromkeys(members, ())
    for p in every:
        takers = [m for m, s in members.items() if p.topic in s.topics]
        if takers and rng.random() < 0.8:
            owner = rng.choice(takers)
            owned[owner] = (*owned[owner], p)
    assignor = CooperativeStickyAssignor()
    for rounds in range(9):
        if not one_leader:
            assignor = CooperativeStickyAssignor()
        assignor.partition_racks = racks
        members = {m: replace(s, owned=owned[m]) for m, s in members.items()}
        given = assignor.assign(members, topics)
        if all(set(given[m]) == set(owned[m]) for m in members):
            check_balanced(
                {m: list(p) for m, p in given.items()},
                topics,
                {m: frozenset(s.topics) for m, s in members.items()},
            )
            return rounds
        owned = {m: tuple(p) for m, p in given.items()}
    raise AssertionError(f"group {seed}: no end of rounds")


def test_groups_with_different_subscriptions_and_racks_settle() -> None:
    # Few groups are affected; the single numbers are seeds that once exchanged partitions forever,
    # the last two of them only with another leader in each round.
    often = [*range(310), 554, 1094, 1442, 1745, 2148, 2214, 2261]
    assert max(rounds_until_settled(seed, one_leader=False) for seed in often) <= 5
    assert max(rounds_until_settled(seed) for seed in [*often, 6143, 10407]) == 2


def test_partitions_move_to_their_racks_while_that_keeps_the_balance() -> None:
    racks = {TopicPartition("a", n): frozenset("xy"[n % 2]) for n in range(6)}
    members = {
        m: MemberSubscription(("a",), rack=r) for m, r in (("m1", "y"), ("m2", "x"), ("m3", None))
    }
    for name in ("sticky", "cooperative-sticky"):
        given = run(name, members, {"a": 6}, racks)
        assert sorted(map(len, given.values())) == [2, 2, 2]
        assert near(given, members, racks) == 4
        unlike = {**members, "m4": MemberSubscription(("a", "b"), rack="x")}
        given = run(name, unlike, {"a": 6, "b": 1}, racks)
        check_balanced(given, {"a": 6, "b": 1}, {m: frozenset(s.topics) for m, s in unlike.items()})
        assert near(given, unlike, racks) >= 3


@settings(max_examples=examples(60))
@given(groups, counts)
def test_the_newer_of_two_claims_for_a_partition_is_used(
    wanted: dict[str, frozenset[str]], topics: dict[str, int]
) -> None:
    given = run("sticky", joined("sticky", wanted, {}, -1), topics)
    members = joined("sticky", wanted, given, 5)
    (assignor,) = find(["sticky"])
    stale = min(members)  # this member missed a rebalance and claims all partitions
    everything = {TopicPartition(t, n) for t, count in topics.items() for n in range(count)}
    others = {p for m, partitions in given.items() if m != stale for p in partitions}
    results = []
    for claim in (everything, everything - others):
        said = user_data(assignor, sorted(claim), 4)
        members[stale] = replace(members[stale], topics=tuple(sorted(topics)), user_data=said)
        results.append({m: set(p) for m, p in run("sticky", members, topics).items()})
    assert results[0] == results[1]


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_no_partition_is_taken_from_a_claimant_of_the_same_generation(
    data: st.DataObject,
) -> None:
    """Let a member that missed rebalances claim partitions that other members own now."""
    topics = data.draw(counts)
    partitions = st.builds(TopicPartition, st.sampled_from(sorted(topics)), st.integers(0, 2))
    members = {
        member: MemberSubscription(
            tuple(sorted(topics)),
            tuple(data.draw(st.lists(partitions, unique=True, max_size=6))),
            data.draw(st.integers(-1, 3)),
        )
        for member in data.draw(st.lists(names, min_size=2, max_size=4, unique=True))
    }
    assigned = run("cooperative-sticky", members, topics)
    for member, given_ in assigned.items():
        own = members[member]
        for partition in given_:
            for other, said in members.items():
                if other != member and partition in said.owned:
                    assert partition in own.owned
                    assert own.generation > said.generation


def test_a_partition_claimed_twice_in_the_same_generation_is_revoked() -> None:
    partitions = [TopicPartition("a", n) for n in range(2)]
    claims = {
        "m2": MemberSubscription(("a",), tuple(partitions), 3),
        "m1": MemberSubscription(("a",), tuple(partitions), 3),
        "m0": MemberSubscription(("a",), (), 3),
    }
    # Either claim may be right, so both members revoke the partitions before the next round.
    assert run("cooperative-sticky", claims, {"a": 2}) == {"m0": [], "m1": [], "m2": []}


def test_members_with_empty_user_data_start_without_partitions() -> None:
    said = (None, b"", b"\x00", b"\x00\x00\x00\x01\x00\x05a", b"\x00\x00\x00\x02", b"\xff" * 9)
    members = {f"m{n}": MemberSubscription(("a",), user_data=data) for n, data in enumerate(said)}
    given = run("sticky", members, {"a": len(said)})
    assert given == {f"m{n}": [TopicPartition("a", n)] for n in range(len(said))}


def test_user_data_of_the_oldest_version_has_no_generation() -> None:
    (assignor,) = find(["sticky"])
    last = [TopicPartition("a", 1), TopicPartition("b", 0)]
    written = user_data(assignor, last, 8)
    assert written is not None
    members = {
        "m1": MemberSubscription(("a", "b")),
        "m2": MemberSubscription(("a", "b"), user_data=written[:-4]),
    }
    assert set(run("sticky", members, {"a": 2, "b": 2})["m2"]) == set(last)
