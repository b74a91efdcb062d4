"""Compare the simulated group coordinators with Kafka's by a script of raw requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from tests.raw_connection import RawConnection

from odradek.protocol.messages import consumer_group_heartbeat as ch
from odradek.protocol.messages import find_coordinator as fc
from odradek.protocol.messages import join_group as jg
from odradek.protocol.messages import leave_group as lg
from odradek.protocol.messages import offset_commit as oc
from odradek.protocol.messages import offset_fetch as of
from odradek.protocol.messages import sync_group as sg
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.simulation import SimulatedCluster
from odradek.testing import LocalCluster
from odradek.testing.fake.loopback import LoopbackServer

Script = Callable[["GroupScope"], list[Any]]


class GroupScope:
    """Scope of a script: a cluster's bootstrap address, a group, a topic with two partitions."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self._lines: list[RawConnection] = []
        host, _, port = servers.partition(":")
        self._door = self.keep(RawConnection(host, int(port)))
        asked = MetadataRequest([MetadataRequestTopic(name=topic)])
        self.topic_id = self._door.ask(asked, 12).topics[0].topic_id
        self._place = self._find()

    def keep(self, line: RawConnection) -> RawConnection:
        self._lines.append(line)
        return line

    def _find(self) -> tuple[str, int]:
        until = time.monotonic() + 20.0
        while time.monotonic() < until:
            request = fc.FindCoordinatorRequest(coordinator_keys=[self.group])
            found = self._door.ask(request, 4).coordinators[0]
            if found.error_code == 0 and self._coordinates(found.host, found.port):
                return found.host, found.port
            time.sleep(0.05)
        raise AssertionError("no coordinator")

    def _coordinates(self, host: str, port: int) -> bool:
        """Return whether a broker already knows that it coordinates the group."""
        line = self.keep(RawConnection(host, port))
        group = of.OffsetFetchRequestGroup(self.group, topics=None)
        return bool(line.ask(of.OffsetFetchRequest(groups=[group]), 9).groups[0].error_code == 0)

    def line(self) -> RawConnection:
        """Return a new connection to the coordinator."""
        return self.keep(RawConnection(*self._place))

    def close(self) -> None:
        for line in self._lines:
            line.close()


class Member:
    """Member of a classic group that sends raw requests."""

    def __init__(self, room: GroupScope, instance: str | None = None) -> None:
        self.room, self.instance = room, instance
        self.line = room.line()
        self.id = ""
        self.generation = -1

    def send_join(self, *protocols: str, session: int = 10_000) -> None:
        given = [jg.JoinGroupRequestProtocol(p, p.encode()) for p in protocols or ("a", "b")]
        request = jg.JoinGroupRequest(
            self.room.group, session, 10_000, self.id, self.instance, "consumer", given
        )
        self.line.send(request, 9)

    def joined(self) -> tuple[Any, ...]:
        answer = self.line.answer()
        if answer.member_id:
            self.id = answer.member_id
        if answer.error_code == 0:
            self.generation = answer.generation_id
        return (
            answer.error_code,
            answer.generation_id,
            answer.protocol_name,
            answer.leader == self.id,
            [m.metadata for m in answer.members],
            answer.skip_assignment,
        )

    def join(self, *protocols: str, session: int = 10_000) -> tuple[Any, ...]:
        self.send_join(*protocols, session=session)
        return self.joined()

    def sync(self, given: dict[str, bytes], protocol: str = "a") -> None:
        parts = [sg.SyncGroupRequestAssignment(k, v) for k, v in given.items()]
        self.line.send(
            sg.SyncGroupRequest(
                self.room.group,
                self.generation,
                self.id,
                self.instance,
                "consumer",
                protocol,
                parts,
            ),
            5,
        )

    def synced(self) -> tuple[int, bytes]:
        answer = self.line.answer()
        return answer.error_code, bytes(answer.assignment)

    def beat(self, generation: int | None = None) -> int:
        request = HeartbeatRequest(
            self.room.group,
            self.generation if generation is None else generation,
            self.id,
            self.instance,
        )
        return int(self.line.ask(request, 4).error_code)

    def leave(self) -> tuple[int, list[int]]:
        one = lg.MemberIdentity(self.id, self.instance)
        answer = self.line.ask(lg.LeaveGroupRequest(self.room.group, members=[one]), 5)
        return answer.error_code, [m.error_code for m in answer.members]

    def commit(
        self, offset: int, generation: int | None = None, version: int = 9
    ) -> dict[int, int]:
        """Return error codes by partition; the topic has no partition 7."""
        parts = [oc.OffsetCommitRequestPartition(p, offset) for p in (0, 7)]
        request = oc.OffsetCommitRequest(
            self.room.group, self.generation if generation is None else generation, self.id
        )
        request.group_instance_id = self.instance
        request.topics = [oc.OffsetCommitRequestTopic(self.room.topic, partitions=parts)]
        answer = self.line.ask(request, version)
        return {p.partition_index: p.error_code for p in answer.topics[0].partitions}

    def fetch(self) -> tuple[int, list[tuple[int, int, int]]]:
        topic = of.OffsetFetchRequestTopics(self.room.topic, partition_indexes=[0, 1])
        group = of.OffsetFetchRequestGroup(self.room.group, topics=[topic])
        found = self.line.ask(of.OffsetFetchRequest(groups=[group]), 9).groups[0]
        parts = [
            (p.partition_index, p.committed_offset, p.error_code)
            for t in found.topics
            for p in t.partitions
        ]
        return found.error_code, parts


