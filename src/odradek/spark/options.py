"""Options of the Spark source: each stands here once, with the JVM connector's name and meaning.

In: the options that Spark hands over (names in any case). Out: a checked `SourceOptions`, which
holds passwords and keys as `Secret`: tasks get them by pickle, nothing prints them.
Must not: connect, or print a value of `kafka.*` (it may be a secret).
Unknown options are errors with a suggestion; what a later release brings says so by name.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.common.config import CONSUMER, Config
from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.common.group_options import GROUP_OPTIONS
from odradek.common.spellings import sealed
from odradek.common.types import TopicPartition
from odradek.spark.offsets import EARLIEST, LATEST, Positions, is_own, positions_from_json
from odradek.spark.problems import OptionError

logger = logging.getLogger("odradek.spark")

BATCH, STREAM = "batch", "stream"
PREFIX = "kafka."
BOTH = frozenset((BATCH, STREAM))


CLIENT_ID = "odradek-spark"
"""What brokers' logs and events call Spark's clients unless `kafka.client.id` says otherwise."""


@dataclass(frozen=True, slots=True)
class SparkOption:
    """One option as the documentation lists it."""

    name: str
    default: str
    doc: str
    queries: frozenset[str] = BOTH


OPTIONS: dict[str, SparkOption] = {
    option.name.lower(): option
    for option in (
        SparkOption("subscribe", "–", "Topics, with commas between. Either this or assign."),
        SparkOption("assign", "–", 'Partitions as JSON: {"topic":[0,1]}.'),
        SparkOption(
            "startingOffsets",
            "stream: latest, batch: earliest",
            "earliest, latest, or JSON with an offset for every partition (-2 earliest, -1 "
            "latest). For a new query only: afterwards the checkpoint says where to go on.",
        ),
        SparkOption(
            "endingOffsets",
            "latest",
            "latest, or JSON with an offset for every partition (-1 latest).",
            frozenset((BATCH,)),
        ),
        SparkOption(
            "failOnDataLoss",
            "true",
            "Fail when records are gone that weren't read yet, or when a topic was deleted and "
            "made anew; with false: warn, and go on with what is there (a topic made anew is "
            "read from its beginning).",
        ),
        SparkOption(
            "maxOffsetsPerTrigger",
            "no limit",
            "Offsets in one micro-batch, at most, split over partitions in proportion to their "
            "lag. A batch query ignores it with a warning, as with the JVM connector.",
        ),
        SparkOption("includeHeaders", "false", "Add the column headers."),
        SparkOption(
            "kafkaConsumer.pollTimeoutMs",
            "120000",
            "A task fails when brokers answer but its partition gives nothing for so long.",
        ),
        SparkOption(
            "outageTolerance",
            "5m",
            "How long driver and tasks wait for a cluster that doesn't answer (before the first "
            "answer ever it is 25 s, so that a wrong address is noticed). Like 90s, 5m or 1h.",
        ),
        SparkOption("eventsDir", "–", "Folder where every process appends its client's events."),
    )
}

LATER = {
    name.lower(): name
    for name in (
        "subscribePattern",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "maxBytesPerTrigger",
        "minPartitions",
        "maxRecordsPerPartition",
        "groupIdPrefix",
        "commitOffsets",
        "allowClusterChange",
    )
}

PROTECTED = {
    "auto.offset.reset": "use startingOffsets; Spark keeps the offsets",
    "key.deserializer": "keys are bytes; cast or decode the column",
    "value.deserializer": "values are bytes; cast or decode the column",
    "enable.auto.commit": "Spark's checkpoint holds the offsets",
    "interceptor.classes": "they are Java classes, and could change what is read",
}
"""Settings of kafka.* that the JVM connector refuses as well, and what to do instead."""

FROM_SPARK = frozenset(
    ("path", "paths", "owner", "provider", "location", "comment", "is_managed_location", "external")
)
"""What Spark adds by itself: load(path), and the reserved properties of a table."""

LONG_MAX = 2**63 - 1
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """startingOffsets or endingOffsets: one bound for all partitions, or an offset for each."""

    option: str
    bound: int | None = None
    """LATEST or EARLIEST; None where `offsets` says it for each partition."""
    offsets: Positions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of one query; plain data, so it travels to planners and tasks."""

    kafka: Mapping[str, Any] = field(repr=False)
    """The pass-through, without the prefix; not in repr, since it may hold a secret."""
    topics: tuple[str, ...]
    assigned: tuple[TopicPartition, ...] | None
    """The partitions of option assign; None with subscribe."""
    starting: OffsetSpec
    ending: OffsetSpec
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    include_headers: bool = False
    poll_timeout: float = 120.0
    outage_tolerance: float = 300.0

    def consumer_config(self, expected_cluster: str | None) -> dict[str, Any]:
        """Build the configuration of a client that refuses every cluster but the expected one."""
        config = dict(self.kafka)
        config["auto.offset.reset"] = "none"
        config.setdefault("client.id", CLIENT_ID)
        if expected_cluster is not None:
            config.setdefault("cluster.id.expected", expected_cluster)
        return config


