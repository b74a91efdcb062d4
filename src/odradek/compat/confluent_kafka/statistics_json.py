"""Statistics in librdkafka's JSON layout, for `stats_cb`.

In: a snapshot of Odradek's metrics, the size of a producer's queue, the log ends of a consumer.
Out: the JSON text that dashboards for librdkafka's statistics read, with the same names, units and
structure. Values that this client doesn't measure are omitted: a wrong number would be worse. Must
not: send a request, or keep a client alive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any
from weakref import ref

import odradek
from odradek.common.options.values import CONSUMER
from odradek.compat.clock import monotonic
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.settings import Given

US = 1_000_000
_handles = count(1)
_JOIN_STATES = {
    "stable": "steady",
    "preparing_rebalance": "wait-join",
    "joining": "wait-join",
    "completing_rebalance": "wait-sync",
    "reconciling": "wait-assign-call",
    "acknowledging": "wait-assign-call",
}


def tell_regularly(
    queue: CallbackQueue, kind: str, given: Given, owner: Any, client: Callable[[Any], Any]
) -> None:
    """Call `stats_cb` every `statistics.interval.ms`, if both are set."""
    if given.stats_cb is not None and given.stats_every > 0:
        queue.put_every(given.stats_every, StatisticsJson(kind, given, owner, client).tell)


class StatisticsJson:
    """Source of one client's values for `stats_cb`."""

    def __init__(self, kind: str, given: Given, owner: Any, client: Callable[[Any], Any]) -> None:
        """Take the owner, to which only a weak reference is kept; `client(owner)` is the client."""
        # In librdkafka an admin client is a producer.
        self._kind = "consumer" if kind == CONSUMER else "producer"
        self._number = next(_handles)
        self._given = given
        self._owner = ref(owner)
        self._client = client
        self._begun = monotonic()

    def tell(self) -> None:
        """Call `stats_cb` with the current values."""
        owner, call = self._owner(), self._given.stats_cb
        if owner is not None and call is not None:
            text = json.dumps(self.numbers(owner))
            del owner
            call(text)

    def numbers(self, owner: Any) -> dict[str, Any]:
        """Return all statistics as a dict for JSON."""
        client = self._client(owner)
        found: odradek.monitoring.Metrics = client.metrics()
        now = monotonic()
        numbers: dict[str, Any] = {
            "name": f"{found.client_id}#{self._kind}-{self._number}",
            "client_id": found.client_id,
            "type": self._kind,
            "ts": int(now * US),
            "time": int(found.at),
            "age": int((now - self._begun) * US),
            "brokers": dict(_brokers(found)),
            "topics": {},
            "tx": int(found.value("request-total")),
            "rx": int(found.value("response-total")),
        }
        if found.find("record-send-total"):
            numbers |= {
                "msg_cnt": len(owner),
                "msg_max": self._given.most_messages,
                "msg_size": int(
                    found.value("buffer-total-bytes") - found.value("buffer-available-bytes")
                ),
                "msg_size_max": self._given.most_bytes,
                "txmsgs": int(found.value("record-send-total")),
                "topics": _topics(metric.tags["topic"] for metric in found.find("byte-total")),
            }
        if found.find("assigned-partitions"):
            numbers |= {
                "rxmsgs": int(found.value("records-consumed-total")),
                "topics": _partitions(found, client.high_watermarks()),
                "cgrp": _group(found, client.health().group),
            }
        return numbers


def _brokers(found: odradek.monitoring.Metrics) -> Iterator[tuple[str, dict[str, Any]]]:
    for metric in found.find("request-total"):
        node = metric.tags.get("node-id")
        if node is not None:
            of = {m.name: m.value for m in found.find(group=metric.group, node_id=node)}
            broker = _broker(int(node.removeprefix("node-")), metric.tags["address"], of)
            yield broker["name"], broker


def _broker(number: int, address: str, of: Mapping[str, float]) -> dict[str, Any]:
    learned, sent = number >= 0, int(of["request-total"])
    broker: dict[str, Any] = {
        "name": f"{address}/{number if learned else 'bootstrap'}",
        "nodeid": number if learned else -1,
        "nodename": address,
        "source": "learned" if learned else "configured",
        "state": "UP" if of["connection-count"] else "DOWN" if sent else "INIT",
        "waitresp_cnt": int(of["requests-in-flight"]),
        "tx": sent,
        "rx": int(of["response-total"]),
    }
    average = of["request-latency-avg"]
    if not math.isnan(average):
        broker["rtt"] = {"avg": int(average * 1000), "max": int(of["request-latency-max"] * 1000)}
    return broker


def _topics(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"topic": name, "partitions": {}} for name in names}


def _partitions(
    found: odradek.monitoring.Metrics, ends: dict[odradek.TopicPartition, int | None]
) -> dict[str, Any]:
    """Return the statistics of each assigned partition; unknown values are -1."""
    topics = _topics(topic for topic, _ in ends)
    lags = {
        (metric.name, metric.tags["topic"], metric.tags["partition"]): int(metric.value)
        for name in ("records-lag", "committed-lag")
        for metric in found.find(name)
    }
    for (topic, number), end in ends.items():
        topics[topic]["partitions"][str(number)] = {
            "partition": number,
            "desired": True,
            "hi_offset": -1 if end is None else end,
            "consumer_lag": lags.get(("committed-lag", topic, str(number)), -1),
            "consumer_lag_stored": lags.get(("records-lag", topic, str(number)), -1),
        }
    return topics


def _group(
    found: odradek.monitoring.Metrics, group: odradek.monitoring.GroupHealth | None
) -> dict[str, Any]:
    state = "none" if group is None else group.state
    age = found.value("last-rebalance-seconds-ago")
    return {
        "state": "up" if state in _JOIN_STATES else "init",
        "join_state": _JOIN_STATES.get(state, "init"),
        "rebalance_age": 0 if math.isnan(age) else int(age * 1000),
        "rebalance_cnt": int(found.value("rebalance-total")),
        "assignment_size": int(found.value("assigned-partitions")),
    }
