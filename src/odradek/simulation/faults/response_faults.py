"""Define faults of wrong or late responses, truncated logs and recreated topics.

In: arguments of a schedule. Out: `HOSTILE`, a table that `fault_table` adds to its own. Must not
inject a fault itself; `broker_faults` does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from odradek.common.errors.kafka import ERRORS
from odradek.simulation.brokers import broker_faults
from odradek.simulation.brokers.injected_errors import (
    APIS,
    LIES,
    NOTHING_KNOWN,
    PERHAPS_DONE,
    REFUSABLE,
)
from odradek.simulation.faults.fault_arguments import (
    BROKER,
    FLAG,
    PARTITION,
    TOPIC,
    TOPIC_NAME,
    Act,
    Argument,
    Fault,
    FaultKind,
    Scope,
    is_integer_between,
    is_number,
    seconds,
)

CODES = tuple(sorted(code for code in ERRORS if code != 0))
TRANSACTION_APIS = (
    "AddOffsetsToTxn", "AddPartitionsToTxn", "EndTxn", "InitProducerId", "Produce",
    "TxnOffsetCommit",
)  # fmt: skip
USUAL = (3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 25, 27, 29, 37, 45, 51, 56, 59, 72, 74, 75, 76, 78)
BUSY = ("Produce", "Produce", "Produce", "Fetch", "Metadata", "InitProducerId", "ListOffsets")


def _draw_api(rng: random.Random, _: Scope) -> str:
    return rng.choice(BUSY) if rng.random() < 0.6 else rng.choice(APIS)


def _draw_code(rng: random.Random, _: Scope) -> int:
    return rng.choice(USUAL) if rng.random() < 0.6 else rng.choice(CODES)


_EVERYBODY = Argument(
    "a broker's id, from 1 on; 0 for all brokers",
    lambda v, scope: is_integer_between(v, 0, scope.brokers),
    lambda rng, scope: rng.randint(1, scope.brokers),
    optional=True,
)
_API = Argument(f"one of {', '.join(REFUSABLE)}", lambda v, _: v in REFUSABLE, _draw_api)
_CODE = Argument("one of Kafka's error codes", lambda v, _: v in CODES, _draw_code)
_DOUBT = Argument(
    "an error code after which it is unknown whether a batch was appended",
    lambda v, _: v in PERHAPS_DONE,
    lambda rng, _: rng.choice((7, 7, 20, 20, *PERHAPS_DONE)),
)
_LATE = Argument(
    "seconds, 0 or more",
    lambda v, _: is_number(v) and 0 <= v < 1e6,
    lambda rng, _: rng.choice([3.0, 5.0, 10.0, 25.0, round(rng.uniform(3.0, 30.0), 3)]),
)
_QUOTA = Argument(
    "seconds, 0 or more",
    lambda v, _: is_number(v) and 0 <= v < 1e6,
    # With default settings, Kafka's quota window is 11 s, so throttle times are up to 11 s.
    lambda rng, _: round(rng.uniform(0.01, rng.choice((1.0, 1.0, 11.0))), 3),
)
_YES = Argument(
    "true or false",
    lambda v, _: isinstance(v, bool),
    lambda rng, _: rng.random() < 0.7,
    optional=True,
)


def _count(low: int, high: int, *, optional: bool = False) -> Argument:
    return Argument(
        "a whole number, 1 or more",
        lambda v, _: is_integer_between(v, 1, 10_000),
        lambda rng, _: rng.randint(low, high),
        optional,
    )


_AFTER = Argument(
    "seconds, 0 or more",
    lambda v, _: is_number(v) and 0 <= v < 1e6,
    lambda rng, _: rng.choice((0.0, 0.05, 1.0, 4.0, 8.0)),
    optional=True,
    drawn=False,
)
_SHARE = Argument(
    "a share, 0 to 1",
    lambda v, _: is_number(v) and 0 <= v <= 1,
    lambda rng, _: round(rng.random(), 2),
)
_SIZE = Argument(
    "bytes",
    lambda v, _: is_integer_between(v, 1, 1 << 30),
    lambda rng, _: rng.choice((100, 150, 250, 400)),
)
_RELEASE = Argument(
    " or ".join(broker_faults.RELEASES),
    lambda v, _: v in broker_faults.RELEASES,
    lambda rng, _: rng.choice(list(broker_faults.RELEASES)),
)


def _does(name: str) -> Act:
    act = getattr(broker_faults, name)
    return lambda stage, a: act(stage.cluster, **a)


def _to_topic(name: str) -> Act:
    act = getattr(broker_faults, name)
    return lambda stage, a: act(stage.cluster, **{"topic": TOPIC, **a})


def honest(arguments: Mapping[str, Any]) -> bool:
    """Return whether an error makes no false claim: no client can handle false claims correctly."""
    api, code = arguments["api"], arguments["code"]
    if arguments.get("done"):
        if api == "Produce":
            return code in PERHAPS_DONE
        if code in NOTHING_KNOWN.get(api, ()):
            return False
    return code not in LIES.get(api, ())


HOSTILE: dict[str, FaultKind] = {
    "slow_api": FaultKind(
        "delay the responses of one API; 0 seconds end the delay",
        {"api": _API, "seconds": _LATE, "i": _EVERYBODY}, _does("slow_api"), 3,
    ),
    "answer_error": FaultKind(
        "answer the next requests of an API with an error; with `done` the broker executes them "
        "anyway; with `same` only requests with one and the same batch are affected",
        {"api": _API, "code": _CODE, "count": _count(1, 4), "done": _YES, "same": _YES,
         "i": _EVERYBODY},
        _does("answer_error"), 14, honest,
    ),
    "append_but_refuse": FaultKind(
        "append the next batches, but answer with an error; with `same` only one batch is affected",
        {"code": _DOUBT, "count": _count(1, 4), "same": _YES, "i": _EVERYBODY},
        _does("append_but_refuse"), 8,
    ),
    "quota": FaultKind(
        "let a broker throttle its clients in each response, and read nothing for `seconds`",
        {"seconds": _QUOTA, "i": _EVERYBODY}, _does("quota"),
    ),
    "trickle": FaultKind(
        "deliver one byte of a broker's responses each `seconds`, and none of them whole; with "
        "`both` its requests don't arrive either; 0 seconds end it",
        {"seconds": seconds(0.1, 1.9), "both": FLAG, "i": _EVERYBODY}, _does("trickle"), 3,
    ),
    "late_packets": FaultKind(
        "delay the requests on a broker's connections until after those of the next connections",
        {"i": BROKER, "seconds": seconds(0.05, 3.0)}, _does("late_packets"), 3,
    ),
    "late_requests": FaultKind(
        "delay each of the next requests of an API until after its retry",
        {"api": _API, "seconds": seconds(0.05, 3.0), "count": _count(1, 4), "i": _EVERYBODY},
        _does("late_requests"), 3,
    ),
    "release": FaultKind(
        "run a broker with another Kafka version; its connections are closed",
        {"i": BROKER, "name": _RELEASE}, _does("release"), 3,
    ),
    "delete_topic": FaultKind(
        "delete the topic; it is created again when the faults end", {"topic": TOPIC_NAME},
        _to_topic("delete_topic"), 1,
    ),
    "recreate_topic": FaultKind(
        "delete the topic and create it again `after` seconds later",
        {"partitions": _count(1, 2, optional=True), "after": _AFTER, "topic": TOPIC_NAME},
        _to_topic("recreate_topic"), 2,
    ),
    "grow_topic": FaultKind(
        "add partitions to the topic",
        {"count": _count(1, 3), "topic": TOPIC_NAME}, _to_topic("grow_topic"), 2,
    ),
    "unclean_election": FaultKind(
        "let a replica that lacks the newest batches become the leader",
        {"partition": PARTITION, "lost": _count(1, 5)}, _to_topic("unclean_election"), 2,
    ),
    "delete_records": FaultKind(
        "delete the older records of a partition",
        {"partition": PARTITION, "share": _SHARE}, _to_topic("delete_records"), 2,
    ),
    "max_message_bytes": FaultKind(
        "let the topic reject larger batches",
        {"size": _SIZE, "topic": TOPIC_NAME}, _to_topic("max_message_bytes"), 2,
    ),
    "min_insync": FaultKind(
        "let leaders accept batches only while that many replicas are alive",
        {"replicas": _count(1, 3)}, _does("min_insync"), 2,
    ),
}  # fmt: skip


def late_transaction_requests(rng: random.Random, heal_at: float, *, short: bool) -> list[Fault]:
    """Draw faults that delay transactions' requests until after their retries."""
    return [
        Fault(
            round(rng.uniform(0.0, heal_at), 3),
            "late_requests",
            {
                "api": rng.choice(TRANSACTION_APIS),
                "seconds": round(rng.uniform(0.05, rng.choice((0.5, 3.0))), 3),
                "count": rng.randint(1, 3),
            },
        )
        for _ in range(rng.choice((0, 2, 6) if short else (0, 5, 15)))
    ]
