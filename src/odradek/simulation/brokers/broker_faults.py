"""Inject faults into topics, logs, API versions and responses, as schedules define them.

In: a cluster and arguments from a schedule. Out: deleted and recreated topics, truncated logs, late
or wrong responses, brokers of other releases; `mend` ends all of these faults. Checkers can still
read lost records (`PartitionLog.lost`, `SimulatedCluster.deleted`), because no client can prevent
their loss. Must not know clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.protocol.api_keys import API_NAMES
from odradek.simulation.brokers.broker import LateRequests, SimulatedBroker
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.brokers.injected_errors import Injection
from odradek.simulation.logs.partition_log import PartitionLog
from odradek.simulation.logs.topics import SimulatedPartition, SimulatedTopic

KEYS = {name: key for key, name in API_NAMES.items()}
EVERYBODY = 0
"""Broker number `i` of a fault that affects all brokers."""
END_TXN, WITH_EPOCHS = 26, 5
"""API key of EndTxn, and the first version whose response contains the next epoch (KIP-890)."""
RELEASES = {
    "2.4": {
        0: 8, 1: 11, 2: 5, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 18: 3, 19: 5, 20: 4,
        22: 2, 23: 3, 24: 1, 25: 1, 26: 1, 28: 2, 60: -1, 68: -1,
    },
    "3.5": {
        0: 9, 1: 15, 2: 8, 3: 12, 8: 8, 9: 8, 10: 4, 11: 9, 12: 4, 13: 5, 14: 5, 18: 3, 19: 7,
        20: 6, 22: 4, 23: 4, 24: 4, 25: 3, 26: 3, 28: 3, 60: 0, 68: -1,
    },
    "3.9": {
        0: 11, 1: 17, 2: 9, 3: 12, 8: 9, 9: 9, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 18: 4, 19: 7,
        20: 6, 22: 5, 23: 4, 24: 5, 25: 4, 26: 4, 28: 4, 60: 1, 68: 0,
    },
    "newest": {},
}  # fmt: skip
"""Newest supported version of each API, by Kafka release; -1: unsupported."""
_NO_TRANSACTIONS = dict.fromkeys((22, 24, 25, 26, 28), -1)
LIMITED: dict[str, dict[int, int]] = {
    # As observed in Sarama's issue 2470; no idempotent producers, as in Event Hubs' lower tiers.
    "Azure Event Hubs": {0: 7, 1: 6, 3: 5, 18: 3, 60: -1, 68: -1, **_NO_TRANSACTIONS},
    "no idempotence": _NO_TRANSACTIONS,
    "no KIP-848": {68: -1},
    "no KIP-890": {0: 11, 22: 4, 24: 3, 26: 3, 28: 3},
    "no topic ids": {0: 12, 1: 12, 3: 9},
    "Kafka 0.11": {
        0: 3, 1: 5, 2: 2, 3: 4, 8: 3, 9: 3, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 18: 1, 19: 2, 20: 1,
        22: 0, 24: 0, 25: 0, 26: 0, 28: 0, 60: -1, 68: -1,
    },
}  # fmt: skip
"""Like `RELEASES`, by the name of a product that isn't Kafka, or of a lacking feature."""


def brokers(cluster: SimulatedCluster, i: int) -> Iterable[SimulatedBroker]:
    """Return a list of all brokers if `i` is `EVERYBODY`, otherwise of broker `i` alone."""
    return list(cluster.brokers.values()) if i == EVERYBODY else [cluster.brokers[i]]


# Responses


def slow_api(cluster: SimulatedCluster, api: str, seconds: float, i: int = EVERYBODY) -> None:
    """Delay the responses of one API by some seconds; 0 ends the fault."""
    for broker in brokers(cluster, i):
        broker.delay(KEYS[api], seconds)


