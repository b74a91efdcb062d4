"""Check the options of a query for its driver and tasks.

In: the options that Spark passes (names in any case). Out: a checked `SourceOptions`, which holds
passwords and keys as `Secret`: tasks receive them by pickle, and they are never printed. Must not:
connect, or print a value of `kafka.*` (it may be a secret). Names and meanings are in
`option_table`; unknown options are errors with a suggestion.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.common.config import CONSUMER, PRODUCER
from odradek.common.options.group import GROUP_NAMES
from odradek.common.options.table import OPTIONS as CLIENT_OPTIONS
from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.driver.bounds import OffsetSpec, check_batch_bounds, ending_spec, starting_spec
from odradek.spark.options.kafka_settings import (
    CLIENT_ID,
    checked_by_client,
    divided,
    sealed_options,
    suggestion,
)
from odradek.spark.options.option_table import (
    BATCH,
    FROM_SPARK,
    OPTIONS,
    PROTECTED,
    STREAM,
    with_defaults,
)
from odradek.spark.options.option_values import (
    INT_MAX,
    boolean,
    byte_size,
    choice,
    integer_option,
    json_object,
    seconds,
    whole_or_none,
)
from odradek.spark.options.registry_options import (
    is_registry_setting,
    parse_registry_formats,
    registry_settings_of,
    sealed_registry,
)
from odradek.spark.options.topic_names import check_pattern, checked_name, listed_names
from odradek.spark.options.topic_patterns import compiled
from odradek.spark.options.value_options import (
    DROPMALFORMED,
    FAILFAST,
    parse_value_format,
    value_mode,
)
from odradek.spark.values.decoding import Format

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

logger = logging.getLogger("odradek.spark")

DISCOVERY_S = 30.0
"""Maximum number of seconds for which a description of topics is used; errors end it at once."""
GROUP_ID = "group.id"
SAMPLES: Mapping[str, Any] = {
    "max.partition.fetch.bytes": 65536,
    "fetch.max.bytes": 2 << 20,
    "fetch.min.bytes": 1,
}
"""Fetch settings of a client that only samples record sizes (see `byte_rates`)."""
_KNOWN_HERE = {*PROTECTED, *GROUP_NAMES, *SAMPLES, "bootstrap.servers", "client.id"} | {
    "cluster.id.expected",
    "events.dir",
}
"""Settings that the source reads or sets itself."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked options of one query; can be pickled for planners and tasks."""

    kafka: Mapping[str, Any] = field(repr=False)
    """The client's settings, without the prefix; not in repr, as they may contain a secret."""
    topics: tuple[str, ...]
    """Subscribed topics; empty with a pattern."""
    assigned: tuple[TopicPartition, ...] | None
    """The partitions of option assign; None without it."""
    starting: OffsetSpec
    ending: OffsetSpec
    pattern: str | None
    """subscribePattern in Java's language, checked."""
    fail_on_data_loss: bool
    allow_cluster_change: bool
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: float
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    null_timestamps: bool
    """Whether timestamps that Spark can't hold are null."""
    poll_timeout: float
    outage_tolerance: float
    fetch_attempts: int
    retry_interval: float
    discovery_interval: float
    formats: Mapping[str, Format]
    """How keys and values are decoded; those that remain bytes aren't included."""
    drop_malformed: bool
    """Whether records that can't be decoded are dropped instead of becoming null rows."""
    dead_letter_topic: str | None
    """Topic for records that can't be decoded; None without one."""
    commit_group: str | None
    """The group to which finished batches are committed; None without one."""
    pause_file: Path | None
    """While this file exists, no batch begins."""

    def asks_for(self, tp: TopicPartition) -> bool:
        """Return whether the query may read a partition."""
        if self.pattern is not None:
            return compiled(self.pattern).search(tp.topic) is not None
        return tp.topic in self.topics if self.assigned is None else tp in self.assigned

    def resolved(self) -> SourceOptions:
        """Return the same options with schemas looked up in the registry, once per query.

        Raises `SchemaRegistryError` and `OptionError`.
        """
        found = {name: one.resolved() for name, one in self.formats.items()}
        return replace(self, formats=found)

    def decoded_types(self) -> dict[str, DataType]:
        """Return the decoded types of key and value."""
        return {name: one.schema() for name, one in self.formats.items()}

    def producer_config(self) -> dict[str, Any]:
        """Return the dead letter producer's configuration: reader settings that apply to it."""
        stated = checked_by_client(CONSUMER, self.kafka, **{"auto.offset.reset": "none"}).stated
        config = {n: value for n, value in stated.items() if PRODUCER in CLIENT_OPTIONS[n].clients}
        config.setdefault("client.id", CLIENT_ID)
        patience = str(max(1, round(self.outage_tolerance * 1000)))
        return {"delivery.timeout.ms": patience, "max.block.ms": patience, **config}

    def consumer_config(self, expected_cluster: str | None) -> dict[str, Any]:
        """Return a consumer configuration that only accepts the expected cluster."""
        # Readers are no group members; a group.id would only cost a thread.
        config = {name: v for name, v in self.kafka.items() if name not in GROUP_NAMES}
        config["auto.offset.reset"] = "none"
        config.setdefault("client.id", CLIENT_ID)
        if expected_cluster is not None:
            config.setdefault("cluster.id.expected", expected_cluster)
        return config

    def sample_config(self, cluster: str) -> dict[str, Any]:
        """Return the configuration of the client that samples sizes for maxBytesPerTrigger."""
        return {**self.consumer_config(cluster), **SAMPLES}

    def group_config(self, cluster: str) -> dict[str, Any]:
        """Return the configuration of the client that commits for commitOffsets."""
        return {
            **self.consumer_config(cluster),
            GROUP_ID: self.commit_group,
            "enable.auto.commit": False,
        }


