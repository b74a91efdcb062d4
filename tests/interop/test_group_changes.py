"""Add topics and partitions to a running group with Java's consumer, on real brokers.

Each partition must get exactly one owner, long before `metadata.max.age.ms` (5 minutes): if static
members return with other subscriptions (KIP-345), if partitions are added while the static leader
is away (KIP-814), and if topics that only one member subscribes to are created later.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.interop.group_members import Jvm
from tests.interop.test_mixed_groups import JAVA_NAMES

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

SOON = 40.0
"""Timeout in seconds; sessions are 30 s, so a member whose session expires is still in time."""
STRATEGIES = pytest.mark.parametrize(
    "strategy", ["range", "cooperative-sticky", pytest.param("sticky", marks=pytest.mark.long)]
)
OFTEN = {("cooperative-sticky", "ours"), ("range", "java")}
LED = pytest.mark.parametrize(
    ("strategy", "leader"),
    [
        way if way in OFTEN else pytest.param(*way, marks=pytest.mark.long)
        for way in itertools.product(("range", "cooperative-sticky", "sticky"), ("ours", "java"))
    ],
)
"""Each assignor and each leader once.

If partitions are added, Odradek's members lead with each assignor.
"""


@pytest.fixture(scope="module", params=["4.4", pytest.param("3.9", marks=pytest.mark.long)])
def brokers(
    request: pytest.FixtureRequest, clusters: SharedClusters, cluster: LocalCluster
) -> LocalCluster:
    if request.param == "4.4":
        return cluster
    return clusters.shared({"brokers": 1, "version": request.param})


class Group:
    """Members of one group: Odradek's, which the test polls, and Java's in their own process."""

    def __init__(self, brokers: LocalCluster, jvm: Jvm, topic: str, strategy: str) -> None:
        self.brokers, self.jvm, self.strategy = brokers, jvm, strategy
        self.name = f"group-of-{topic}"
        self.members: dict[str, Consumer | set[str]] = {}
        """Our consumers, and the partitions of Java's members."""
        self.errors: list[str] = []

    def config(self, name: str, *, static: bool, java: bool = False) -> dict[str, Any]:
        names = f"org.apache.kafka.clients.consumer.{JAVA_NAMES[self.strategy]}"
        return {
            "bootstrap.servers": self.brokers.bootstrap_servers,
            "group.id": self.name,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": names if java else self.strategy,
            **({"group.instance.id": name} if static else {}),
        }

    def ours(self, name: str, *topics: str, static: bool = False, pattern: str = "") -> None:
        consumer = Consumer(self.config(name, static=static))
        self.members[name] = consumer
        if pattern:
            consumer.subscribe(pattern=pattern)
        else:
            consumer.subscribe(topics)

    def java(self, name: str, *topics: str) -> None:
        owned = self.members[name] = set[str]()

        def heard(what: str, words: list[str]) -> None:
            if what == "assigned":
                owned.update(words)
            elif what in ("revoked", "lost"):
                owned.difference_update(words)
            elif what == "error":
                self.errors.append(" ".join(words))

        key = f"{self.name}-{name}"
        self.jvm.listeners[key] = heard
        config = self.config(name, static=False, java=True)
        self.jvm.say("start", key, ",".join(topics), *(f"{k}={v}" for k, v in config.items()))

    def start(self, client: str, name: str, *topics: str) -> None:
        (self.ours if client == "ours" else self.java)(name, *topics)

    def close(self, name: str) -> None:
        member = self.members.pop(name)
        if isinstance(member, Consumer):
            member.close()
        else:
            self.jvm.say("stop", f"{self.name}-{name}")

    def owners(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, member in self.members.items():
            owned = (
                {str(p) for p in member.assignment()} if isinstance(member, Consumer) else member
            )
            for partition in list(owned):
                found.setdefault(partition, []).append(name)
        return found

    def wait_until_owned(self, counts: Mapping[str, int], members: int = 0) -> None:
        """Poll until each partition of these topics has one owner, and `members` own partitions."""
        wanted = sorted(f"{topic}-{n}" for topic, count in counts.items() for n in range(count))
        begun = time.monotonic()
        while True:
            for member in self.members.values():
                if isinstance(member, Consumer):
                    member.poll(0.05)
            owners = self.owners()
            each_once = sorted(owners) == wanted and all(len(n) == 1 for n in owners.values())
            if each_once and len({name for names in owners.values() for name in names}) >= members:
                return
            assert not self.errors
            assert time.monotonic() < begun + SOON, owners
            if not any(isinstance(m, Consumer) for m in self.members.values()):
                time.sleep(0.05)


@pytest.fixture
def group(
    brokers: LocalCluster, jvm: Jvm, topic: str, request: pytest.FixtureRequest
) -> Iterator[Group]:
    made = Group(brokers, jvm, topic, request.getfixturevalue("strategy"))
    yield made
    for name in list(made.members):
        made.close(name)


@LED
@pytest.mark.parametrize("change", ["more", "fewer", "other", "pattern"])
def test_a_static_member_may_return_with_another_subscription(
    group: Group, topic: str, strategy: str, leader: str, change: str
) -> None:
    t, u = f"{topic}-t", f"{topic}-u"
    group.brokers.create_topic(t, partitions=4)
    if change != "pattern":
        group.brokers.create_topic(u, partitions=2)
    first, both = {t: 4}, {t: 4, u: 2}
    group.start(leader, "leader", t)
    group.wait_until_owned(first)
    if change == "pattern":
        group.ours("a", static=True, pattern=f"{topic}-.")
    else:
        group.ours("a", *((t, u) if change == "fewer" else (t,)), static=True)
    group.wait_until_owned(both if change == "fewer" else first, members=2)
    group.close("a")
    if change == "pattern":
        group.brokers.create_topic(u, partitions=2)
        group.ours("a", static=True, pattern=f"{topic}-.")
    else:
        after = {"more": (t, u), "fewer": (t,), "other": (u,)}[change]
        group.ours("a", *after, static=True)
    group.wait_until_owned(first if change == "fewer" else both)


@STRATEGIES
@pytest.mark.parametrize("others", [False, True])
def test_partitions_added_while_the_static_leader_is_away_are_assigned(
    group: Group, topic: str, strategy: str, others: bool
) -> None:
    group.brokers.create_topic(topic, partitions=2)
    group.ours("a", topic, static=True)
    group.wait_until_owned({topic: 2})
    if others:
        group.java("b", topic)
        group.wait_until_owned({topic: 2}, members=2)
    group.close("a")
    with Admin(bootstrap_servers=group.brokers.bootstrap_servers) as admin:
        admin.create_partitions({topic: 5})
    group.ours("a", topic, static=True)
    group.wait_until_owned({topic: 5})


@LED
@pytest.mark.parametrize("follower", ["ours", "java"])
def test_a_later_created_topic_that_only_a_follower_subscribes_to_is_assigned(
    group: Group, topic: str, strategy: str, leader: str, follower: str
) -> None:
    t, u = f"{topic}-t", f"{topic}-u"
    group.brokers.create_topic(t, partitions=2)
    group.start(leader, "leader", t)
    group.wait_until_owned({t: 2})
    group.start(follower, "follower", t, u)
    group.wait_until_owned({t: 2}, members=2)
    group.brokers.create_topic(u, partitions=2)
    group.wait_until_owned({t: 2, u: 2})


@LED
def test_a_static_member_that_returns_gets_a_topic_that_is_created_later(
    group: Group, topic: str, strategy: str, leader: str
) -> None:
    """Create the topic before a rebalance has reported the new subscription to the leader."""
    t, u = f"{topic}-t", f"{topic}-u"
    group.brokers.create_topic(t, partitions=2)
    group.start(leader, "leader", t)
    group.wait_until_owned({t: 2})
    group.ours("a", t, static=True)
    group.wait_until_owned({t: 2}, members=2)
    group.close("a")
    group.ours("a", t, u, static=True)
    group.wait_until_owned({t: 2})
    group.brokers.create_topic(u, partitions=2)
    group.wait_until_owned({t: 2, u: 2})
