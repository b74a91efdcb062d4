"""The options of the Spark source as a table: names, defaults and meanings, each once.

Out: `OPTIONS`, which `options` reads the user's options by and docs/spark.md is generated from;
`PROTECTED`, the settings that can't be given; `FROM_SPARK`, what Spark adds by itself.
Must not hold code that reads values.
"""

from __future__ import annotations

from dataclasses import dataclass

BATCH, STREAM = "batch", "stream"
BOTH = frozenset((BATCH, STREAM))
STREAMS = frozenset((STREAM,))
BATCHES = frozenset((BATCH,))


@dataclass(frozen=True, slots=True)
class SparkOption:
    """One option as the documentation lists it."""

    name: str
    default: str
    doc: str
    queries: frozenset[str] = BOTH
    own: bool = False
    """Whether the JVM connector doesn't have it."""
    warned: bool = False
    """Given in another kind of query it is only warned of, as the JVM connector does."""


_WHAT = (
    SparkOption(
        "subscribe",
        "–",
        "Topics, with commas between. One of this, subscribePattern and assign must be given. A "
        "topic that Kafka keeps for itself is read if it is named (the JVM connector gives no rows "
        "of it and says nothing).",
    ),
    SparkOption(
        "subscribePattern",
        "–",
        "A Java regular expression that a topic's name has to contain; ^ and $ tie it to the "
        "name's ends. New topics are found within 30 s (sooner with a shorter "
        "kafka.metadata.max.age.ms) and after errors. Topics that Kafka keeps for itself never "
        "match. What Python's expressions lack (&&, classes in classes, flags in the middle, "
        "other scripts' letters) is refused by name.",
    ),
    SparkOption("assign", "–", 'Partitions as JSON: `{"topic":[0,1]}`.'),
)
_ENDS = (
    SparkOption(
        "startingTimestamp",
        "–",
        "Milliseconds since the epoch: every partition starts at its first record of that time or "
        "later. Goes before the two options below. For a new query only, like them: afterwards "
        "the checkpoint says where to go on.",
    ),
    SparkOption(
        "startingOffsetsByTimestamp",
        "–",
        'The same for each partition, as JSON: `{"topic":{"0":1700000000000}}`. Must name every '
        "partition that is read.",
    ),
    SparkOption(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What happens where a partition has no record of that time or later: error fails, latest "
        "starts at its end.",
    ),
    SparkOption(
        "startingOffsets",
        "stream: latest, batch: earliest",
        "earliest, latest (streams only), or JSON with an offset for every partition that is "
        "read: -2 is earliest, -1 latest, also as words and for a topic as a whole "
        '(`{"topic":"earliest"}`, which the JVM connector refuses). Offsets out '
        "of a checkpoint can be copied here as they are, the JVM connector's and this one's, a "
        "line or a whole file. Partitions that join later start at their beginning.",
    ),
    SparkOption(
        "endingTimestamp",
        "–",
        "Milliseconds since the epoch: the first record of that time or later isn't read any "
        "more. A partition without one is read to its end.",
        BATCHES,
    ),
    SparkOption("endingOffsetsByTimestamp", "–", "The same for each partition, as JSON.", BATCHES),
    SparkOption(
        "endingOffsets",
        "latest",
        'latest, or JSON with an offset for every partition (-1 or "latest" is its end), or latest '
        'for a topic as a whole: `{"topic":"latest"}`.',
        BATCHES,
    ),
)
_LIMITS = (
    SparkOption(
        "maxOffsetsPerTrigger",
        "no limit",
        "Offsets in one micro-batch, at most, shared out over partitions in proportion to their "
        "lag. Shares below one are rounded up, so that a small partition isn't starved. "
        "Trigger.Once reads everything all the same. A batch query warns of it and of the next "
        "three.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "maxBytesPerTrigger",
        "no limit",
        "Bytes of keys, values and headers in one micro-batch (not compressed), like 64m or 1g. "
        "The driver fetches a few records of the partitions that are furthest behind where the "
        "batch starts and reckons with their average: exact where records are alike, off by as "
        "much as their sizes change within a batch. Where it can't (yet), offsets count as 1 MiB "
        "each. At least one offset of each partition that has any. The smaller one counts where "
        "maxOffsetsPerTrigger is given too.",
        STREAMS,
        own=True,
        warned=True,
    ),
    SparkOption(
        "minOffsetsPerTrigger",
        "–",
        "A micro-batch waits for at least that many new offsets, at most for maxTriggerDelay. "
        "The first one of a run doesn't wait, and AvailableNow and Once never do.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "maxTriggerDelay",
        "15m",
        "How long minOffsetsPerTrigger can hold a micro-batch back.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "minPartitions",
        "one task for each partition",
        "Tasks in a batch, about: where there are fewer partitions with something to read, the "
        "large ones are divided in proportion to their size.",
    ),
    SparkOption(
        "maxRecordsPerPartition",
        "no limit",
        "Offsets in one task, at most: larger ranges are divided evenly, before minPartitions "
        "counts. Also where a batch query says earliest and latest.",
    ),
)
_TRUST = (
    SparkOption(
        "failOnDataLoss",
        "true",
        "Fail when records are gone that weren't read yet: a partition or topic was deleted, the "
        "log ends before or begins after the next offset, a partition that joins doesn't begin at "
        "0, a topic was made again (told by its id). With false: warn, and go on with what is "
        "there (a topic made again is read from its beginning).",
    ),
    SparkOption(
        "allowClusterChange",
        "false",
        "Go on from a checkpoint although another cluster answers (the offsets hold the cluster's "
        "id). For a mirror with the same offsets; it is looked at when a run of the query starts.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "outageTolerance",
        "10m",
        "How long driver and tasks wait for a cluster that doesn't answer, with a line in the log "
        "every 30 s. Before the first answer ever it is 20 s, so that a wrong address is noticed.",
        own=True,
    ),
    SparkOption(
        "kafkaConsumer.pollTimeoutMs",
        "120000",
        "A task fails when brokers answer but its partition gives nothing for that time. (The "
        "JVM connector takes spark.network.timeout, 120 s by default too; Spark doesn't show it "
        "to Python.)",
    ),
    SparkOption(
        "fetchOffset.numRetries",
        "3",
        "Looks that must agree before lost records or a missing topic are believed, and attempts "
        "before asking for offsets fails, however short outageTolerance is.",
    ),
    SparkOption(
        "fetchOffset.retryIntervalMs", "1000", "The pause between two such looks or attempts."
    ),
)
_REST = (
    SparkOption("includeHeaders", "false", "Add the column headers."),
    SparkOption(
        "outOfRangeTimestamps",
        "error",
        "What becomes of a record's timestamp that microseconds in 64 bits can't hold (beyond the "
        "year 294246: a clock or a unit was wrong). error: the task fails and names topic, "
        "partition, offset and timestamp. null: the timestamp is null and the record is read. A "
        "schema without the column timestamp isn't concerned.",
        own=True,
    ),
    SparkOption(
        "groupIdPrefix",
        "–",
        "What brokers' logs, quotas and metrics call the query's clients (their client.id), "
        "unless kafka.client.id is given. The readers are members of no group, so no group has "
        "to be named, or allowed by an ACL.",
    ),
    SparkOption(
        "commitOffsets",
        "none",
        "group: also commit the offsets of finished micro-batches to the group kafka.group.id, "
        "for tools that watch lag. It never fails a query and is never read. Spark tells a source "
        "of a batch's end when it plans the next one, so the group is one batch behind; on a "
        "restart it catches up.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "pauseFile",
        "–",
        "Path of a file on the driver's machine. While it is there, whatever it holds, the source "
        "says that nothing is new: the query finishes the batch it is in and begins no other, so "
        "it can be stopped between two. For availableNow and once that is the query's end. A new "
        "query plans its first batch all the same. Where nobody can tell whether it is there (a "
        "folder that can't be searched), the query fails. `odradek pipeline` stops its queries by "
        "this.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "eventsDir", "–", "Folder where every process appends its client's events.", own=True
    ),
)

