"""Small consumer programs for confluent-kafka, also run with another library.

In: the library (a module with confluent-kafka's names), a cluster, a function that records values.
Out: what a program observes, as plain values. Must not: record anything that depends on timing.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from tests.integration.confluent_programs import (
    PATIENCE,
    Note,
    Program,
    consumer,
    numbers,
    places,
    read,
    seen,
    trying,
    written,
)

from odradek.testing import FakeCluster


def a_group_of_one(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 4, key="k", headers={"h": "x", "none": None}, timestamp=1234)
    reader = consumer(library, cluster)
    note("before", reader.assignment(), reader.memberid(), reader.poll(0))
    revoked: list[Any] = []
    reader.subscribe(
        ["flights"],
        on_assign=lambda c, p: note("assign", c is reader, places(p)),
        on_revoke=lambda c, p: revoked.append((c is reader, numbers(p))),
    )
    for message in read(reader, 4):
        note(seen(message), message.leader_epoch(), message.latency())
    note("nothing more", reader.poll(0.1), reader.consume(5, 0.1))
    note(numbers(reader.assignment()), bool(reader.memberid()))
    note(places(reader.position(reader.assignment())))
    note(reader.cluster_id(PATIENCE))
    note(reader.unsubscribe())
    note(reader.poll(1), reader.assignment(), revoked)
    note(reader.close(), reader.close())
    for name in ("assignment", "unsubscribe", "memberid", "commit", "consume"):
        trying(note, name, getattr(reader, name))
    trying(note, "poll", lambda: reader.poll(0))


def commits(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 5)
    told: list[Any] = []
    reader = consumer(
        library, cluster, on_commit=lambda e, p: told.append((e and e.name(), places(p)))
    )
    reader.subscribe(["flights"])
    trying(note, "nothing yet", lambda: reader.commit(asynchronous=False))
    messages = read(reader, 5)
    every = reader.assignment()
    note(places(reader.commit(asynchronous=False)))
    trying(note, "nothing new", lambda: reader.commit(asynchronous=False))
    note(places(reader.committed(every, PATIENCE)))
    note(places(reader.commit(messages[1], asynchronous=False)))
    note(places(reader.commit(message=messages[2], asynchronous=False)))
    offsets = [library.TopicPartition("flights", 1, 3, "a note")]
    note(numbers(reader.commit(offsets=offsets, asynchronous=False)))
    note(places(reader.committed(every, PATIENCE)))
    told.clear()
    note(reader.commit(messages[3]), reader.commit(offsets=offsets))
    for _ in range(100):
        if len(told) == 2:
            break
        reader.poll(0.1)
    note([[(t, n, o) for t, n, o, _ in p] for e, p in told if e is None])
    note(places(reader.committed(every, PATIENCE)))
    for name, call in (
        ("no message", lambda: reader.commit(3)),
        ("both", lambda: reader.commit(messages[0], offsets)),
        ("no offset", lambda: reader.commit(offsets=[], asynchronous=False)),
        ("stored by itself", lambda: reader.store_offsets(offsets=offsets)),
        ("neither", reader.store_offsets),
    ):
        trying(note, name, call)
    reader.close()


def stored_offsets(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 6)
    settings = {"enable__auto__commit": True, "enable__auto__offset__store": False}
    reader = consumer(library, cluster, **settings)
    reader.subscribe(["flights"])
    messages = read(reader, 6)
    trying(note, "nothing stored", lambda: reader.commit(asynchronous=False))
    reader.store_offsets(messages[1])
    note([p for p in places(reader.commit(asynchronous=False)) if p[2] >= 0])
    reader.store_offsets(offsets=[library.TopicPartition("flights", 0, 4)])
    elsewhere = [library.TopicPartition("counts", 0, 4)]
    trying(note, "not assigned", lambda: reader.store_offsets(offsets=elsewhere))
    reader.close()  # commits the stored offsets, not the offsets of all records that were read
    again = consumer(library, cluster, **settings)
    again.subscribe(["flights"])
    note([m.offset() for m in read(again, 2)])
    again.close()


def auto_commit(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 4)
    told: list[Any] = []
    reader = consumer(
        library,
        cluster,
        enable__auto__commit=True,
        auto__commit__interval__ms=100,
        on_commit=lambda e, p: told.append((e and e.name(), [o for *_, o, _ in places(p)])),
    )
    reader.subscribe(["flights"])
    read(reader, 4)
    for _ in range(100):
        if any(e is None and 4 in offsets for e, offsets in told):
            break
        reader.poll(0.1)
    note(any(e is None and 4 in offsets for e, offsets in told))
    note([p for p in places(reader.committed(reader.assignment(), PATIENCE)) if p[2] >= 0])
    reader.close()


def seeks(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 5)
    reader = consumer(library, cluster)
    here = library.TopicPartition("flights", 0)
    trying(note, "not assigned", lambda: reader.seek(library.TopicPartition("flights", 0, 1)))
    reader.subscribe(["flights"])
    read(reader, 5)
    for offset in (2, library.OFFSET_BEGINNING, 4):
        reader.seek(library.TopicPartition("flights", 0, offset))
        note(reader.position([here])[0].offset)
        [message] = read(reader, 1)
        note(offset, message.offset(), reader.position([here])[0].offset)
    reader.seek(library.TopicPartition("flights", 0, library.OFFSET_END))
    note(reader.poll(1.5))
    written(library, cluster, 1)
    note([m.offset() for m in read(reader, 1)])
    trying(note, "elsewhere", lambda: reader.seek(library.TopicPartition("counts", 0, 1)))
    trying(note, "no partition", lambda: reader.seek("flights"))
    reader.close()


def on_assign_sets_the_offsets(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 5)

    def on_assign(client: Any, partitions: Any) -> None:
        for partition in partitions:
            partition.offset = 3 if partition.partition == 0 else library.OFFSET_END
        client.assign(partitions)

    reader = consumer(library, cluster)
    reader.subscribe(["flights"], on_assign=on_assign)
    note([seen(m)[2] for m in read(reader, 2)])  # type: ignore[index]
    reader.close()


def manual_assignment(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 5)
    written(library, cluster, 3, partition=1)
    reader, at = consumer(library, cluster), library.TopicPartition
    reader.assign([at("flights", 0, 2), at("flights", 1, library.OFFSET_BEGINNING)])
    note(numbers(reader.assignment()))
    note(sorted((m.partition(), m.offset()) for m in read(reader, 6)))
    reader.commit(asynchronous=False)
    note(places(reader.committed([at("flights", 0), at("flights", 1)], PATIENCE)))
    reader.commit(offsets=[at("flights", 0, 4)], asynchronous=False)
    for offset in (library.OFFSET_STORED, library.OFFSET_INVALID):
        reader.assign([at("flights", 0, offset)])
        note([m.offset() for m in read(reader, 1)], numbers(reader.assignment()))
    reader.unassign()
    note(reader.assignment(), reader.poll(0.1))
    trying(note, "no list", lambda: reader.assign(3))
    trying(note, "no partitions", lambda: reader.assign([3]))
    reader.close()


def incremental_assignment(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 2)
    written(library, cluster, 2, partition=1)
    reader, at = consumer(library, cluster), library.TopicPartition
    reader.incremental_assign([at("flights", 0)])
    note([(m.partition(), m.offset()) for m in read(reader, 2)])
    for again in ([at("flights", 0)], [at("flights", 1), at("flights", 1)]):
        trying(note, "again", partial(reader.incremental_assign, again))
    reader.incremental_assign([at("flights", 1, 1)])
    note(numbers(reader.assignment()))
    note([(m.partition(), m.offset()) for m in read(reader, 1)])
    reader.incremental_unassign([at("flights", 0)])
    note(numbers(reader.assignment()))
    trying(note, "not assigned", lambda: reader.incremental_unassign([at("counts", 0)]))
    reader.assign([at("flights", 0, 1)])
    for words in ((), ("",), ("a word",)):
        reader.commit(offsets=[at("flights", 0, 1, *words)], asynchronous=False)
        note(places(reader.committed([at("flights", 0)], PATIENCE)))
    reader.incremental_assign([at("flights", 1, 1)])
    note(sorted((m.partition(), m.offset()) for m in read(reader, 2)))
    reader.close()


def polls_come_too_late(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 1)
    slow = {"session.timeout.ms": 6000, "max.poll.interval.ms": 6000}
    said: list[Any] = []
    reader = consumer(library, cluster, **slow)
    names = ("on_assign", "on_revoke", "on_lost")
    callbacks = {name: (lambda c, p, n=name: said.append((n, numbers(p)))) for name in names}
    reader.subscribe(["flights"], **callbacks)
    note([m.value() for m in read(reader, 1)], list(said))
    time.sleep(8)
    late = reader.poll(1)
    note(late.error().name(), list(said))
    note([m.value() for m in read(reader, 1)], list(said))
    reader.close()


def pauses(library: Any, cluster: FakeCluster, note: Note) -> None:
    reader = consumer(library, cluster)
    reader.subscribe(["flights"])
    while not reader.assignment():
        reader.poll(0.1)
    every = reader.assignment()
    note(reader.pause(every))
    written(library, cluster, 5)
    note(reader.poll(1))
    note(reader.resume(every))
    note([m.offset() for m in read(reader, 2)])
    reader.pause(every)
    note(reader.poll(0.3), reader.consume(2, 0.3))
    reader.resume(every)
    note([m.offset() for m in read(reader, 3)])
    note(reader.pause([library.TopicPartition("counts", 0)]))
    reader.close()


def watermarks(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(5):
        producer.produce("flights", b"x", partition=0, timestamp=1000 * (number + 1))
    producer.flush(PATIENCE)
    reader, at = consumer(library, cluster), library.TopicPartition
    note(reader.get_watermark_offsets(at("flights", 0), PATIENCE))
    note(reader.get_watermark_offsets(at("flights", 1), timeout=PATIENCE))
    note(reader.get_watermark_offsets(at("counts", 0), cached=True))
    for missing in (at("flights", 9), at("nowhere", 0)):
        trying(note, "missing", partial(reader.get_watermark_offsets, missing, 5))
    for when in (0, 1000, 2500, 5000, 5001):
        found = reader.offsets_for_times([at("flights", 0, when), at("flights", 1, when)], PATIENCE)
        note(when, places(found))
    reader.close()


def ends_of_partitions(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 3)
    reader = consumer(library, cluster, enable__partition__eof=True)
    reader.assign([library.TopicPartition("flights", 0), library.TopicPartition("flights", 1)])
    found = [seen(m) for m in read(reader, 5)]
    note([one for one in found if one[1] == 0])  # type: ignore[index]
    note([one for one in found if one[1] == 1])  # type: ignore[index]
    note(reader.poll(0.7))
    written(library, cluster, 1)
    note([seen(m) for m in read(reader, 2)])
    reader.seek(library.TopicPartition("flights", 0, 3))
    note([seen(m) for m in read(reader, 2)])
    reader.close()


def no_offset_and_reset_to_error(library: Any, cluster: FakeCluster, note: Note) -> None:
    reader = consumer(library, cluster, auto__offset__reset="error")
    reader.subscribe(["counts"])
    note([(m.error().name(), m.topic(), m.partition()) for m in read(reader, 1)])
    reader.close()


def a_topic_is_missing(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 2)
    reader = consumer(library, cluster)
    reader.subscribe(["flights", "nowhere"])
    found = sorted(map(seen, read(reader, 3)), key=str)
    note([(one[0], one[3]) for one in found if one is not None and len(one) == 4])
    note([one[2] for one in found if one is not None and len(one) > 4], reader.poll(1.5))
    reader.close()


def consume_many(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 10)
    reader = consumer(library, cluster)
    reader.subscribe(["flights"])
    note([m.offset() for m in reader.consume(4, PATIENCE)])
    note([m.offset() for m in reader.consume(num_messages=20, timeout=2)])
    note(reader.consume(0, 0), reader.consume(3, 0))
    trying(note, "too few", lambda: reader.consume(-1))
    trying(note, "too many", lambda: reader.consume(2_000_000, 0))
    reader.close()


def two_members(library: Any, cluster: FakeCluster, note: Note) -> None:
    for strategy in ("range,roundrobin", "cooperative-sticky"):
        _two_members(library, cluster, note, strategy)


def _two_members(library: Any, cluster: FakeCluster, note: Note, strategy: str) -> None:
    said: dict[str, list[Any]] = {"first": [], "second": []}
    settings = {
        "partition__assignment__strategy": strategy,
        "group__id": f"of {strategy}",
        "heartbeat__interval__ms": 200,
        "session__timeout__ms": 10000,
    }
    members = {name: consumer(library, cluster, **settings) for name in said}
    for name, member in members.items():
        member.subscribe(
            ["flights"],
            on_assign=lambda _, p, n=name: said[n].append(("assign", len(p))),
            on_revoke=lambda _, p, n=name: said[n].append(("revoke", len(p))),
            on_lost=lambda _, p, n=name: said[n].append(("lost", len(p))),
        )
        until = time.monotonic() + PATIENCE
        wanted = 2 if name == "first" else 1
        while time.monotonic() < until:
            for one in members.values():
                one.poll(0.05)
            if _has(member, said[name], wanted) and _has(members["first"], said["first"], wanted):
                break
    note(strategy, _moved(said), sorted(len(m.assignment()) for m in members.values()))
    members["first"].close()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not _has(members["second"], said["second"], 2):
        members["second"].poll(0.1)
    note(_moved(said), len(members["second"].assignment()))
    members["second"].close()
    note(_moved(said), ("assign", 0) in said["first"] + said["second"])


def _has(member: Any, calls: list[Any], wanted: int) -> bool:
    """Return whether a member has `wanted` partitions and its callbacks have reported as many."""
    heard = sum(count if kind == "assign" else -count for kind, count in calls)
    return bool(len(member.assignment()) == heard == wanted)


def _moved(said: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the callbacks with partitions; the number of empty rebalances depends on timing."""
    return {name: [call for call in calls if call != ("assign", 0)] for name, calls in said.items()}


def calls_that_time_out(library: Any, cluster: FakeCluster, note: Note) -> None:
    reader, here = consumer(library, cluster), library.TopicPartition("counts", 0)
    note(places(reader.committed([here], PATIENCE)))
    begun = time.monotonic()
    note(reader.poll(0.3), 0.25 < time.monotonic() - begun < 15)
    cluster.delay("OffsetFetch", 30)
    begun = time.monotonic()
    trying(note, "committed", lambda: reader.committed([here], 0.5))
    note(time.monotonic() - begun < 15)
    cluster.heal()
    reader.close()


CONSUMER_PROGRAMS: tuple[Program, ...] = (
    a_group_of_one,
    commits,
    stored_offsets,
    auto_commit,
    seeks,
    on_assign_sets_the_offsets,
    manual_assignment,
    incremental_assignment,
    polls_come_too_late,
    pauses,
    watermarks,
    ends_of_partitions,
    no_offset_and_reset_to_error,
    a_topic_is_missing,
    consume_many,
    two_members,
    calls_that_time_out,
)
