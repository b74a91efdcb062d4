"""Define the options of the Spark source as a table: names, defaults and meanings.

Out: `OPTIONS`, by which `source_options` reads the user's options, and which docs/configuration.md
shows; `PROTECTED`, the settings that aren't allowed; `FROM_SPARK`, options that Spark adds. Must
not: contain code that reads values.
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
    """One option, as listed in the documentation."""

    name: str
    default: str
    doc: str
    """Complete sentences that can be read on their own."""
    queries: frozenset[str] = BOTH
    own: bool = False
    """Whether the JVM connector lacks the option."""
    warned: bool = False
    """Whether the option only causes a warning in queries not in `queries`, as in the JVM
    connector."""


def with_defaults(plain: Mapping[str, str], options: Mapping[str, SparkOption]) -> dict[str, str]:
    """Return the text of every option: as set in `plain`, or else its default."""
    return {name: plain.get(name, option.default) for name, option in options.items()}


_WHAT = (
    SparkOption(
        "subscribe",
        "–",
        "The topics to read, separated by commas. Exactly one of subscribe, subscribePattern and "
        "assign must be set. Internal topics such as `__consumer_offsets` are read if they are "
        "named (the JVM connector silently returns no rows of them).",
    ),
    SparkOption(
        "subscribePattern",
        "–",
        "A Java regular expression: the query reads every topic whose name contains a match; use "
        "^ and $ to match whole names. New topics are found within 30 s (sooner with a shorter "
        "kafka.metadata.max.age.ms) and after errors. Internal topics never match. Constructs "
        "that Python's regular expressions lack (&&, nested classes, flags after the beginning, "
        "letters of other scripts) are rejected with an error that names them.",
    ),
    SparkOption("assign", "–", 'The partitions to read, as JSON: `{"topic":[0,1]}`.'),
)
_ENDS = (
    SparkOption(
        "startingTimestamp",
        "–",
        "Each partition starts at its first record with this timestamp or a later one "
        "(milliseconds since 1970). Takes precedence over startingOffsetsByTimestamp and "
        "startingOffsets. All three only apply to a new query; a restarted query resumes at the "
        "offsets in its checkpoint.",
    ),
    SparkOption(
        "startingOffsetsByTimestamp",
        "–",
        "A timestamp for each partition (milliseconds since 1970), as JSON: "
        '`{"topic":{"0":1700000000000}}`. Each partition starts at its first record with this '
        "timestamp or a later one. Every partition that is read must be named. Takes precedence "
        "over startingOffsets.",
    ),
    SparkOption(
        "startingOffsetsByTimestampStrategy",
        "error",
        "If a partition has no record with the starting timestamp or a later one: error fails the "
        "query, latest starts at the partition's end.",
    ),
    SparkOption(
        "startingOffsets",
        "stream: latest, batch: earliest",
        "A new query starts at the beginning (earliest), at the end (latest, streams only), or at "
        "the offsets in this JSON, which must name every partition that is read: -2 is earliest, "
        "-1 is latest. The words are also accepted, and they may apply to a whole topic "
        '(`{"topic":"earliest"}`, which the JVM connector rejects). Offsets can be copied '
        "unchanged from a checkpoint of this connector or of the JVM connector, as a line or as a "
        "whole file. Partitions that are added later start at their beginning.",
    ),
    SparkOption(
        "endingTimestamp",
        "–",
        "Each partition is read up to its first record with this timestamp or a later one "
        "(milliseconds since 1970), or to its end if it has none. Takes precedence over "
        "endingOffsetsByTimestamp and endingOffsets.",
        BATCHES,
    ),
    SparkOption(
        "endingOffsetsByTimestamp",
        "–",
        "A timestamp for each partition (milliseconds since 1970), as JSON: "
        '`{"topic":{"0":1700000000000}}`. Each partition is read up to its first record with this '
        "timestamp or a later one. Every partition that is read must be named. Takes precedence "
        "over endingOffsets.",
        BATCHES,
    ),
    SparkOption(
        "endingOffsets",
        "latest",
        "The query reads up to the end (latest), or up to the offsets in this JSON, which must "
        'name every partition that is read: -1 or "latest" is the partition\'s end. A whole '
        'topic can be read to its end with `{"topic":"latest"}`.',
        BATCHES,
    ),
)
_LIMITS = (
    SparkOption(
        "maxOffsetsPerTrigger",
        "no limit",
        "The maximum number of offsets in a micro-batch, distributed over partitions in "
        "proportion to their lag. Shares below one are rounded up, so that small partitions are "
        "not starved. Trigger.Once ignores this limit. A batch query ignores it and logs a "
        "warning, as for maxBytesPerTrigger, minOffsetsPerTrigger and maxTriggerDelay.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "maxBytesPerTrigger",
        "no limit",
        "The approximate maximum size of a micro-batch, in bytes of keys, values and headers "
        "before compression, like 64m or 1g. The driver fetches a few records of the partitions "
        "with the largest lag and estimates with their average size. The estimate is exact if all "
        "records have the same size, and wrong by as much as sizes vary within a batch. While no "
        "sample is available, each offset counts as 1 MiB. Each partition with lag contributes at "
        "least one offset. If maxOffsetsPerTrigger is also set, the smaller limit applies.",
        STREAMS,
        own=True,
        warned=True,
    ),
    SparkOption(
        "minOffsetsPerTrigger",
        "–",
        "A micro-batch waits until this many new offsets are available, but no longer than "
        "maxTriggerDelay. The first batch of a run doesn't wait; with AvailableNow and Once no "
        "batch waits.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "maxTriggerDelay",
        "15m",
        "The longest time that minOffsetsPerTrigger delays a micro-batch, like 90s, 15m or 1h.",
        STREAMS,
        warned=True,
    ),
    SparkOption(
        "minPartitions",
        "one task for each partition",
        "The approximate minimum number of tasks of a batch. If fewer partitions have records to "
        "read, large ranges are split in proportion to their size.",
    ),
    SparkOption(
        "maxRecordsPerPartition",
        "no limit",
        "The maximum number of offsets that a task reads. Larger ranges are split evenly, before "
        "minPartitions applies; this also holds for batch queries from earliest to latest.",
    ),
)
_TRUST = (
    SparkOption(
        "failOnDataLoss",
        "true",
        "With true the query fails if records that it hasn't read yet are lost: a topic or "
        "partition was deleted, the next offset is outside of the log, a new partition doesn't "
        "start at offset 0, or a topic was deleted and recreated (its topic id differs). With "
        "false it logs a warning and continues with the records that exist (a recreated topic is "
        "read from its beginning).",
    ),
    SparkOption(
        "allowClusterChange",
        "false",
        "With true a query continues from its checkpoint even if a different cluster answers (the "
        "checkpoint contains the cluster id). Use it for a mirror with identical offsets. It is "
        "checked when a run of the query starts.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "outageTolerance",
        "10m",
        "Time that the driver and tasks wait for a cluster that doesn't answer, like 90s, 10m or "
        "1h; they log a warning every 30 s. Before the very first answer they wait 20 s, so that "
        "a wrong address is noticed soon.",
        own=True,
    ),
    SparkOption(
        "kafkaConsumer.pollTimeoutMs",
        "120000",
        "A task fails if the brokers answer but its partition returns no records for this many "
        "milliseconds. (The JVM connector's default is spark.network.timeout, also 120 s; Spark "
        "doesn't expose it to Python.)",
    ),
    SparkOption(
        "fetchOffset.numRetries",
        "3",
        "Number of consecutive checks that must find lost records or a missing topic before the "
        "query reacts. It is also the least number of attempts to look up offsets before the query "
        "fails, even if outageTolerance is shorter.",
    ),
    SparkOption(
        "fetchOffset.retryIntervalMs",
        "1000",
        "Milliseconds between two checks or attempts of fetchOffset.numRetries.",
    ),
)
_REST = (
    SparkOption(
        "includeHeaders",
        "false",
        "With true rows have a column headers with the record's headers.",
    ),
    SparkOption(
        "outOfRangeTimestamps",
        "error",
        "The behaviour for a record whose timestamp doesn't fit Spark's column: microseconds in "
        "64 bits, which end in the year 294246 (usually the producer's clock or unit is wrong). "
        "With error the task fails and reports topic, partition, offset and timestamp; with null "
        "the timestamp is null and the record is read. Queries without the column timestamp are "
        "not affected.",
        own=True,
    ),
    SparkOption(
        "groupIdPrefix",
        "–",
        "The client.id of the query's clients, as shown in brokers' logs, quotas and metrics, "
        "unless kafka.client.id is set. The readers don't join a consumer group, so they need "
        "neither a group id nor ACLs for one.",
    ),
    SparkOption(
        "commitOffsets",
        "none",
        "With group the offsets of finished micro-batches are also committed to the group "
        "kafka.group.id, so that lag monitoring tools can see them; with none they are not. The "
        "query never reads these offsets, and a failed commit doesn't fail it. Spark reports a "
        "finished batch when it plans the next one, so the group's offsets are those of the "
        "previous batch; a restart commits the last one.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "pauseFile",
        "–",
        "While this file exists on the driver's machine (with any content), the source reports no "
        "new data: the query finishes its current batch and starts no other, so that it can be "
        "stopped between two batches. With availableNow and once this ends the query. A new query "
        "still plans its first batch. If the driver can't check whether the file exists (its "
        "folder isn't searchable), the query fails. `odradek pipeline` stops its queries with "
        "this option.",
        STREAMS,
        own=True,
    ),
    SparkOption(
        "eventsDir",
        "–",
        "Each process of the query appends its client's events to a file in this folder.",
        own=True,
    ),
)

_VALUES = (
    SparkOption(
        "valueFormat",
        "–",
        "With json or avro the column value is decoded to a struct, with the fields of "
        "valueSchema. With schemaRegistryUrl (which also allows protobuf) the schemas come from "
        "the registry. `select value.*` turns the fields into columns. Avro needs `odradek[avro]` "
        "and Protobuf `odradek[schemas]`, on the executors too.",
        own=True,
    ),
    SparkOption(
        "schemaRegistryUrl",
        "–",
        "Decodes values (and keys, with keyFormat) that were written by serializers with this "
        "schema registry. Each Avro or Protobuf value is read with the schema id in it, whatever "
        "version that is; JSON values have the fields of their subject's JSON Schema. Separate "
        "several URLs by commas. Settings of the registry client have the prefix schemaRegistry., "
        "like `schemaRegistry.basic.auth.user.info`. The driver and the executors connect to the "
        "registry.",
        own=True,
    ),
    SparkOption(
        "valueSubject",
        "`<topic>-value`",
        "With schemaRegistryUrl, the subject that provides the reader schema of values: its latest "
        "version when the query is defined. Not used if avroSchema (valueSchema for json) is set. "
        "A query of several topics needs one of these options.",
        own=True,
    ),
    SparkOption(
        "keyFormat",
        "–",
        "With avro, json or protobuf (and schemaRegistryUrl) the column key is decoded as "
        "valueFormat decodes the column value; an Avro key needn't be a record.",
        own=True,
    ),
    SparkOption(
        "keySubject",
        "`<topic>-key`",
        "With keyFormat, the subject that provides the reader schema of keys: its latest version "
        "when the query is defined.",
        own=True,
    ),
    SparkOption(
        "valueMessage",
        "the file's first",
        "With valueFormat=protobuf, the full name of the values' message in the subject's file. A "
        "value whose schema names a different message doesn't fit.",
        own=True,
    ),
    SparkOption(
        "keyMessage",
        "the file's first",
        "With keyFormat=protobuf, the full name of the keys' message in the subject's file.",
        own=True,
    ),
    SparkOption(
        "columnNameOfCorruptRecord",
        "–",
        "With schemaRegistryUrl and PERMISSIVE the value's struct has an additional field of this "
        "name, for example `_corrupt_record`, which holds the bytes of a value that doesn't fit.",
        own=True,
    ),
    SparkOption(
        "valueSchema",
        "–",
        "With valueFormat=json, the fields of decoded values, as DDL (`id bigint, tags "
        "array<string>, at timestamp`) or as the JSON of StructType.json(); a string field "
        "`_corrupt_record` holds the text of values that don't fit. With valueFormat=avro, the "
        "Avro schema that the values were written with, as JSON.",
        own=True,
    ),
    SparkOption(
        "valueMode",
        "PERMISSIVE",
        "With PERMISSIVE a field of a different type than in valueSchema is null, and all fields "
        "are null if a value isn't valid JSON or doesn't match the Avro schema, as in from_json "
        "and from_avro. With DROPMALFORMED a record that doesn't fit is left out. With FAILFAST "
        "the query fails and names the record.",
        own=True,
    ),
    SparkOption(
        "deadLetterTopic",
        "–",
        "Records that don't fit are written unchanged to this topic, with the headers of Kafka "
        "Connect's dead letter queues (`__connect.errors.topic`, `….partition`, `….offset`, "
        "`….exception.message` and others). It changes the default of valueMode to DROPMALFORMED. "
        "A task that is retried writes them again. The topic must exist. The producer uses the "
        "reader's kafka.* settings.",
        own=True,
    ),
    SparkOption(
        "avroSchema",
        "–",
        "The reader schema of values, if it differs from the writer schema: other fields, "
        "defaults, wider types. The same as from_avro's option of this name.",
        own=True,
    ),
    SparkOption(
        "avroWireFormat",
        "plain",
        "With plain a value is a bare Avro record. With confluent the record follows a zero byte "
        "and the schema id in four bytes, as serializers with a schema registry write it. No "
        "registry is contacted.",
        own=True,
    ),
    SparkOption(
        "avroSchemaId",
        "any",
        "With avroWireFormat=confluent, the schema ids that valueSchema is valid for, separated "
        "by commas. A value with a different id doesn't fit.",
        own=True,
    ),
)

OPTIONS: dict[str, SparkOption] = {
    option.name.lower(): option for option in _WHAT + _ENDS + _LIMITS + _TRUST + _VALUES + _REST
}

PROTECTED = {
    "auto.offset.reset": "use startingOffsets; Spark's checkpoint holds the offsets",
    "key.deserializer": "keys are bytes; cast or decode the column",
    "value.deserializer": "values are bytes; cast or decode the column",
    "enable.auto.commit": "Spark's checkpoint holds the offsets; see commitOffsets",
    "interceptor.classes": "they are Java classes, and could change what is read",
}
"""Settings of kafka.* that the JVM connector refuses as well, and what to do instead."""

FROM_SPARK = frozenset(
    ("path", "paths", "owner", "provider", "location", "comment", "is_managed_location", "external")
)
"""Options that Spark adds: load(path), and the reserved properties of a table."""