def parse_options(given: Mapping[str, Any], query: str) -> SourceOptions:
    """Check the options of a batch or streaming query; every error names its option."""
    given = sealed_registry(sealed_options(given))
    kafka, plain = divided(given, _KNOWN_HERE, PROTECTED)
    limits = _limits_of_batches(plain)
    plain = _refuse_unknown(plain, query)
    texts = with_defaults(plain, OPTIONS)
    if "groupidprefix" in plain:
        kafka.setdefault("client.id", plain["groupidprefix"])
    checked = checked_by_client(CONSUMER, kafka, **{"auto.offset.reset": "none"})
    commit_group = _commit_group(plain, kafka)
    topics, assigned, pattern = _what_to_read(plain)
    dead_letter_topic = _dead_letter_topic(plain, topics, pattern)
    starting = starting_spec(plain, "earliest" if query == BATCH else "latest")
    ending = ending_spec(plain)
    if query == BATCH:
        check_batch_bounds(starting, ending)
    return SourceOptions(
        kafka=kafka,
        topics=topics,
        assigned=assigned,
        starting=starting,
        ending=ending,
        pattern=pattern,
        fail_on_data_loss=boolean(texts, "failOnDataLoss"),
        allow_cluster_change=boolean(texts, "allowClusterChange"),
        include_headers=boolean(texts, "includeHeaders"),
        null_timestamps=choice(texts, "outOfRangeTimestamps", "error", "null") == "null",
        discovery_interval=min(DISCOVERY_S, checked["metadata.max.age.ms"]),
        commit_group=commit_group,
        pause_file=_pause_file(plain),
        formats=_formats(plain, topics),
        drop_malformed=value_mode(plain) == DROPMALFORMED,
        dead_letter_topic=dead_letter_topic,
        min_partitions=whole_or_none(plain, "minPartitions", INT_MAX),
        max_records_per_partition=whole_or_none(plain, "maxRecordsPerPartition"),
        **(limits if query == STREAM else _limits_of_batches({})),
        **_patience(texts),
    )


def _limits_of_batches(plain: Mapping[str, str]) -> dict[str, Any]:
    most = whole_or_none(plain, "maxOffsetsPerTrigger")
    least = whole_or_none(plain, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"option minOffsetsPerTrigger ({least}) is larger than maxOffsetsPerTrigger ({most})"
        )
    size = plain.get("maxbytespertrigger")
    return {
        "max_offsets_per_trigger": most,
        "min_offsets_per_trigger": least,
        "max_bytes_per_trigger": None if size is None else byte_size("maxBytesPerTrigger", size),
        "max_trigger_delay": seconds(
            "maxTriggerDelay", with_defaults(plain, OPTIONS)["maxtriggerdelay"], unit="ms"
        ),
    }


def _patience(texts: Mapping[str, str]) -> dict[str, Any]:
    timeout, interval = "kafkaConsumer.pollTimeoutMs", "fetchOffset.retryIntervalMs"
    attempts = "fetchOffset.numRetries"
    return {
        "poll_timeout": integer_option(timeout, texts[timeout.lower()]) / 1000.0,
        "outage_tolerance": seconds("outageTolerance", texts["outagetolerance"], unit="s"),
        "fetch_attempts": integer_option(attempts, texts[attempts.lower()], INT_MAX),
        "retry_interval": integer_option(interval, texts[interval.lower()], least=0) / 1000.0,
    }


