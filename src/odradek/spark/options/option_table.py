"""The options of the Spark source as a table: names, defaults and meanings, each once.

Out: `OPTIONS`, which `options` reads the user's options by, and docs/configuration.md shows;
`PROTECTED`, the settings that can't be given; `FROM_SPARK`, what Spark adds by itself.
Must not hold code that reads values.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Whole sentences that can stand alone."""
    queries: frozenset[str] = BOTH
    own: bool = False
    """Whether the JVM connector doesn't have it."""
    warned: bool = False
    """Given in another kind of query it is only warned of, as the JVM connector does."""


def with_defaults(plain: Mapping[str, str], options: Mapping[str, SparkOption]) -> dict[str, str]:
    """Return the texts of all options: those that are given, and the defaults of the others."""
    return {name: plain.get(name, option.default) for name, option in options.items()}


_WHAT = (
    SparkOption(
        "subscribe",
        "–",
        "The query reads these topics, with commas between. One of this, subscribePattern and "
        "assign must be given. A topic that Kafka keeps for itself is read if it is named (the JVM "
        "connector gives no rows of it and says nothing).",
    ),
    SparkOption(
        "subscribePattern",
        "–",
        "The query reads the topics whose names this Java regular expression is found in; ^ and $ "
        "tie it to a name's ends. New topics are found within 30 s (sooner with a shorter "
        "kafka.metadata.max.age.ms) and after errors. Topics that Kafka keeps for itself never "
        "match. What Python's expressions lack (&&, classes in classes, flags in the middle, "
        "other scripts' letters) is refused by name.",
    ),
    SparkOption(
        "assign", "–", 'The query reads these partitions, given as JSON: `{"topic":[0,1]}`.'
    ),
)
_ENDS = (
    SparkOption(
        "startingTimestamp",
        "–",
        "Every partition starts at its first record of this time or later, in milliseconds since "
        "1970. It goes before startingOffsetsByTimestamp and startingOffsets. All three count for "
        "a new query only: afterwards the checkpoint says where to go on.",
    ),
    SparkOption(
        "startingOffsetsByTimestamp",
        "–",
        "Each partition starts at its first record of its time or later, in milliseconds since "
        '1970, given as JSON: `{"topic":{"0":1700000000000}}`. It must name every partition that '
        "is read, and goes before startingOffsets.",
    ),
    SparkOption(
        "startingOffsetsByTimestampStrategy",
        "error",
        "Where a partition has no record of the starting time or later, error fails the query and "
        "latest starts at the partition's end.",
    ),
    SparkOption(
        "startingOffsets",
        "stream: latest, batch: earliest",
        "A new query starts at the beginning (earliest), at the end (latest, streams only), or at "
        "the offsets in this JSON, which names every partition that is read: -2 is earliest, -1 "
        'latest, also as words and for a topic as a whole (`{"topic":"earliest"}`, which the JVM '
        "connector refuses). Offsets out of a checkpoint can be copied here as they are, the JVM "
        "connector's and this one's, a line or a whole file. Partitions that join later start at "
        "their beginning.",
    ),
    SparkOption(
        "endingTimestamp",
        "–",
        "Every partition is read up to its first record of this time or later, in milliseconds "
        "since 1970, and a partition without one to its end. It goes before "
        "endingOffsetsByTimestamp and endingOffsets.",
        BATCHES,
    ),
    SparkOption(
        "endingOffsetsByTimestamp",
        "–",
        "Each partition is read up to its first record of its time or later, in milliseconds "
        'since 1970, given as JSON: `{"topic":{"0":1700000000000}}`. It must name every partition '
        "that is read, and goes before endingOffsets.",
        BATCHES,
    ),
    SparkOption(
        "endingOffsets",
        "latest",
        "The query reads up to the end (latest), or up to the offsets in this JSON, which names "
        'every partition that is read: -1 or "latest" is its end. A topic as a whole can be read '
        'to its end, too: `{"topic":"latest"}`.',
        BATCHES,
    ),
)
_LIMITS = (
    SparkOption(
        "maxOffsetsPerTrigger",
        "no limit",
        "A micro-batch has at most this many offsets, shared out over partitions in proportion to "
        "their lag. Shares below one are rounded up, so that a small partition isn't starved. "
        "Trigger.Once reads everything all the same. A batch query warns of this option and of "
        "maxBytesPerTrigger, minOffsetsPerTrigger and maxTriggerDelay.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "maxBytesPerTrigger",
        "no limit",
        "A micro-batch has about this many bytes of keys, values and headers at most (not "
        "compressed), like 64m or 1g. "
        "The driver fetches a few records of the partitions that are furthest behind where the "
        "batch starts and reckons with their average: exact where records are alike, off by as "
        "much as their sizes change within a batch. Where it can't (yet), offsets count as 1 MiB "
        "each. At least one offset of each partition that has any is read. Where "
        "maxOffsetsPerTrigger is given too, the smaller one counts.",
        STREAMS,
        own=True,
        warned=True,
    ),
    SparkOption(
        "minOffsetsPerTrigger",
        "–",
        "A micro-batch waits until this many new offsets are there, at most for maxTriggerDelay. "
        "The first one of a run doesn't wait, and AvailableNow and Once never do.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "maxTriggerDelay",
        "15m",
        "A micro-batch is held back by minOffsetsPerTrigger for at most this time, like 90s, 15m "
        "or 1h.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "minPartitions",
        "one task for each partition",
        "A batch is read by at least about this many tasks: where fewer partitions have something "
        "to read, the large ones are divided in proportion to their size.",
    ),
    SparkOption(
        "maxRecordsPerPartition",
        "no limit",
        "A task reads at most this many offsets: larger ranges are divided evenly, before "
        "minPartitions counts, and also where a batch query says earliest and latest.",
    ),
)
_TRUST = (
    SparkOption(
        "failOnDataLoss",
        "true",
        "With true the query fails when records are gone that weren't read yet: a partition or "
        "topic was deleted, the log ends before or begins after the next offset, a partition that "
        "joins doesn't begin at 0, or a topic was deleted and made again (told by its id). With "
        "false it warns, and goes on with what is there (a topic that was made again is read from "
        "its beginning).",
    ),
    SparkOption(
        "allowClusterChange",
        "false",
        "With true a query goes on from a checkpoint although another cluster answers (the offsets "
        "hold the cluster's id). It is for a mirror with the same offsets, and is looked at when a "
        "run of the query starts.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "outageTolerance",
        "10m",
        "Driver and tasks wait this long for a cluster that doesn't answer, like 90s, 10m or 1h, "
        "with a line in the log every 30 s. Before the first answer ever they wait 20 s, so that a "
        "wrong address is noticed.",
        own=True,
    ),
    SparkOption(
        "kafkaConsumer.pollTimeoutMs",
        "120000",
        "A task fails when brokers answer but its partition gives nothing for this many "
        "milliseconds. (The JVM connector takes spark.network.timeout, 120 s by default too; Spark "
        "doesn't show it to Python.)",
    ),
    SparkOption(
        "fetchOffset.numRetries",
        "3",
        "This many looks must agree before lost records or a missing topic are believed, and "
        "asking for offsets is tried as often before it fails, however short outageTolerance is.",
    ),
    SparkOption(
        "fetchOffset.retryIntervalMs",
        "1000",
        "Two looks or attempts of fetchOffset.numRetries are this many milliseconds apart.",
    ),
)
_REST = (
    SparkOption(
        "includeHeaders",
        "false",
        "With true rows have the column headers, with a record's headers.",
    ),
    SparkOption(
        "outOfRangeTimestamps",
        "error",
        "A record's timestamp may be one that microseconds in 64 bits can't hold (beyond the year "
        "294246: a clock or a unit was wrong). With error the task then fails and names topic, "
        "partition, offset and timestamp; with null the timestamp is null and the record is read. "
        "A schema without the column timestamp isn't concerned.",
        own=True,
    ),
    SparkOption(
        "groupIdPrefix",
        "–",
        "The query's clients are called this in brokers' logs, quotas and metrics (it is their "
        "client.id), unless kafka.client.id is given. The readers are members of no group, so no "
        "group has to be named, or allowed by an ACL.",
    ),
    SparkOption(
        "commitOffsets",
        "none",
        "With group the offsets of finished micro-batches are also committed to the group "
        "kafka.group.id, for tools that watch lag; with none they aren't. It never fails a query "
        "and is never read. Spark tells a source of a batch's end when it plans the next one, so "
        "the group is one batch late; on a restart it catches up.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "pauseFile",
        "–",
        "While this file is there, on the driver's machine, whatever it holds, the source says "
        "that nothing is new: the query finishes the batch it is in and begins no other, so it can "
        "be stopped between two. For availableNow and once that is the query's end. A new query "
        "plans its first batch all the same. Where nobody can tell whether it is there (a folder "
        "that can't be searched), the query fails. `odradek pipeline` stops its queries by this.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "eventsDir",
        "–",
        "Every process of the query appends its client's events to a file in this folder.",
        own=True,
    ),
)