def sealed_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the secrets among `kafka.*` wrapped; names in small letters."""
    options = {name.lower(): value for name, value in given.items()}
    kafka = sealed({n.removeprefix(PREFIX): v for n, v in options.items() if n.startswith(PREFIX)})
    return options | {PREFIX + name: value for name, value in kafka.items()}


def parse_options(given: Mapping[str, Any], query: str) -> SourceOptions:
    """Check the options of a batch or a stream query; every error names its option."""
    options = given = sealed_options(given)
    kafka = {n.removeprefix(PREFIX): v for n, v in options.items() if n.startswith(PREFIX)}
    plain = {n: v for n, v in options.items() if not n.startswith(PREFIX)}
    _refuse_unknown(plain, query)
    if "eventsdir" in plain:
        kafka["events.dir"] = plain["eventsdir"]
    _check_kafka(kafka)
    topics, assigned = _what_to_read(plain)
    starting = _offset_spec(
        plain, "startingOffsets", "earliest" if query == BATCH else "latest", EARLIEST
    )
    ending = _offset_spec(plain, "endingOffsets", "latest", LATEST)
    if query == BATCH:
        _check_batch_bounds(starting, ending)
    limit = None
    if "maxoffsetspertrigger" in plain:
        limit = _whole("maxOffsetsPerTrigger", plain["maxoffsetspertrigger"])
        if query == BATCH:
            logger.warning("maxOffsetsPerTrigger has no effect in a batch query")
    return SourceOptions(
        kafka=kafka,
        topics=topics,
        assigned=assigned,
        starting=starting,
        ending=ending,
        fail_on_data_loss=_boolean(plain, "failOnDataLoss", default=True),
        max_offsets_per_trigger=limit if query == STREAM else None,
        include_headers=_boolean(plain, "includeHeaders", default=False),
        poll_timeout=_whole(
            "kafkaConsumer.pollTimeoutMs", plain.get("kafkaconsumer.polltimeoutms", "120000")
        )
        / 1000.0,
        outage_tolerance=_duration("outageTolerance", plain.get("outagetolerance", "5m")),
    )


def _refuse_unknown(plain: Mapping[str, str], query: str) -> None:
    for name in sorted(plain):
        option = OPTIONS.get(name)
        if option is not None:
            if query not in option.queries:
                raise OptionError(f"option {option.name} isn't for a {query} query")
        elif name in LATER:
            raise UnsupportedFeatureError(f"option {LATER[name]} isn't in this release yet")
        elif name not in FROM_SPARK and not name.startswith("option."):
            known = {**{key: o.name for key, o in OPTIONS.items()}, **LATER}
            known["kafka.bootstrap.servers"] = "kafka.bootstrap.servers"
            candidates = [*difflib.get_close_matches(name, known, n=1)]
            if not candidates:
                # bootstrap.servers without its prefix is the slip that everybody makes once.
                candidates = difflib.get_close_matches(f"kafka.{name}", known, n=1, cutoff=0.85)
            hint = f"; did you mean {known[candidates[0]]}?" if candidates else ""
            raise OptionError(
                f"there is no option {name!r}{hint} (settings of the Kafka client itself are "
                "given as kafka.<name>)"
            )


def _check_kafka(kafka: Mapping[str, Any]) -> None:
    for name, instead in PROTECTED.items():
        if name in kafka:
            raise OptionError(f"option kafka.{name} can't be set: {instead}")
    for name in GROUP_OPTIONS.keys() & kafka.keys():
        raise UnsupportedFeatureError(
            f"in the options kafka.*: {name}: consumer groups of Spark's readers aren't in this "
            "release yet (Spark's checkpoint holds the offsets)"
        )
    if not kafka.get("bootstrap.servers", "").strip():
        raise OptionError("option kafka.bootstrap.servers is missing: give at least one host:port")
    try:
        Config(CONSUMER, {**kafka, "auto.offset.reset": "none"})
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(f"in the options kafka.*: {error}") from error
    except ConfigurationError as error:
        raise OptionError(f"in the options kafka.*: {error}") from error


def _what_to_read(
    plain: Mapping[str, str],
) -> tuple[tuple[str, ...], tuple[TopicPartition, ...] | None]:
    chosen = [name for name in ("subscribe", "assign") if name in plain]
    if len(chosen) != 1:
        raise OptionError(
            f"exactly one of the options subscribe and assign must be given, not {len(chosen)}"
        )
    if chosen == ["subscribe"]:
        topics = [topic.strip() for topic in plain["subscribe"].split(",")]
        found = tuple(sorted({topic for topic in topics if topic}))
        if not found:
            raise OptionError("option subscribe names no topic")
        return found, None
    document = _json("assign", plain["assign"])
    partitions: set[TopicPartition] = set()
    for topic, numbers in document.items():
        if not isinstance(numbers, list) or not all(
            isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers
        ):
            raise OptionError(f"option assign: topic {topic!r} needs a list of partition numbers")
        partitions.update(TopicPartition(topic, n) for n in numbers)
    if not partitions:
        raise OptionError("option assign names no partition")
    return tuple(sorted({tp.topic for tp in partitions})), tuple(sorted(partitions))


def _offset_spec(plain: Mapping[str, str], name: str, default: str, least: int) -> OffsetSpec:
    text = plain.get(name.lower(), default).strip()
    bounds = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in bounds:
        return OffsetSpec(name, bounds[text.lower()])
    if not text.startswith("{"):
        raise OptionError(f"option {name} must be earliest, latest or JSON, not {text!r:.80}")
    document = _json(name, text)
    if is_own(document):  # an offset copied from a checkpoint of ours
        document = document.get("o") or {}
    offsets = positions_from_json(document, f"option {name}", least=EARLIEST)
    for tp, offset in sorted(offsets.items()):
        if least == LATEST and offset == EARLIEST:
            raise OptionError(f"option {name}: earliest (-2) can't be the end of {tp}")
    return OffsetSpec(name, None, offsets)


def _check_batch_bounds(starting: OffsetSpec, ending: OffsetSpec) -> None:
    """The JVM connector's rules for batch queries."""
    if starting.bound == LATEST or LATEST in starting.offsets.values():
        raise OptionError("option startingOffsets of a batch query can't be latest (or -1)")
    if ending.bound == EARLIEST:
        raise OptionError("option endingOffsets can't be earliest")
    if starting.bound is None and ending.bound is None:
        if set(starting.offsets) != set(ending.offsets):
            differing = sorted(set(starting.offsets) ^ set(ending.offsets))
            raise OptionError(
                "options startingOffsets and endingOffsets must name the same partitions; only "
                f"one of them names {', '.join(map(str, differing[:10]))}"
            )
        for tp, start in sorted(starting.offsets.items()):
            if 0 <= ending.offsets[tp] < start:
                raise OptionError(
                    f"{tp}: startingOffsets {start} is behind endingOffsets {ending.offsets[tp]}"
                )


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name} isn't JSON: {error}") from None
    if not isinstance(document, dict):
        raise OptionError(f"option {name} must be a JSON object, not {text!r:.80}")
    return document


def _boolean(plain: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = plain.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name} must be true or false, not {text!r}")
    return text == "true"


def _whole(name: str, text: str) -> int:
    value = text.strip()
    if not (value.isascii() and value.isdecimal()) or not 0 < int(value) <= LONG_MAX:
        raise OptionError(f"option {name} must be a whole number above 0, not {text!r}")
    return int(value)


def _duration(name: str, text: str) -> float:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise OptionError(f"option {name} must be a time like 90s, 5m or 1h, not {text!r}")
    return int(match[1]) * _SECONDS[match[2]]
