"""The queries that both connectors run, as data.

A case consists of options; the JVM connector's result (rows, or an error) is compared with
Odradek's. `named` is the option that Odradek's error must name if both connectors reject the query.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from tests.spark.parity_topics import BASE, PREFIX
from tests.volume import WHOLE

PLAIN = {"subscribe": "parity-plain"}


REFUSED_IN_SPARK = tuple(
    f"write: {what}" for what in ("no topic", "a null topic", "a serializer", "overwrite")
)
"""Writes that the sink rejects in `make test` too: one of each kind."""
STREAMS_IN_SPARK = (
    "stream: ten at a time", "stream: ten at a time>again", "stream: once", "stream: ages",
    "stream: ages>again", "stream: into a topic",
)  # fmt: skip
"""Streams that `make test` runs through Spark."""
READ_ON_OLDEST = ("all of a topic", "headers", "committed records", "begin at the end")
"""Reads that `make test` runs through the oldest Spark: rows, headers, a setting and an error."""


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, str]
    named: str = ""
    """If both reject the query: a word that Odradek's message has (Spark's traces have any word).
    """
    kind: str = "batch"
    count_partitions: bool = False
    stricter: bool = False
    """Whether the JVM connector ignores the option and Odradek rejects it."""
    looser: bool = False
    """Whether the JVM connector rejects the query and Odradek runs it as intended."""
    through_spark: bool = False
    """Whether Odradek's source also runs through Spark, not only at its own interface."""
    trigger: dict[str, Any] = field(default_factory=lambda: {"availableNow": True})
    sink: dict[str, Any] | None = None
    sql: str = ""
    mode: str = "append"
    via: str = ""
    """How a kept frame is run: itself, a view of it, or as the static side of a join."""

    @property
    def is_read(self) -> bool:
        return self.kind not in ("kept", "write") and self.sink is None

    @property
    def on_oldest(self) -> bool:
        """Whether the oldest Spark runs the case too, except for writes that the sink rejects.

        `make test` runs only a few batches there: streams, kept frames and writes take a second or
        more each, and the pipeline on the oldest Spark streams and writes too.
        """
        if not WHOLE and self.name not in READ_ON_OLDEST:
            return False
        return self.through_spark and not (self.kind == "write" and self.named)

    @property
    def in_spark(self) -> bool:
        """Whether the case runs through Spark; `make test` selects a part of the cases.

        `test_kept_frames.py` has the kept frames, and `parity_reader` runs every stream; through
        Spark `make test` runs some of the streams and rejected writes.
        """
        left_out = (
            self.kind == "kept"
            or (self.kind == "write" and self.named and self.name not in REFUSED_IN_SPARK)
            or (self.kind == "stream" and self.name not in STREAMS_IN_SPARK)
        )
        return self.through_spark and (WHOLE or not left_out)

    @property
    def is_long(self) -> bool:
        return self.kind == "kept" or (self.kind == "stream" and self.sink is None)

    def for_side(self, side: str, bootstrap: str) -> dict[str, Any]:
        """Return the case as JSON values, in the form that `benchmarks.spark_jvm.queries` reads."""
        options = {"kafka.bootstrap.servers": bootstrap, **self.options}
        options = {
            name: value.replace("SINK", f"{PREFIX}sink-{side}") for name, value in options.items()
        }
        found: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "format": "kafka" if side == "jvm" else "odradek",
            "options": {name: value for name, value in options.items() if value != "(none)"},
        }
        if self.kind == "stream":
            found |= {"trigger": self.trigger, "folder": f"{side}/{self.name.split('>')[0]}"}
            if self.sink is not None:
                target = {"kafka.bootstrap.servers": bootstrap, "topic": f"{PREFIX}sink-{side}"}
                found["sink"] = {**self.sink, "options": target}
        elif self.kind == "kept":
            found["via"] = self.via
        elif self.kind == "write":
            found |= {"sql": self.sql.replace("SINK", f"{PREFIX}sink-{side}"), "mode": self.mode}
        else:
            found["count_partitions"] = self.count_partitions
        return found