def rebalancing(member: Member) -> int:
    """Return the code of a heartbeat after another member's JoinGroup request has arrived."""
    until = time.monotonic() + 5.0
    while (code := member.beat()) == 0 and time.monotonic() < until:
        time.sleep(0.02)
    return code


def classic(room: GroupScope) -> list[Any]:
    """Run a classic group from its first to its last request."""
    a, b, stranger = Member(room), Member(room), Member(room)
    said: list[Any] = [a.commit(1, 3), a.commit(1, 3, version=8), a.beat(1), stranger.fetch()]
    said += [stranger.commit(1), stranger.fetch(), a.beat(1), a.commit(1, 3)]
    said += [a.commit(1, 3, version=8), a.leave(), a.join(), a.join(), a.commit(2)]
    a.sync({a.id: b"all"})
    said += [a.synced(), a.beat(), a.beat(7), a.commit(3), a.commit(4, 9), a.fetch()]
    said += [stranger.commit(9), stranger.fetch(), b.join("c"), b.join("b", session=1)]
    said += [b.join("a", "b")]
    b.send_join("a", "b")
    said += [rebalancing(a), a.commit(5)]
    a.sync({})
    said += [a.synced()]
    a.send_join()
    said += [a.joined(), b.joined()]
    b.sync({})
    time.sleep(0.1)
    a.sync({a.id: b"one", b.id: b"two"})
    said += [a.synced(), b.synced()]
    said += [b.join("a", "b"), a.beat(), b.beat(), b.commit(6)]
    b.sync({}, protocol="z")
    said += [b.synced(), b.leave(), b.leave(), b.beat(), a.beat(), a.join()]
    a.sync({})
    said += [a.synced(), a.leave(), a.beat(), stranger.commit(8), stranger.fetch()]
    return said


def static(room: GroupScope) -> list[Any]:
    """Let a member join with another member's group.instance.id, and replace that member."""
    old, other = Member(room, "i"), Member(room, "i")
    said: list[Any] = [old.join()]
    old.sync({old.id: b"mine"})
    said += [old.synced(), other.join(), other.id != old.id, old.beat(), old.commit(1)]
    other.sync({})
    said += [other.synced(), other.beat(), other.commit(1), old.join(), old.leave(), other.leave()]
    return said


