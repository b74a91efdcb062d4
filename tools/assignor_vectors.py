"""Compares the assignors with Kafka's own on random groups, and writes some as test vectors.

In: a number of groups, a seed; Kafka's jars and a JDK (`AssignorVectors.java` is compiled as it is
run). Out: a line for each difference, and with `--write` the first groups with Java's answers, as
JSON. Must not: ask our own code for an answer that it writes.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from odradek.clients.consumer.group.assignors import BUILT_IN, find
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
"""How many groups of each become vectors: racks make for many ways to go."""
Group = dict[str, Any]


def random_group(rng: random.Random, assignor: str) -> Group:
    """One group: topics with the racks of each partition, and what each member says."""
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
    members = {}
    free = [f"{t}-{n}" for t, p in topics.items() for n in range(len(p))]
    rng.shuffle(free)
    for number in range(rng.randint(1, 6)):
        subscribed = alike if same else rng.sample(names, rng.randint(1, len(names)))
        owned = []
        if generation >= 0 and assignor in ("sticky", "cooperative-sticky"):
            owned = sorted(free.pop() for _ in range(min(len(free), rng.randint(0, 6))))
            owned = [p for p in owned if p.rsplit("-", 1)[0] in subscribed]
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
    """Add what Java writes for each member, and what its assignor gives (both as hex)."""
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


def ours(group: Group) -> dict[str, list[TopicPartition]]:
    """Return the assignment that our assignor makes for the members that Java wrote."""
    (assignor,) = find([group["assignor"]])
    if hasattr(assignor, "partition_racks"):
        assignor.partition_racks = {
            TopicPartition(topic, number): frozenset(racks)
            for topic, partitions in group["topics"].items()
            for number, racks in enumerate(partitions)
            if racks
        }
    members = {
        member: decode_subscription(bytes.fromhex(said["said"]), said["instance"])
        for member, said in group["members"].items()
    }
    counts = {topic: len(partitions) for topic, partitions in group["topics"].items() if partitions}
    return {m: sorted(p) for m, p in assignor.assign(members, counts).items()}


def theirs(group: Group) -> dict[str, list[TopicPartition]]:
    """What Java's assignor gave."""
    return {
        member: sorted(decode_assignment(bytes.fromhex(said["given"])).partitions)
        for member, said in group["members"].items()
    }


def determined(group: Group) -> bool:
    """Whether there is one right answer: not where sticky assignors may keep this or that."""
    if group["assignor"] in ("range", "roundrobin"):
        return True
    members = group["members"].values()
    # With racks Java takes another way where members differ in a topic that isn't there.
    racks = any(m["rack"] for m in members)
    there = [[t for t in m["topics"] if racks or group["topics"].get(t)] for m in members]
    return all(t == there[0] and not m["last"] for t, m in zip(there, members, strict=True))


def main() -> int:
    """Compare, and write vectors when asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--groups", type=int, default=500, help="groups for each assignor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the first ones as JSON")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    groups = ask_java(random_group(rng, name) for name in BUILT_IN for _ in range(given.groups))
    different: dict[str, int] = dict.fromkeys(BUILT_IN, 0)
    wrong = 0
    for group in groups:
        group["determined"] = determined(group)
        if ours(group) != theirs(group):
            name = group["assignor"]
            different[name] += 1
            if determined(group):
                wrong += 1
                print(json.dumps(group), ours(group), theirs(group), sep="\n")
    for name, count in different.items():
        print(f"{name}: {count} of {given.groups} groups differ from Java's")
    if given.write is not None:
        chosen = [
            group
            for name, most in WRITTEN.items()
            for group in [g for g in groups if g["assignor"] == name][:most]
        ]
        given.write.write_text("[\n" + ",\n".join(json.dumps(g) for g in chosen) + "\n]\n")
    print(f"{wrong} of them should not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
