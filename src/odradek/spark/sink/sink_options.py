"""Define and check the options of the Spark sink, with the JVM connector's names.

In: the options from Spark (names in any case). Out: a checked `SinkOptions`, which holds passwords
and keys as `Secret`: tasks get them by pickle, nothing prints them. Must not: connect, or print a
value of `kafka.*` (it may be a secret).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.common.config import PRODUCER, Config
from odradek.common.errors import UnsupportedOptionError
from odradek.serialization.registry.settings import registry_settings
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.kafka_settings import (
    CLIENT_ID,
    checked_by_client,
    divided,
    sealed_options,
    suggestion,
)
from odradek.spark.options.option_table import BATCH, BATCHES, SparkOption, with_defaults
from odradek.spark.options.option_table import OPTIONS as SOURCE_OPTIONS
from odradek.spark.options.option_values import (
    INT_MAX,
    boolean,
    integer_option,
    seconds,
    whole_or_none,
)
from odradek.spark.options.registry_options import (
    is_registry_setting,
    registry_settings_of,
    require_package,
    sealed_registry,
)
from odradek.spark.options.topic_names import checked_name
from odradek.spark.sink.encoding import Encoding

logger = logging.getLogger("odradek.spark")

ENCODINGS = ("avro", "json", "protobuf")
"""Formats of keys and values."""
AT_LEAST_ONCE, EXACTLY_ONCE, ATOMIC = "at_least_once", "exactly_once", "exactly_once_atomic"


OPTIONS: dict[str, SparkOption] = {
    option.name.lower(): option
    for option in (
        SparkOption(
            "topic",
            "column `topic`",
            "The topic for all rows; the column `topic` is then ignored. Without this option the "
            "column is required, and a null in it is an error.",
        ),
        SparkOption(
            "includeHeaders",
            "false",
            "With true the column `headers` is required. If it exists, it is written in any case, "
            "as by the JVM connector.",
        ),
        SparkOption(
            "delivery",
            AT_LEAST_ONCE,
            "With at_least_once no row of a finished batch is missing, but a retried task writes "
            "its rows again; with exactly_once consumers with isolation.level=read_committed see "
            "each row once. exactly_once_atomic is rejected; the error says why.",
            own=True,
        ),
        SparkOption(
            "outageTolerance",
            "10m",
            "Time that a task waits for a cluster that doesn't answer, like 90s, 10m or 1h; it "
            "logs a warning every 30 s. In a batch query and in a stream's first batch it waits "
            "20 s for the first answer, so that a wrong address is noticed soon.",
            own=True,
        ),
        SparkOption(
            "transactionalIdPrefix",
            "odradek",
            "With exactly_once, the prefix of the transactional ids, and of the consumer groups in "
            "which the sink stores its progress. It is part of the query's identity and must stay "
            "the same.",
            own=True,
        ),
        SparkOption(
            "sinkName",
            "sink",
            "With exactly_once, a name that distinguishes several writes of one query or job. "
            "Dashes are not allowed, so that two names can't result in the same transactional id. "
            "It is part of the query's identity and must stay the same.",
            own=True,
        ),
        SparkOption(
            "jobId",
            "–",
            "Required with exactly_once in a batch query: a name that identifies the data. A "
            "second run with the same jobId and batchId is a replay: if the batch was written, it "
            "isn't written again, and different rows are an error.",
            BATCHES,
            own=True,
        ),
        SparkOption(
            "batchId",
            "0",
            "With exactly_once in a batch query, a number that increases with each new write of a "
            "jobId. In foreachBatch `write_batch` sets both.",
            BATCHES,
            own=True,
        ),
        SparkOption(
            "schemaRegistryUrl",
            "–",
            "The registry that holds the schemas for valueFormat and keyFormat. Settings of its "
            "client have the prefix schemaRegistry., as for the source. The executors connect to "
            "it.",
            own=True,
        ),
        SparkOption(
            "valueFormat",
            "–",
            "With avro, json or protobuf the column value is a struct and is written in that "
            "format after its schema id, as serializers with a schema registry write it. No "
            "schema is registered.",
            own=True,
        ),
        SparkOption(
            "valueSubject",
            "`<topic>-value`",
            "With valueFormat, the subject of the values' schema. Required without option topic.",
            own=True,
        ),
        SparkOption(
            "valueVersion",
            "the latest",
            "With valueFormat, the version of the subject that values are written with. With "
            "exactly_once it is required (or avroSchema), because a replayed batch must be "
            "identical.",
            own=True,
        ),
        SparkOption(
            "avroSchema",
            "the latest version",
            "With valueFormat=avro, the schema that values are written with; the subject must "
            "contain it.",
            own=True,
        ),
        SparkOption(
            "valueMessage",
            "the file's first",
            "With valueFormat=protobuf, the full name of the values' message in the "
            "subject's file.",
            own=True,
        ),
        SparkOption(
            "keyFormat",
            "–",
            "With avro, json or protobuf the column key is written as valueFormat writes the "
            "column value; with avro and json it may be a struct, a string or a number.",
            own=True,
        ),
        SparkOption(
            "keySubject",
            "`<topic>-key`",
            "With keyFormat, the subject of the keys' schema.",
            own=True,
        ),
        SparkOption(
            "keyVersion",
            "the latest",
            "With keyFormat, the version of the subject that keys are written with. Required with "
            "exactly_once.",
            own=True,
        ),
        SparkOption(
            "keyMessage",
            "the file's first",
            "With keyFormat=protobuf, the full name of the keys' message in the subject's file.",
            own=True,
        ),
        SOURCE_OPTIONS["eventsdir"],
    )
}

PROTECTED = {
    "key.serializer": "keys are written as the bytes of the column key",
    "value.serializer": "values are written as the bytes of the column value",
    "interceptor.classes": "interceptors are Java classes",
    "transactional.id": "delivery=exactly_once creates one for each task",
}
RAISED = {"acks": ("0", "1"), "enable.idempotence": ("false",)}
"""Values that are ignored with a warning, because the sink always uses stronger ones."""
RETRIES, IN_FLIGHT = "retries", "max.in.flight.requests.per.connection"
MOST_IN_FLIGHT = 5
"""Maximum number of requests in flight with idempotence; a larger number, from a query without
idempotence, is ignored."""
PATIENCE = ("delivery.timeout.ms", "max.block.ms")
"""Producer options that `outageTolerance` sets."""

MEMORY, LARGEST = "buffer.memory", "max.request.size"

_OWN = {*PROTECTED, *RAISED, *PATIENCE, RETRIES, IN_FLIGHT, MEMORY, LARGEST} | {
    "bootstrap.servers",
    "client.id",
    "transaction.timeout.ms",
}

FROM_SPARK = frozenset(("path", "paths", "checkpointlocation", "queryname", "mode", "outputmode"))
"""Options that Spark adds."""

FIRST_CONTACT, NEXT_CONTACT = 20.0, 3.0
"""Seconds to wait for the cluster's very first response: in a task's first attempt, and in each
later attempt.