def answer_error(
    cluster: SimulatedCluster,
    api: str,
    code: int,
    count: int = 1,
    done: bool = False,
    same: bool = False,
    i: int = EVERYBODY,
) -> None:
    """Replace the next responses of an API by errors; with `done`, requests still take effect."""
    made = Injection(api, code, count, done, same)
    cluster.injected.add(code)
    for broker in brokers(cluster, i):
        broker.injections.append(made)


def append_but_refuse(
    cluster: SimulatedCluster, code: int, count: int = 1, same: bool = False, i: int = EVERYBODY
) -> None:
    """Append producers' next batches, but return an error."""
    answer_error(cluster, "Produce", code, count, True, same, i)


def quota(cluster: SimulatedCluster, seconds: float, i: int = EVERYBODY) -> None:
    """Report a throttle time in each response, and read no requests during that time (KIP-219)."""
    for broker in brokers(cluster, i):
        broker.quota = seconds


def trickle(
    cluster: SimulatedCluster, seconds: float, both: bool = False, i: int = EVERYBODY
) -> None:
    """Send responses byte by byte, and never their last byte; 0 ends the fault."""
    for broker in brokers(cluster, i):
        broker.trickle(seconds, both=both)


def late_packets(cluster: SimulatedCluster, i: int, seconds: float) -> None:
    """Delay a broker's connections: their requests arrive after those of the next connections."""
    for session in list(cluster.brokers[i].sessions):
        session.strand(seconds)


def late_requests(
    cluster: SimulatedCluster, api: str, seconds: float, count: int = 1, i: int = EVERYBODY
) -> None:
    """Delay the connections of an API's next requests, so that each arrives after its retry."""
    for broker in brokers(cluster, i):
        broker.late.append(LateRequests(KEYS[api], seconds, count))


def release(cluster: SimulatedCluster, i: int, name: str) -> None:
    """Restart a broker with the API versions of another Kafka release; its connections end."""
    cluster.brokers[i].speak(_spoken(cluster.versions, RELEASES[name]))


def release_of_all(cluster: SimulatedCluster, name: str) -> None:
    """Let all brokers of a cluster have the API versions of a release, before a run."""
    spoken = _spoken(cluster.versions, RELEASES[name])
    cluster.versions.clear()
    cluster.versions.update(spoken)
    _finalize(cluster, RELEASES[name])


def limit(cluster: SimulatedCluster, name: str) -> None:
    """Limit all brokers to the APIs of another product, or to those without a feature.

    Like Event Hubs, they close the connection on an ApiVersions request that they can't read.
    """
    for broker in brokers(cluster, EVERYBODY):
        broker.speak(_spoken(cluster.versions, LIMITED[name]), closes_on_unknown=True)
    _finalize(cluster, LIMITED[name])


def _finalize(cluster: SimulatedCluster, newest: Mapping[int, int]) -> None:
    if newest.get(END_TXN, WITH_EPOCHS) < WITH_EPOCHS:
        cluster.transactions.finalize(0)