def at(topic: str, **offsets: int) -> str:
    """Return JSON with offsets of one topic: `at("plain", p0=3)`."""
    return json.dumps({PREFIX + topic: {name[1:]: n for name, n in offsets.items()}})


def of(topic: str, **more: str) -> dict[str, str]:
    """Return options that read a topic."""
    return {"subscribe": PREFIX + topic, **more}


COMMITTED = {"kafka.isolation.level": "read_committed"}
AT_ONCE = {"fetchOffset.retryIntervalMs": "5"}
"""Makes the JVM connector reject at once, instead of after three attempts a second apart."""

BATCHES = (
    Case("all of a topic", PLAIN, through_spark=True),
    Case("names in any case", {"SUBSCRIBE": "parity-plain", "STARTINGOFFSETS": "EARLIEST"}),
    Case("headers that weren't asked for", of("headers")),
    Case("headers", of("headers", includeHeaders="true"), through_spark=True),
    Case("log append time", {**of("appended"), "includeHeaders": "TRUE"}),
    Case("an empty topic", of("empty")),
    Case("several topics", {"subscribe": " parity-plain, ,parity-headers "}),
    Case("assigned", {"assign": '{"parity-plain":[1,2],"parity-headers":[0]}'}),
    Case("a pattern", {"subscribePattern": "parity-pattern-[a-c]"}, through_spark=True),
    Case("a pattern in a name", {"subscribePattern": "pattern-[a-c]"}),
    Case(
        "from offsets to offsets",
        {**PLAIN, "startingOffsets": at("plain", p0=5, p1=-2, p2=-2),
         "endingOffsets": at("plain", p0=17, p1=-1, p2=-1)},
        through_spark=True,
    ),
    Case("from a timestamp to another",
         {"assign": '{"parity-plain":[0,1]}', "startingTimestamp": str(BASE + 95),
          "endingTimestamp": str(BASE + 205)}),
    Case("from a timestamp that an empty partition lacks",
         {**PLAIN, **AT_ONCE, "startingTimestamp": str(BASE + 95)}, "startingTimestamp"),
    Case(
        "timestamps of each partition",
        {**PLAIN, "startingOffsetsByTimestamp": at("plain", p0=BASE + 100, p1=BASE, p2=BASE),
         "startingOffsetsByTimestampStrategy": "latest",
         "endingOffsetsByTimestamp": at("plain", p0=BASE + 300, p1=BASE + 9999, p2=BASE)},
    ),
    Case("a timestamp goes before offsets",
         {**PLAIN, "startingTimestamp": str(BASE + 90), "startingOffsets": "earliest",
          "startingOffsetsByTimestampStrategy": "LATEST", "endingTimestamp": str(BASE + 150),
          "endingOffsets": at("plain", p0=1, p1=1, p2=0)}),
    Case("offsets by timestamp go before offsets",
         {"assign": '{"parity-plain":[0]}', "startingOffsets": "earliest",
          "startingOffsetsByTimestamp": at("plain", p0=BASE + 350)}),
    Case("nothing is as young",
         {**AT_ONCE, "assign": '{"parity-plain":[0]}', "startingTimestamp": str(BASE + 10**9)},
         "startingTimestamp"),
    Case("nothing is as young, each",
         {**AT_ONCE, "assign": '{"parity-plain":[0]}',
          "startingOffsetsByTimestamp": at("plain", p0=BASE + 10**9)},
         "startingOffsetsByTimestamp"),
    Case("nothing is as young, latest",
         {"assign": '{"parity-plain":[0]}', "startingTimestamp": str(BASE + 10**9),
          "startingOffsetsByTimestampStrategy": "latest"}),
    Case("at least seven tasks", {**PLAIN, "minPartitions": "7"}, count_partitions=True),
    Case("fewer tasks than there are", {**PLAIN, "minPartitions": "1"}),
    # The JVM connector divides ranges before it resolves earliest and latest, Odradek afterwards.
    Case("ten records a task", {**PLAIN, "maxRecordsPerPartition": "10"}),
    Case("ten records a task, known ends",
         {**PLAIN, "maxRecordsPerPartition": "10",
          "startingOffsets": at("plain", p0=0, p1=0, p2=0),
          "endingOffsets": at("plain", p0=40, p1=25, p2=0)},
         count_partitions=True, through_spark=True),
    Case("both limits",
         {**PLAIN, "maxRecordsPerPartition": "10", "minPartitions": "12",
          "startingOffsets": at("plain", p0=0, p1=0, p2=0),
          "endingOffsets": at("plain", p0=40, p1=25, p2=0)}, count_partitions=True),
    Case("ranges known at both ends",
         {**PLAIN, "startingOffsets": at("plain", p0=1, p1=1, p2=0),
          "endingOffsets": at("plain", p0=40, p1=25, p2=0)}),
    Case("many tasks over aborted records",
         {**of("transactions"), **COMMITTED, "minPartitions": "9"}, count_partitions=True),
    Case("aborted records, too", of("transactions"), through_spark=True),
    Case("committed records", {**of("transactions"), **COMMITTED}, through_spark=True),
    Case("records of an open transaction", of("unfinished")),
    Case("up to an open transaction", {**of("unfinished"), **COMMITTED}),
    Case("compacted", of("compacted"), through_spark=True),
    Case("compacted, between offsets that are gone",
         {**of("compacted"), "startingOffsets": at("compacted", p0=3),
          "endingOffsets": at("compacted", p0=18)}),
    Case("without its head", of("headless")),
    Case("from before its head",
         {**of("headless"), "startingOffsets": at("headless", p0=10)}, "failOnDataLoss"),
    Case("from before its head, tolerated",
         {**of("headless"), "startingOffsets": at("headless", p0=10), "failOnDataLoss": "false"}),
    Case("to beyond its end",
         {**of("headless"), "endingOffsets": at("headless", p0=1000),
          "kafkaConsumer.pollTimeoutMs": "500"}, "endingOffsets"),
    Case("limits of streams do nothing", {**PLAIN, "maxOffsetsPerTrigger": "3"}),
    Case("a group id", {**PLAIN, "kafka.group.id": "parity-group"}),
    Case("a prefix of group ids", {**PLAIN, "groupIdPrefix": "parity-prefix"}),
    Case("patience of the driver",
         {**PLAIN, "fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "5"}),
    Case("a client's settings",
         {**PLAIN, "kafka.max.poll.records": "7", "kafka.receive.buffer.bytes": "1048576",
          "kafka.max.partition.fetch.bytes": "100000", "kafka.fetch.max.wait.ms": "50"}),
)  # fmt: skip

REFUSED = (
    Case("nothing to read", {}, "subscribe"),
    Case("two ways to say it", {**PLAIN, "subscribePattern": "a"}, "subscribe"),
    Case("a list and partitions", {**PLAIN, "assign": '{"parity-plain":[0]}'}, "assign"),
    Case("no name", {"subscribe": " , "}, "subscribe"),
    Case("no pattern", {"subscribePattern": " "}, "subscribePattern"),
    Case("a pattern that is none", {"subscribePattern": "["}, "subscribePattern"),
    Case("partitions that aren't JSON", {"assign": "plain-0"}, "assign"),
    Case("partitions without a list", {"assign": '{"parity-plain":{"0":1}}'}, "assign"),
    Case("no address", {**PLAIN, "kafka.bootstrap.servers": "(none)"}, "kafka.bootstrap.servers"),
    Case("a missing topic",
         of("nowhere", **AT_ONCE), "parity-nowhere"),
    *(
        Case(f"kafka.{name}", {**PLAIN, f"kafka.{name}": value}, f"kafka.{name}")
        for name, value in (
            ("auto.offset.reset", "latest"), ("key.deserializer", "x"), ("value.deserializer", "x"),
            ("enable.auto.commit", "true"), ("interceptor.classes", "x"),
        )
    ),
    Case("begin at the end", {**PLAIN, "startingOffsets": "latest"}, "startingOffsets",
         through_spark=True),
    Case("begin at an end",
         {**PLAIN, "startingOffsets": at("plain", p0=0, p1=-1, p2=0)}, "startingOffsets"),
    Case("end at the beginning", {**PLAIN, "endingOffsets": "earliest"}, "endingOffsets"),
    Case("end at a beginning",
         {**PLAIN, "endingOffsets": at("plain", p0=-2, p1=-1, p2=0)}, "endingOffsets"),
    Case("offsets that aren't JSON", {**PLAIN, "startingOffsets": "{nonsense"}, "startingOffsets"),
    Case("an offset that is none",
         {**PLAIN, "startingOffsets": '{"parity-plain":{"0":"x"}}'}, "startingOffsets"),
    Case("an end that isn't JSON", {**PLAIN, "endingOffsets": "later"}, "endingOffsets"),
    Case("too few partitions", {**PLAIN, "startingOffsets": at("plain", p0=0)}, "startingOffsets"),
    Case("too many partitions",
         {**PLAIN, "startingOffsets": at("plain", p0=0, p1=0, p2=0, p3=0)}, "startingOffsets"),
    Case("too few ends", {**PLAIN, "endingOffsets": at("plain", p0=0)}, "endingOffsets"),
    Case("too few timestamps",
         {**PLAIN, **AT_ONCE, "startingOffsetsByTimestamp": at("plain", p0=BASE)},
         "startingOffsetsByTimestamp"),
    Case("different partitions",
         {**PLAIN, "startingOffsets": at("plain", p0=0, p1=0, p2=0),
          "endingOffsets": at("plain", p0=1, p1=1)}, "endingOffsets"),
    Case("begin after the end",
         {**PLAIN, "startingOffsets": at("plain", p0=9, p1=0, p2=0),
          "endingOffsets": at("plain", p0=2, p1=1, p2=0)}, "endingOffsets"),
    Case("timestamps that aren't JSON",
         {**PLAIN, "startingOffsetsByTimestamp": "soon"}, "startingOffsetsByTimestamp"),
    Case("a timestamp that is none", {**PLAIN, "startingTimestamp": "soon"}, "startingTimestamp"),
    Case("an end that is no timestamp", {**PLAIN, "endingTimestamp": "soon"}, "endingTimestamp"),
    Case("an unknown strategy",
         {**PLAIN, "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "guess"},
         "startingOffsetsByTimestampStrategy"),
    Case("no tasks", {**PLAIN, "minPartitions": "0"}, "minPartitions"),
    Case("no records", {**PLAIN, "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
    Case("tasks that are no number", {**PLAIN, "minPartitions": "many"}, "minPartitions"),
    Case("loss that is neither", {**PLAIN, "failOnDataLoss": "maybe"}, "failOnDataLoss"),
    Case("headers that are neither", {**PLAIN, "includeHeaders": "maybe"}, "includeHeaders"),
    Case("patience that is no number",
         {**PLAIN, "kafkaConsumer.pollTimeoutMs": "long"}, "kafkaConsumer.pollTimeoutMs"),
    Case("retries that are no number",
         {**PLAIN, "fetchOffset.numRetries": "some"}, "fetchOffset.numRetries"),
)  # fmt: skip

DIFFERENT = (
    Case("an unknown option", {**PLAIN, "startingOfsets": "earliest"}, "startingOffsets",
         stricter=True),
    Case("a topic as a whole", {**PLAIN, "startingOffsets": '{"parity-plain":"earliest"}'},
         looser=True),
    Case("a name in quotes", {**AT_ONCE, "subscribe": "'parity-plain'"}, "leave out the quotes"),
    Case("a comma too many", {"subscribe": "parity-plain,,"}),
    Case("a timestamp that nothing can hold", of("wild"), "outOfRangeTimestamps"),
)  # fmt: skip

EARLY = {"startingOffsets": "earliest"}


def stream(name: str, options: dict[str, str], named: str = "", **more: Any) -> Case:
    return Case(name, options, named, kind="stream", **more)


STREAMS = (
    stream("stream: a topic", {**PLAIN, **EARLY}, through_spark=True),
    stream("stream: ten at a time", {**PLAIN, **EARLY, "maxOffsetsPerTrigger": "10"},
           through_spark=True),
    stream("stream: once", {**PLAIN, **EARLY, "maxOffsetsPerTrigger": "10"},
           trigger={"once": True}, through_spark=True),
    stream("stream: seven of each log", {"subscribe": "parity-plain,parity-headers", **EARLY,
                                         "maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "5",
                                         "maxTriggerDelay": "10s", "includeHeaders": "true"}),
    stream("stream: from a timestamp",
           {**PLAIN, "startingTimestamp": str(BASE + 200), "startingOffsets": "latest",
            "startingOffsetsByTimestampStrategy": "latest"}),
    stream("stream: committed", {**of("transactions"), **EARLY, **COMMITTED,
                                 "maxOffsetsPerTrigger": "9", "minPartitions": "4"}),
    stream("stream: compacted", {**of("compacted"), **EARLY, "maxOffsetsPerTrigger": "15"}),
    stream("stream: a pattern", {"subscribePattern": "parity-pattern-.", **EARLY}),
    stream("stream: grows", {**of("grown"), **EARLY}, through_spark=True),
    stream("stream: latest", of("fresh", startingOffsets="latest"), through_spark=True),
    stream("stream: ages", {**of("aged"), **EARLY}, through_spark=True),
    stream("stream: ages, tolerated", {**of("aged"), **EARLY, "failOnDataLoss": "false"}),
    stream("stream: is deleted",
           {"subscribe": "parity-doomed", **EARLY, **AT_ONCE}),
    stream("stream: an end", {**PLAIN, "endingOffsets": "latest"}, "endingOffsets"),
    stream("stream: an end in time", {**PLAIN, "endingTimestamp": "1"}, "endingTimestamp",
           stricter=True),
    stream("stream: less than at least",
           {**PLAIN, "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
           "minOffsetsPerTrigger"),
)  # fmt: skip

KEPT = tuple(
    Case(f"kept {name} {via}", options, kind="kept", via=via, through_spark=True)
    for via, name, options in (
        ("frame", "fresh", of("fresh")),
        ("frame", "grown", of("grown", maxRecordsPerPartition="3")),
        ("frame", "aged", of("aged")),
        ("frame", "pattern", {"subscribePattern": "parity-pattern-."}),
        ("view", "fresh", of("fresh")),
        ("static side", "fresh", of("fresh")),
    )
)

AGAIN = (
    *(replace(case, name=f"{case.name}>again") for case in KEPT),
    stream("stream: ten at a time>again", {**PLAIN, **EARLY}, through_spark=True),
    stream("stream: a pattern>again", {"subscribePattern": "parity-pattern-.", **EARLY}),
    stream("stream: grows>again", of("grown"), through_spark=True),
    stream("stream: latest>again", of("fresh", startingOffsets="latest"), through_spark=True),
    stream("stream: ages>again", of("aged"), "failOnDataLoss", through_spark=True),
    stream("stream: ages, tolerated>again", of("aged", failOnDataLoss="false")),
    stream("stream: is deleted>again",
           {"subscribe": "parity-doomed", **AT_ONCE}, "parity-doomed"),
)  # fmt: skip


def write(name: str, sql: str, options: dict[str, str] | None = None, named: str = "",
          **more: Any) -> Case:  # fmt: skip
    return Case(
        name,
        {"topic": "SINK"} if options is None else options,
        named,
        "write",
        sql=sql,
        through_spark=True,
        **more,
    )


HEADERS = (
    "array(named_struct('key', 'a', 'value', cast('1' AS binary)), "
    "named_struct('key', 'b', 'value', cast(NULL AS binary)))"
)
WRITES = (
    write("write: text", "SELECT 'k1' key, 'text' value"),
    write("write: bytes", "SELECT cast('k2' AS binary) key, cast('bytes' AS binary) value"),
    write("write: a hundred keys",
          "SELECT cast(id AS string) key, concat('of a hundred ', id) value FROM range(100)"),
    write("write: only values", "SELECT 'lonely' value"),
    write("write: nulls", "SELECT cast(NULL AS string) value, 'tombstone' key"),
    write("write: a column of topics", "SELECT 'SINK' topic, 'k3' key, 'by column' value", {}),
    write("write: the option goes before the column",
          "SELECT 'parity-nowhere' topic, 'k4' key, 'by option' value"),
    write("write: partitions",
          "SELECT * FROM VALUES (2, 'k5', 'here'), (NULL, 'k6', 'anywhere') "
          "AS t(partition, key, value)"),
    write("write: headers", f"SELECT 'k7' key, 'with headers' value, {HEADERS} headers",
          {"topic": "SINK", "includeHeaders": "true"}),
    write("write: headers without includeHeaders",
          f"SELECT 'k8' key, 'more headers' value, {HEADERS} headers"),
    write("write: no headers",
          f"SELECT 'k9' key, 'null headers' value, if(rand() > 1, {HEADERS}, NULL) headers"),
    write("write: other columns", "SELECT 'k10' key, 'beside others' value, 7 other"),
    write("write: order of columns", "SELECT 'reversed' value, 'k11' key"),
    write("write: no value", "SELECT 'k' key", None, "column 'value' is missing"),
    write("write: no topic", "SELECT 'k' key, 'v' value", {}, "column 'topic' is missing"),
    write("write: a null topic", "SELECT cast(NULL AS string) topic, 'v' value", {},
          "row 0 of this task has a null in column topic"),
    write("write: a number", "SELECT 1 value", None, "column value has type int"),
    write("write: a number as a key", "SELECT 1 key, 'v' value", None,
          "column key has type int"),
    write("write: a text as a partition", "SELECT '0' partition, 'v' value", None,
          "column partition has type string"),
    write("write: a number as a topic", "SELECT 1 topic, 'v' value", {},
          "column topic has type int"),
    write("write: headers that are none", "SELECT 'h' headers, 'v' value", None,
          "column headers has type string"),
    write("write: a serializer", "SELECT 'v' value",
          {"topic": "SINK", "kafka.key.serializer": "x"},
          "option kafka.key.serializer is not supported"),
    write("write: another serializer", "SELECT 'v' value",
          {"topic": "SINK", "kafka.value.serializer": "x"},
          "option kafka.value.serializer is not supported"),
    write("write: no address", "SELECT 'v' value",
          {"topic": "SINK", "kafka.bootstrap.servers": "(none)"},
          "option kafka.bootstrap.servers is missing"),
    write("write: overwrite", "SELECT 'v' value", mode="overwrite",
          named="a topic can't be overwritten"),
    write("write: ignore", "SELECT 'v' value", mode="ignore",
          named='cannot be written in the "Ignore" mode'),
)  # fmt: skip
STREAM_SINK = stream(
    "stream: into a topic", {**of("headers"), **EARLY, "includeHeaders": "true"},
    sink={"columns": ["coalesce(key, 'none') key", "coalesce(value, 'none') value", "headers"]},
    through_spark=True,
)  # fmt: skip

FIRST = (*BATCHES, *REFUSED, *DIFFERENT, *STREAMS, *WRITES, *KEPT, STREAM_SINK)