class ConsumerProtocolMember:
    """Member of the consumer protocol that sends raw requests."""

    def __init__(self, room: GroupScope, name: str, instance: str | None = None) -> None:
        self.room, self.id, self.instance = room, name, instance
        self.line = room.line()
        self.epoch = 0
        self.owned: list[int] = []

    def ask(self, epoch: int, **fields: Any) -> tuple[int, int]:
        request = ch.ConsumerGroupHeartbeatRequest(
            self.room.group, self.id, epoch, self.instance, **fields
        )
        answer = self.line.ask(request, 1)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            self.owned = sorted(p for t in parts for p in t.partitions)
        return answer.error_code, answer.member_epoch if answer.error_code == 0 else -9

    def join(self, **fields: Any) -> tuple[int, int]:
        return self.ask(
            0,
            rebalance_timeout_ms=10_000,
            topic_partitions=[],
            **({"subscribed_topic_names": [self.room.topic]} | fields),
        )

    def beat(self) -> tuple[int, int]:
        place = ch.ConsumerGroupHeartbeatRequestTopicPartitions(self.room.topic_id, self.owned)
        return self.ask(self.epoch, topic_partitions=[place] if self.owned else [])


def heartbeat_until_assigned(*members: ConsumerProtocolMember) -> list[int]:
    """Send heartbeats until each member has partitions; the assignment may arrive later."""
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        codes = [m.beat()[0] for m in members]
        shared = sorted(p for m in members for p in m.owned) == [0, 1]
        if any(codes) or (shared and all(m.owned for m in members)):
            return [*codes, *(len(m.owned) for m in members)]
        time.sleep(0.05)
    raise AssertionError([m.owned for m in members])


def consumer(room: GroupScope) -> list[Any]:
    """Run a group with the consumer protocol; return the error codes and assignments."""
    a, b = (
        ConsumerProtocolMember(room, "member-a-0000000000"),
        ConsumerProtocolMember(room, "member-b-0000000000"),
    )
    said: list[Any] = [a.ask(3)[0], a.ask(0)[0], a.join(server_assignor="mine")[0], a.join()[0]]
    said += [
        heartbeat_until_assigned(a),
        a.ask(a.epoch)[0],
        a.ask(a.epoch + 5)[0],
        b.join()[0],
        b.owned,
    ]
    said += [
        heartbeat_until_assigned(a, b),
        a.epoch == b.epoch,
        a.ask(a.epoch - 1)[0],
        a.ask(-2)[0],
        a.ask(-9)[0],
    ]
    commits = Member(room)
    commits.id = a.id
    said += [commits.commit(5, a.epoch), commits.commit(6, a.epoch - 1), commits.fetch()]
    said += [
        a.join()[0],
        len(a.owned),
        a.ask(-1),
        a.ask(-1)[0],
        heartbeat_until_assigned(b),
        a.ask(1)[0],
    ]
    bad = ConsumerProtocolMember(room, "member-c-0000000000")
    fields = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
    said += [bad.join(**fields)[0], commits.commit(7, -1)]
    said += [b.ask(-1)]
    static = ConsumerProtocolMember(room, "member-s-0000000000", "i")
    other = ConsumerProtocolMember(room, "member-t-0000000000", "i")
    said += [
        static.join()[0],
        heartbeat_until_assigned(static),
        other.join()[0],
        static.ask(-2),
        other.join()[0],
    ]
    said += [heartbeat_until_assigned(other), static.ask(static.epoch)[0], other.ask(-1)]
    return said


@contextmanager
def simulated() -> Iterator[str]:
    """Start a simulated cluster on real sockets with a topic, and yield its bootstrap servers."""
    with LoopbackServer() as server:
        made = server.call(lambda: SimulatedCluster(server, 3, bootstrap_name=None))
        server.call(lambda: made.create_topic("t", 2))
        yield made.bootstrap_servers


@pytest.mark.parametrize("script", [classic, static, consumer])
def test_simulated_and_real_group_coordinators_send_the_same_responses(
    cluster: LocalCluster, topic: str, script: Script
) -> None:
    cluster.create_topic(topic, 2)
    with (
        simulated() as servers,
        closing(GroupScope(servers, f"g-{topic}", "t")) as made,
        closing(GroupScope(cluster.bootstrap_servers, f"g-{topic}", topic)) as real,
    ):
        both = enumerate(zip(script(made), script(real), strict=True))
        assert [(step, ours, kafkas) for step, (ours, kafkas) in both if ours != kafkas] == []