def _spoken(
    versions: Mapping[int, tuple[int, int]], newest: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    return {
        key: (low, min(high, newest.get(key, high)))
        for key, (low, high) in versions.items()
        if newest.get(key, high) >= low
    }


# Topics and logs


def _log(cluster: SimulatedCluster, topic: str, index: int) -> SimulatedPartition | None:
    found = cluster.topics.get(topic)
    return found.partitions[index] if found and index < len(found.partitions) else None


def delete_topic(cluster: SimulatedCluster, topic: str) -> None:
    """Delete a topic; when the faults end, it is recreated, empty and with another id."""
    found = cluster.topics.get(topic)
    if found is not None:
        cluster.deleted.append(found)
        cluster.delete_topic(topic)


def recreate_topic(
    cluster: SimulatedCluster, topic: str, partitions: int | None = None, after: float = 0.0
) -> None:
    """Delete a topic and recreate it `after` seconds later.

    The recreated topic has a new id and perhaps fewer partitions.
    """
    old = size(cluster, topic)
    delete_topic(cluster, topic)

    def create() -> None:
        if topic not in cluster.topics:
            cluster.create_topic(topic, min(partitions or old, old))

    if after:
        cluster.environment.time.after(after, create)
    else:
        create()


def grow_topic(cluster: SimulatedCluster, topic: str, count: int) -> None:
    """Add partitions to a topic."""
    if topic in cluster.topics:
        cluster.add_partitions(topic, count)


def unclean_election(cluster: SimulatedCluster, topic: str, partition: int, lost: int) -> None:
    """Elect a leader whose log lacks the newest batches, which are lost."""
    found = _log(cluster, topic, partition)
    if found is None:
        return
    if found.log.batches:
        kept = found.log.batches[-lost:][0].base_offset
        found.log.truncate(max(kept, found.log.start_offset))
    cluster.hand_over(topic, partition)
    if found.leader in cluster.brokers:
        found.begin_epoch()
    cluster.changed()


def delete_records(cluster: SimulatedCluster, topic: str, partition: int, share: float) -> None:
    """Delete a partition's oldest records: the given share of its committed records."""
    found = _log(cluster, topic, partition)
    if found is not None:
        log = found.log
        log.delete_before(round(log.start_offset + share * (log.high_watermark - log.start_offset)))
        cluster.changed()


def max_message_bytes(cluster: SimulatedCluster, topic: str, size: int) -> None:
    """Let a topic's leaders reject batches of more than `size` bytes."""
    if topic in cluster.topics:
        for partition in cluster.topics[topic].partitions:
            partition.log.limit_batches(size)


def min_insync(cluster: SimulatedCluster, replicas: int) -> None:
    """Reject batches with acks=all unless at least this many replicas are alive."""
    cluster.require_in_sync(replicas)


# End of faults


def _dead(cluster: SimulatedCluster, topic: str) -> list[SimulatedTopic]:
    return [old for old in cluster.deleted if old.name == topic]


def size(cluster: SimulatedCluster, topic: str) -> int:
    """Return the largest number of partitions that a topic ever had."""
    there = [cluster.topics[topic]] if topic in cluster.topics else []
    return max((len(t.partitions) for t in (*there, *_dead(cluster, topic))), default=1)


def mend(cluster: SimulatedCluster) -> None:
    """Undo the faults of topics, logs and API versions, except for lost records."""
    cluster.require_in_sync()
    for broker in cluster.brokers.values():
        if broker.versions is not None:
            broker.speak(None)
    for name in dict.fromkeys(t.name for t in cluster.deleted):
        wanted = size(cluster, name)
        if name not in cluster.topics:
            cluster.create_topic(name, wanted)
        elif len(cluster.topics[name].partitions) < wanted:
            cluster.add_partitions(name, wanted - len(cluster.topics[name].partitions))
    for topic in cluster.topics.values():
        for partition in topic.partitions:
            partition.log.limit_batches()


# Functions for checkers


def left_logs(cluster: SimulatedCluster, topic: str, index: int) -> list[PartitionLog]:
    """Return the logs that a partition had before its topic was deleted."""
    return [
        old.partitions[index].log for old in _dead(cluster, topic) if index < len(old.partitions)
    ]


def lost_values(cluster: SimulatedCluster, topic: str, index: int) -> set[bytes]:
    """Return the values of records that a partition's logs have lost by faults."""
    now = _log(cluster, topic, index)
    found = now.log.values(now.log.lost) if now is not None else set()
    for log in left_logs(cluster, topic, index):
        found |= log.values(log.batches) | log.values(log.lost)
    return found


def disturbed(cluster: SimulatedCluster, topic: str, index: int) -> bool:
    """Return whether a partition may have assigned an offset to two different records."""
    now = _log(cluster, topic, index)
    return bool(_dead(cluster, topic)) or (now is not None and bool(now.log.lost))
