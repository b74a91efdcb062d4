"""Compare the assignors with Java's on random groups, and write some of them as test vectors.

In: a number of groups, a seed; Kafka's jars and a JDK (which compiles and runs
`AssignorVectors.java`). The groups have racks, different subscriptions, earlier ownership, and
claims of several generations that contradict each other. Out: a line for each group in which an
assignor of Odradek differs although only one assignment is right, or is worse than Java's if
several are (`worse`); with `--write` the first groups with Java's assignments, as JSON. Must not:
write an assignment that Odradek's code computed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from odradek.clients.consumer.group.assignors import (
    BUILT_IN,
    Assignor,
    MemberSubscription,
    find,
)
from odradek.clients.consumer.group.embedded_protocol import (
    decode_assignment,
    decode_subscription,
)
from odradek.common.types import TopicPartition
from odradek.testing.jars import DEFAULT_VERSION, fetch
from odradek.testing.java import java_home

HERE = Path(__file__).resolve().parent
RACKS = ("a", "b", "c")
WRITTEN = {"range": 25, "roundrobin": 8, "sticky": 25, "cooperative-sticky": 25}
"""Number of test vectors per assignor; assignors that use racks need more."""
NO_CLAIM = -2
"""Generation of a member that doesn't claim a partition; lower than any member's generation."""
ROUNDS = 6
"""Maximum number of rebalances until a cooperative group is stable."""
STICKY = ("sticky", "cooperative-sticky")
Group = dict[str, Any]
Given = dict[str, list[TopicPartition]]


def random_group(rng: random.Random, assignor: str) -> Group:
    """Return a random group: topics with each partition's racks, and each member's subscription."""
    topics: dict[str, list[list[str]]] = {}
    racks = rng.random() < 0.5
    copartitioned = rng.randint(1, 9)
    for topic in rng.sample(["t1", "t10", "t2", "orders", "b-c", "z"], rng.randint(1, 4)):
        count = copartitioned if rng.random() < 0.6 else rng.randint(0, 9)
        topics[topic] = [
            sorted(rng.sample(RACKS, rng.randint(1, 2))) if racks else [] for _ in range(count)
        ]
    names = [*topics, "missing"]
    alike = rng.sample(names, rng.randint(1, len(names)))
    same = rng.random() < 0.6
    generation = rng.choice((-1, 4))
    conflicting = assignor in STICKY and rng.random() < 0.4
    members = {}
    every = [f"{t}-{n}" for t, p in topics.items() for n in range(len(p))]
    free = rng.sample(every, len(every))
    for number in range(rng.randint(1, 6)):
        subscribed = alike if same else rng.sample(names, rng.randint(1, len(names)))
        owned: list[str] = []
        if conflicting:
            generation = rng.choice((-1, 2, 3, 3, 4, 4))
        if generation >= 0 and conflicting:
            owned = sorted(rng.sample(every, min(len(every), rng.randint(0, 5))))
        elif generation >= 0 and assignor in STICKY:
            owned = sorted(free.pop() for _ in range(min(len(free), rng.randint(0, 6))))
        owned = [p for p in owned if p.rpartition("-")[0] in subscribed]
        members[f"m{rng.randrange(100)}-{number}"] = {
            "topics": sorted(subscribed),
            "generation": generation,
            "rack": rng.choice(RACKS) if racks and rng.random() < 0.8 else None,
            "instance": f"i{rng.randrange(100)}-{number}" if rng.random() < 0.2 else None,
            "owned": owned if assignor == "cooperative-sticky" else [],
            "last": owned,
        }
    return {"assignor": assignor, "topics": topics, "members": members}


def ask_java(groups: Iterable[Group]) -> list[Group]:
    """Add each member's subscription as Java encodes it, and Java's assignment (both in hex)."""
    groups = list(groups)
    lines = []
    for group in groups:
        lines.append(f"case {group['assignor']}")
        for topic, partitions in group["topics"].items():
            for number, racks in enumerate(partitions):
                lines.append(f"partition {topic} {number} {','.join(racks) or '-'}")
        for member, said in group["members"].items():
            words = [member, ",".join(said["topics"]), str(said["generation"])]
            words += [said["rack"] or "-", said["instance"] or "-"]
            words += [",".join(said["owned"]) or "-", ",".join(said["last"]) or "-"]
            lines.append("member " + " ".join(words))
        lines.append("end")
    done = subprocess.run(
        [
            java_home() / "bin" / "java",
            "-cp",
            f"{fetch(DEFAULT_VERSION)}/*",
            "-Dlog4j2.level=OFF",
            HERE / "AssignorVectors.java",
        ],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    answered = iter(groups)
    group = next(answered)
    for line in done.stdout.splitlines():
        what, *rest = line.split()
        if what == "end":
            group = next(answered, {})
        else:
            group["members"][rest[0]][what] = rest[1]
    return groups


def of_odradek(group: Group) -> Assignor:
    """Return Odradek's assignor for a group, with the racks of the group's partitions set."""
    (assignor,) = find([group["assignor"]])
    if hasattr(assignor, "partition_racks"):
        assignor.partition_racks = {
            TopicPartition(topic, number): frozenset(racks)
            for topic, partitions in group["topics"].items()
            for number, racks in enumerate(partitions)
            if racks
        }
    return assignor


def ours(group: Group, assignor: Assignor | None = None) -> Given:
    """Return the assignment of Odradek's assignor for the subscriptions that Java encoded."""
    assignor = assignor or of_odradek(group)
    members = {
        member: decode_subscription(bytes.fromhex(said["said"]), said["instance"])
        for member, said in group["members"].items()
    }
    counts = {topic: len(partitions) for topic, partitions in group["topics"].items() if partitions}
    return {m: sorted(p) for m, p in assignor.assign(members, counts).items()}