Spark makes four attempts by default, and a wrong address must be reported within half a minute."""
BUFFER = 64 << 20
"""Maximum size of rows buffered in a task's producer, unless kafka.buffer.memory is set."""
TRANSACTION_TIMEOUT = "900000"
"""Default of brokers' transaction.max.timeout.ms (15 min): no batch takes longer."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked options of one query; can be pickled for planners and tasks."""

    kafka: Mapping[str, Any] = field(repr=False)
    """The client's settings, without the prefix; not in repr, as they may contain a secret."""
    topic: str | None
    delivery: str
    include_headers: bool
    outage_tolerance: float
    transactional_id_prefix: str
    sink_name: str
    job_id: str | None
    batch_id: int
    encodings: Mapping[str, Encoding]
    """How keys and values are written; those that are bytes already aren't included."""

    def first_contact(self, attempt: int) -> float:
        """Return the seconds to wait for a cluster that has never answered before."""
        return min(self.outage_tolerance, NEXT_CONTACT if attempt else FIRST_CONTACT)

    def producer_config(self, transactional_id: str | None = None) -> dict[str, Any]:
        """Return the producer's configuration; timeouts are as long as the tolerated outage."""
        config = dict(self.kafka)
        config.setdefault("client.id", CLIENT_ID)
        config[MEMORY] = _room(config)
        patience = str(max(1, round(self.outage_tolerance * 1000)))
        config.setdefault("delivery.timeout.ms", patience)
        config.setdefault("max.block.ms", patience)
        if transactional_id is not None:
            config["transactional.id"] = transactional_id
            config.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT)
        return config