_VALUES = (
    SparkOption(
        "valueFormat",
        "–",
        "With json or avro the column value is decoded on the way, to a struct as valueSchema "
        "says, or with schemaRegistryUrl (then also protobuf) as a registry does; `select value.*` "
        "makes columns of it. For avro `odradek[avro]` must be installed, on the executors as "
        "well, for protobuf `odradek[schemas]`.",
        own=True,
    ),
    SparkOption(
        "schemaRegistryUrl",
        "–",
        "Avro values, and with keyFormat keys, are read by the schema that each names, as "
        "serializers with this schema registry have written them, whatever version that is; JSON "
        "values have the fields of their subject's JSON Schema. Several URLs have commas between. "
        "Settings of the registry's client have the prefix schemaRegistry., like "
        "`schemaRegistry.basic.auth.user.info`. Driver and executors ask the registry.",
        own=True,
    ),
    SparkOption(
        "valueSubject",
        "`<topic>-value`",
        "With schemaRegistryUrl values are read as the latest version of this subject, as it was "
        "when the query was defined, unless avroSchema (for json valueSchema) is given. A query of "
        "several topics needs one of the two.",
        own=True,
    ),
    SparkOption(
        "keyFormat",
        "–",
        "With avro, json or protobuf, and schemaRegistryUrl, the column key is decoded as the "
        "column value is by valueFormat; in Avro it may be a record or not.",
        own=True,
    ),
    SparkOption(
        "keySubject",
        "`<topic>-key`",
        "With keyFormat keys are read as the latest version of this subject.",
        own=True,
    ),
    SparkOption(
        "valueMessage",
        "the file's first",
        "With valueFormat=protobuf values are this message of the subject's file, by its full "
        "name. A value that its schema calls another message doesn't fit.",
        own=True,
    ),
    SparkOption(
        "keyMessage",
        "the file's first",
        "With keyFormat=protobuf keys are this message of the subject's file.",
        own=True,
    ),
    SparkOption(
        "columnNameOfCorruptRecord",
        "–",
        "With schemaRegistryUrl and PERMISSIVE the struct of a value has one more field of this "
        "name, `_corrupt_record` say, with the bytes of a value that doesn't fit.",
        own=True,
    ),
    SparkOption(
        "valueSchema",
        "–",
        "With valueFormat=json this gives the fields of decoded values, as DDL (`id bigint, tags "
        "array<string>, at timestamp`) or as StructType.json() does; a string field "
        "`_corrupt_record` gets the text of values that don't fit. With valueFormat=avro it is the "
        "Avro schema, as JSON, that the values were written with.",
        own=True,
    ),
    SparkOption(
        "valueMode",
        "PERMISSIVE",
        "With PERMISSIVE fields of another type than in valueSchema are null, and all are where a "
        "value isn't JSON or isn't of the Avro schema, as in from_json and from_avro. With "
        "DROPMALFORMED a record that doesn't fit is no row. With FAILFAST the query fails and "
        "names the record.",
        own=True,
    ),
    SparkOption(
        "deadLetterTopic",
        "–",
        "Records that don't fit are written to this topic as they were, with the headers of "
        "Kafka Connect's dead-letter queues (`__connect.errors.topic`, `….partition`, `….offset`, "
        "`….exception.message` and others). valueMode is DROPMALFORMED then unless it is given. A "
        "task that is tried again writes them again. The topic must exist; the readers' settings "
        "kafka.* are the writer's, too.",
        own=True,
    ),
    SparkOption(
        "avroSchema",
        "–",
        "Values are read as this Avro schema, where it isn't the one that they were written with: "
        "other fields, defaults, wider types. It is from_avro's option of the same name.",
        own=True,
    ),
    SparkOption(
        "avroWireFormat",
        "plain",
        "With plain a value is an Avro record and nothing else. With confluent a zero and the "
        "schema's id in four bytes come before it, as serializers with a schema registry write "
        "them. No registry is asked.",
        own=True,
    ),
    SparkOption(
        "avroSchemaId",
        "any",
        "With avroWireFormat=confluent valueSchema stands for these ids, with commas between. A "
        "value with another id doesn't fit.",
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