def stable_odradek_assignment(group: Group) -> Given:
    """Return what members own once a cooperative group has no more partitions to revoke."""
    assignor = of_odradek(group)
    given = ours(group, assignor)
    for _ in range(ROUNDS if group["assignor"] == "cooperative-sticky" else 0):
        members = {
            member: MemberSubscription(
                tuple(said["topics"]), tuple(given[member]), 9, said["rack"], said["instance"]
            )
            for member, said in group["members"].items()
        }
        counts = {t: len(partitions) for t, partitions in group["topics"].items() if partitions}
        before, given = given, {m: sorted(p) for m, p in assignor.assign(members, counts).items()}
        if given == before:
            break
    return given


def java_assignment(group: Group) -> Given:
    """Return the assignment of Java's assignor."""
    return {
        member: sorted(decode_assignment(bytes.fromhex(said["given"])).partitions)
        for member, said in group["members"].items()
    }


def names(given: Mapping[str, Sequence[TopicPartition]]) -> dict[str, list[str]]:
    """Return an assignment as in the JSON file: names of partitions (`topic-number`) by member."""
    return {m: [f"{p.topic}-{p.partition}" for p in found] for m, found in given.items()}


def partitions(found: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions with these names (`topic-number`)."""
    return [TopicPartition(t, int(n)) for t, _, n in (name.rpartition("-") for name in found)]


def add_stable_java_assignments(groups: Sequence[Group]) -> None:
    """Add to each group of a sticky assignor what Java's members own once the group is stable."""
    for group in groups:
        if group["assignor"] in STICKY:
            group["settled"] = names(java_assignment(group))
    moving = [g for g in groups if g["assignor"] == "cooperative-sticky"]
    for generation in range(9, 9 + ROUNDS):
        again = []
        for group in moving:
            members = {}
            for member, said in group["members"].items():
                owned = group["settled"][member]
                members[member] = said | {"generation": generation, "owned": owned, "last": owned}
            again.append(group | {"members": members})
        if not again:
            break
        ask_java(again)
        given = [names(java_assignment(group)) for group in again]
        pairs = list(zip(moving, given, strict=True))
        moving = [group for group, found in pairs if found != group["settled"]]
        for group, found in pairs:
            group["settled"] = found


@dataclass(frozen=True, slots=True)
class Quality:
    """Aims of a sticky assignment, in order of priority."""

    imbalance: int
    """Sum of the differences between the numbers of partitions of all pairs of members."""
    near: int
    """Number of partitions with a replica in their member's rack."""
    kept: int
    """Number of partitions that remain with their previous owner."""

    def worse_than(self, other: Quality) -> bool:
        """Return whether `other` is more balanced, or equally balanced with fewer moves.

        Racks (`near`) are compared over many groups (`totals`) instead: both assignors accept fewer
        local replicas for fewer moves.
        """
        mine = self.imbalance, -self.kept
        return mine > (other.imbalance, -other.kept)


def claims(group: Group) -> dict[TopicPartition, dict[str, int]]:
    """Return each partition's claims: the members that say they own it, with their generations."""
    found: dict[TopicPartition, dict[str, int]] = {}
    for member, said in group["members"].items():
        for partition in partitions(said["last"]):
            found.setdefault(partition, {})[member] = said["generation"]
    return found


def quality(group: Group, given: Mapping[str, Sequence[TopicPartition]]) -> Quality:
    """Compute the quality of an assignment by a sticky assignor."""
    owner = {p: member for member, found in given.items() for p in found}
    kept = near = 0
    for partition, claimed in claims(group).items():
        newest = max(claimed.values())
        rightful = [m for m, generation in claimed.items() if generation == newest]
        kept += rightful == [owner.get(partition)]
    for partition, member in owner.items():
        racks = group["topics"][partition.topic][partition.partition]
        near += group["members"][member]["rack"] in racks
    sizes = [len(found) for found in given.values()]
    return Quality(sum(abs(a - b) for a, b in combinations(sizes, 2)), near, kept)


def unsafe(group: Group, given: Mapping[str, Sequence[TopicPartition]]) -> list[str]:
    """Return partitions with several members in one generation, or with no member for no reason.

    A cooperative member keeps the partitions that it claims until it rejoins. So a partition may
    only be assigned to a member whose claim is newer than all other members' claims of the
    partition, and may only be withheld if such a claim exists.
    """
    found = []
    claimed = claims(group) if group["assignor"] == "cooperative-sticky" else {}
    holders = Counter(p for assigned in given.values() for p in assigned)
    found += [f"{p} has {n} members" for p, n in holders.items() if n > 1]
    for member, assigned in given.items():
        for partition in assigned:
            own = claimed.get(partition, {}).get(member, NO_CLAIM)
            others = {m: g for m, g in claimed.get(partition, {}).items() if m != member}
            if any(generation >= own for generation in others.values()):
                found.append(f"{member} ({own}) is assigned {partition}, claimed by {others}")
    wanted = {t for said in group["members"].values() for t in said["topics"]}
    for topic in wanted & {*group["topics"]}:
        for number in range(len(group["topics"][topic])):
            partition = TopicPartition(topic, number)
            if partition not in holders and partition not in claimed:
                found.append(f"{partition} has no member")
    return found


def stable_java_assignment(group: Group) -> Given:
    """Return what Java's members own once the group is stable."""
    return {member: partitions(owned) for member, owned in group["settled"].items()}


def totals(groups: Iterable[Group]) -> tuple[Quality, Quality]:
    """Return the summed quality over the groups of sticky assignors, of Odradek and of Java."""
    sums = [Quality(0, 0, 0), Quality(0, 0, 0)]
    for group in groups:
        if group["assignor"] in STICKY:
            for n, given in enumerate(
                (stable_odradek_assignment(group), stable_java_assignment(group))
            ):
                found = quality(group, given)
                sums[n] = Quality(
                    sums[n].imbalance + found.imbalance,
                    sums[n].near + found.near,
                    sums[n].kept + found.kept,
                )
    return sums[0], sums[1]


def worse(group: Group) -> list[str]:
    """Return the cases in which Odradek's assignor is wrong, unsafe or worse than Java's."""
    given = ours(group)
    if group["determined"] and given != java_assignment(group):
        return [f"{given} instead of {java_assignment(group)}"]
    found = unsafe(group, given)
    if group["assignor"] in STICKY:
        settled = stable_odradek_assignment(group)
        java = stable_java_assignment(group)
        mine, other = quality(group, settled), quality(group, java)
        fewest = fewest_moves(group) and mine.near <= other.near
        if mine.worse_than(other) if fewest else mine.imbalance > other.imbalance:
            found.append(f"{mine} is worse than {other}: {names(settled)}, not {names(java)}")
    return found


def fewest_moves(group: Group) -> bool:
    """Return whether more moves than with Java's assignor are an error for this group.

    With racks and members that subscribe to different topics, neither assignor finds the fewest
    moves of each group: they are compared over many groups (`totals`).
    """
    members = group["members"].values()
    there = [{t for t in m["topics"] if group["topics"].get(t)} for m in members]
    return there.count(there[0]) == len(there) or not any(m["rack"] for m in members)


def determined(group: Group) -> bool:
    """Return whether only Java's assignment is right; sticky assignors often have a choice."""
    if group["assignor"] in ("range", "roundrobin"):
        return True
    members = group["members"].values()
    # With racks, Java's choice of algorithm also depends on subscribed topics that don't exist.
    racks = any(m["rack"] for m in members)
    there = [[t for t in m["topics"] if racks or group["topics"].get(t)] for m in members]
    return all(t == there[0] and not m["last"] for t, m in zip(there, members, strict=True))


def main() -> int:
    """Compare the assignors, and with --write write the test vectors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--groups", type=int, default=500, help="groups for each assignor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the first ones as JSON")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    groups = ask_java(random_group(rng, name) for name in BUILT_IN for _ in range(given.groups))
    for group in groups:
        group["determined"] = determined(group)
    add_stable_java_assignments(groups)
    different: dict[str, int] = dict.fromkeys(BUILT_IN, 0)
    wrong: dict[str, int] = dict.fromkeys(BUILT_IN, 0)
    for group in groups:
        name = group["assignor"]
        different[name] += ours(group) != java_assignment(group)
        if found := worse(group):
            wrong[name] += 1
            print(json.dumps(group), *found, sep="\n")
    for name, count in different.items():
        print(
            f"{name}: {count} of {given.groups} groups differ from Java's, "
            f"{wrong[name]} of them are wrong, unsafe or worse"
        )
    print("{} of Odradek, {} of Java".format(*totals(groups)))
    if given.write is not None:
        chosen = [
            group
            for name, most in WRITTEN.items()
            for group in [g for g in groups if g["assignor"] == name][:most]
        ]
        given.write.write_text("[\n" + ",\n".join(json.dumps(g) for g in chosen) + "\n]\n")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