def parse_sink_options(given: Mapping[str, Any], query: str) -> SinkOptions:
    """Check the options of a batch or streaming write; every error names its option."""
    given = sealed_registry(sealed_options(given))
    kafka, plain = divided(given, _OWN, PROTECTED)
    _refuse_unknown(plain, query)
    _drop_limits(kafka)
    checked_by_client(PRODUCER, kafka, **{MEMORY: _room(kafka)})
    texts = with_defaults(plain, OPTIONS)
    found = SinkOptions(
        kafka=kafka,
        topic=_topic(plain),
        delivery=_delivery(texts),
        include_headers=boolean(texts, "includeHeaders"),
        outage_tolerance=seconds("outageTolerance", texts["outagetolerance"], "s"),
        transactional_id_prefix=_name(texts, "transactionalIdPrefix"),
        sink_name=_sink_name(texts),
        job_id=_name(plain, "jobId") if "jobid" in plain else None,
        batch_id=integer_option("batchId", texts["batchid"], least=0),
        encodings=_encodings(plain, _delivery(texts)),
    )
    _tell_of_less_patience(found)
    if query == BATCH and found.delivery == EXACTLY_ONCE and found.job_id is None:
        raise OptionError(
            "option delivery=exactly_once in a batch query needs option jobId, a name that "
            "identifies the data: a batch query has no identity in Spark, so a repeated run can't "
            "be distinguished from a new one (a stream is identified by its checkpoint). Set a "
            "jobId that stays the same when the job is run again, or write with "
            "delivery=at_least_once."
        )
    return found


def _encodings(plain: Mapping[str, Any], delivery: str) -> dict[str, Encoding]:
    """Return how keys and values are written with a registry."""
    settings = registry_settings_of(plain)
    if settings is None:
        for option in ("valueFormat", "avroSchema", "valueVersion", "keyVersion"):
            if option.lower() in plain:
                raise OptionError(f"option {option} needs option schemaRegistryUrl")
        return {}
    registry_settings(settings)  # only checks the settings
    found: dict[str, Encoding] = {}
    for name in ("key", "value"):
        if f"{name}format" in plain:
            found[name] = _encoding(name, plain, settings, delivery)
            continue
        for option in (f"{name}Subject", f"{name}Version", f"{name}Message"):
            if option.lower() in plain:
                raise OptionError(f"option {option} needs option {name}Format")
    if not found:
        raise OptionError("option schemaRegistryUrl needs option valueFormat or keyFormat")
    return found


def _encoding(
    name: str, plain: Mapping[str, Any], settings: Mapping[str, Any], delivery: str
) -> Encoding:
    given = str(plain[f"{name}format"]).strip().lower()
    if given not in ENCODINGS:
        raise OptionError(
            f"option {name}Format must be {' or '.join(ENCODINGS)}, not {given!r:.80}"
        )
    topic = _topic(plain)
    subject = str(plain.get(f"{name}subject", "")).strip() or (topic and f"{topic}-{name}")
    if not subject:
        raise OptionError(
            f"rows go to the topics named in column topic, so option {name}Subject must name the "
            f"subject of the {name}s' schema"
        )
    version = whole_or_none(plain, f"{name}Version", INT_MAX)
    text = str(plain.get("avroschema", "")).strip() if name == "value" else ""
    if text and given != "avro":
        raise OptionError("option avroSchema needs valueFormat=avro")
    if text and version is not None:
        raise OptionError("options avroSchema and valueVersion can't be combined")
    message = str(plain.get(f"{name}message", "")).strip()
    if message and given != "protobuf":
        raise OptionError(f"option {name}Message needs {name}Format=protobuf")
    if not text and version is None and delivery == EXACTLY_ONCE:
        also = " or avroSchema" if given == "avro" and name == "value" else ""
        raise OptionError(
            f"option {name}Format={given} with delivery=exactly_once needs option "
            f"{name}Version{also}: a subject's latest version may change, but a replayed batch "
            "must be identical"
        )
    require_package(given, f"option {name}Format is {given}")
    if given == "json":
        from odradek.spark.sink.json_encoding import JsonEncoding

        return JsonEncoding(settings, subject, version)
    if given == "protobuf":
        from odradek.spark.sink.protobuf_encoding import ProtobufEncoding

        return ProtobufEncoding(settings, subject, version, message or None)
    from odradek.spark.sink.avro_encoding import AvroEncoding

    return AvroEncoding(settings, subject, version, text or None)