_VALUES = (
    SparkOption(
        "valueFormat",
        "–",
        "json or avro: the column value is decoded on the way, to a struct as option valueSchema "
        "says. select value.* makes columns of it. For avro: pip install 'odradek[avro]', on the "
        "executors as well.",
        own=True,
    ),
    SparkOption(
        "valueSchema",
        "–",
        "json: the fields of decoded values, as DDL (`id bigint, tags array<string>, at "
        "timestamp`) or as StructType.json() gives them. A string field `_corrupt_record` gets the "
        "text of values that don't fit. avro: the Avro schema, as JSON, that the values were "
        "written with.",
        own=True,
    ),
    SparkOption(
        "valueMode",
        "PERMISSIVE",
        "PERMISSIVE: fields of another type than in valueSchema are null, and all are where a "
        "value isn't JSON or isn't of the Avro schema, as in from_json and from_avro. FAILFAST: "
        "the query fails and names the record.",
        own=True,
    ),
    SparkOption(
        "avroSchema",
        "–",
        "The Avro schema to read values as, where it isn't the one that they were written with: "
        "other fields, defaults, wider types. The same as from_avro's option of that name.",
        own=True,
    ),
    SparkOption(
        "avroWireFormat",
        "plain",
        "plain: a value is a record and nothing else. confluent: before it are a zero and the "
        "schema's id in four bytes, as serializers with a schema registry write them. No registry "
        "is asked.",
        own=True,
    ),
    SparkOption(
        "avroSchemaId",
        "any",
        "With avroWireFormat=confluent: the ids, with commas between, that option valueSchema "
        "is for. A value with another id doesn't fit.",
        own=True,
    ),
)

OPTIONS: dict[str, SparkOption] = {
    option.name.lower(): option for option in _WHAT + _ENDS + _LIMITS + _TRUST + _VALUES + _REST
}

PROTECTED = {
    "auto.offset.reset": "use startingOffsets; Spark keeps the offsets",
    "key.deserializer": "keys are bytes; cast or decode the column",
    "value.deserializer": "values are bytes; cast or decode the column",
    "enable.auto.commit": "Spark's checkpoint holds the offsets; see commitOffsets",
    "interceptor.classes": "they are Java classes, and could change what is read",
}
"""Settings of kafka.* that the JVM connector refuses as well, and what to do instead."""

FROM_SPARK = frozenset(
    ("path", "paths", "owner", "provider", "location", "comment", "is_managed_location", "external")
)
"""What Spark adds by itself: load(path), and the reserved properties of a table."""