def _pause_file(plain: Mapping[str, str]) -> Path | None:
    text = plain.get("pausefile")
    if text is None:
        return None
    path = Path(text.removeprefix("file://"))
    if not path.is_absolute():
        raise OptionError(
            f"option pauseFile must be an absolute path on the driver's machine, not {text!r:.120}"
        )
    return path


def _commit_group(plain: Mapping[str, str], kafka: Mapping[str, Any]) -> str | None:
    if choice(plain, "commitOffsets", "none", "group") == "none":
        unused = sorted(GROUP_NAMES & kafka.keys())
        if unused:
            logger.warning(
                "settings of a group have no effect, because the readers don't join one (options "
                "kafka.*): %s. To commit offsets to kafka.group.id, set commitOffsets to group",
                ", ".join(unused),
            )
        return None
    group = str(kafka.get(GROUP_ID) or "").strip()
    if not group:
        raise OptionError("option commitOffsets is group, but option kafka.group.id is not set")
    return group


def _formats(plain: Mapping[str, Any], topics: tuple[str, ...]) -> dict[str, Format]:
    settings = registry_settings_of(plain)
    if settings is not None:
        return {**parse_registry_formats(plain, settings, topics)}
    found = parse_value_format(plain)
    return {} if found is None else {"value": found}


def _dead_letter_topic(
    plain: Mapping[str, str], topics: tuple[str, ...], pattern: str | None
) -> str | None:
    if "deadlettertopic" not in plain:
        return None
    if not {"valueformat", "keyformat"} & plain.keys():
        raise OptionError("option deadLetterTopic needs option valueFormat or keyFormat")
    if value_mode(plain) == FAILFAST:
        raise OptionError(
            "option deadLetterTopic can't be combined with valueMode=FAILFAST, which fails at the "
            "first bad record: use PERMISSIVE or DROPMALFORMED"
        )
    name = checked_name("deadLetterTopic", plain["deadlettertopic"].strip())
    if name in topics or (pattern is not None and compiled(pattern).search(name)):
        raise OptionError(
            f"option deadLetterTopic is {name!r}, which the query itself reads: records that "
            "don't fit would be read and written forever. Choose a different topic"
        )
    return name


def _refuse_unknown(plain: Mapping[str, str], query: str) -> dict[str, str]:
    """Return the options that apply to the query; warn of the others, or refuse them."""
    found = {}
    for name, value in sorted(plain.items()):
        option = OPTIONS.get(name)
        if is_registry_setting(name):
            found[name] = value
            continue
        if option is None and name not in FROM_SPARK and not name.startswith("option."):
            raise OptionError(
                f"unknown option {name!r}{suggestion(name, OPTIONS.values())} (settings of the "
                "Kafka client have the prefix kafka., like kafka.fetch.min.bytes)"
            )
        if option is not None and query not in option.queries:
            if not option.warned:
                raise OptionError(f"option {option.name} isn't supported in a {query} query")
            logger.warning("option %s has no effect in a %s query", option.name, query)
        else:
            found[name] = value
    return found


def _what_to_read(
    plain: Mapping[str, str],
) -> tuple[tuple[str, ...], tuple[TopicPartition, ...] | None, str | None]:
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in plain]
    if len(chosen) != 1:
        raise OptionError(
            "exactly one of the options subscribe, subscribePattern and assign must be set, not "
            f"{len(chosen)}; for example .option('subscribe', 'flights')"
        )
    if chosen == ["subscribePattern"]:
        pattern = plain["subscribepattern"].strip()
        check_pattern("subscribePattern", pattern)
        compiled(pattern)
        return (), None, pattern
    if chosen == ["subscribe"]:
        return listed_names("subscribe", plain["subscribe"]), None, None
    partitions: set[TopicPartition] = set()
    for topic, numbers in json_object("assign", plain["assign"]).items():
        if not isinstance(numbers, list) or not all(
            isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers
        ):
            raise OptionError(
                f"option assign: topic {topic!r} needs a list of partition numbers, like "
                '{"flights":[0,1]}'
            )
        partitions.update(TopicPartition(checked_name("assign", topic), n) for n in numbers)
    if not partitions:
        raise OptionError("option assign names no partition")
    return tuple(sorted({tp.topic for tp in partitions})), tuple(sorted(partitions)), None


__all__ = ["BATCH", "STREAM", "SourceOptions", "parse_options"]