def _tell_of_less_patience(found: SinkOptions) -> None:
    """Warn of a Kafka option, perhaps copied from elsewhere, that overrides `outageTolerance`."""
    config = Config(PRODUCER, found.producer_config())
    for name in PATIENCE:
        if config[name] < found.outage_tolerance:
            logger.warning(
                "option kafka.%s=%s: the sink tolerates outages for this time only, not for "
                "option outageTolerance (%g s)",
                name,
                found.kafka[name],
                found.outage_tolerance,
            )


def _refuse_unknown(plain: Mapping[str, str], query: str) -> None:
    for name in sorted(plain):
        option = OPTIONS.get(name)
        if option is not None:
            if query not in option.queries:
                raise OptionError(f"option {option.name} isn't supported in a {query} write")
        elif is_registry_setting(name):
            continue
        elif name not in FROM_SPARK and not name.startswith("option."):
            raise OptionError(
                f"unknown option {name!r} of the sink{suggestion(name, OPTIONS.values())} "
                "(settings of the Kafka client have the prefix kafka., like kafka.linger.ms)"
            )


def _room(kafka: Mapping[str, Any]) -> str:
    """Return the value of `buffer.memory`.

    A row of the maximum size must fit. If only max.request.size is set, the memory is at least as
    large; if only the memory is set, the client itself lowers max.request.size.
    """
    most = str(kafka.get(LARGEST, "")).strip()
    usual = str(max(BUFFER, int(most) if most.isdecimal() else 0))
    return str(kafka.get(MEMORY, usual))


def _drop_limits(kafka: dict[str, Any]) -> None:
    """Drop settings that the sink overrides (acks, retries, in-flight limit); log a warning."""
    for name, weaker in RAISED.items():
        if str(kafka.get(name, "")).strip().lower() in weaker:
            logger.warning(
                "option kafka.%s=%s has no effect: the sink always writes idempotently with "
                "acks=all",
                name,
                kafka.pop(name),
            )
    if str(kafka.get(RETRIES, "")).strip().isdecimal():
        logger.warning(
            "option kafka.%s=%s has no effect: the sink retries until option outageTolerance has "
            "passed",
            RETRIES,
            kafka.pop(RETRIES),
        )
    count = str(kafka.get(IN_FLIGHT, "")).strip()
    if count.isdecimal() and int(count) > MOST_IN_FLIGHT:
        logger.warning(
            "option kafka.%s=%s has no effect: the sink writes idempotently, with at most %d "
            "requests in flight",
            IN_FLIGHT,
            kafka.pop(IN_FLIGHT),
            MOST_IN_FLIGHT,
        )


def _topic(plain: Mapping[str, str]) -> str | None:
    if "topic" not in plain:
        return None
    name = plain["topic"].strip()
    if not name:
        raise OptionError("option topic is empty: name a topic, or remove the option")
    return checked_name("topic", name)


def _delivery(texts: Mapping[str, str]) -> str:
    text = texts["delivery"].strip().lower()
    if text == ATOMIC:
        raise UnsupportedOptionError(
            "option delivery=exactly_once_atomic is not supported: one transaction for a whole "
            "micro-batch would need all tasks to write with one producer id. Spark's Python API "
            "doesn't tell a task about a stage that is retried or about another task that writes "
            "to the same partition, so rows could be lost or duplicated unnoticed. Use "
            "exactly_once: each sink partition of a batch becomes visible on its own, every row "
            "once."
        )
    if text not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise OptionError(
            f"option delivery must be {AT_LEAST_ONCE} or {EXACTLY_ONCE}, not {text!r:.80}"
        )
    return text


def _sink_name(texts: Mapping[str, str]) -> str:
    """Read option sinkName, which must not contain dashes.

    Otherwise jobId `etl-a` with sinkName `b`, and jobId `etl` with `a-b`, would share ids.
    """
    name = _name(texts, "sinkName")
    if name == "ledger":
        raise OptionError(
            "option sinkName must not be 'ledger', which is reserved for the sink itself"
        )
    if "-" in name:
        raise OptionError(
            f"option sinkName must not contain dashes: {name!r}. Dashes join it to the query id "
            "or jobId in the transactional id, so two jobs could get the same one. Use dots or "
            "underscores."
        )
    return name


def _name(texts: Mapping[str, str], name: str) -> str:
    text = texts[name.lower()].strip()
    if not _NAME.fullmatch(text):
        raise OptionError(
            f"option {name} must be 1 to 100 letters, digits, dots, dashes or underscores, not "
            f"{text!r:.120}"
        )
    return text
