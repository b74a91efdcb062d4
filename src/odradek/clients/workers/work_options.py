"""Check the options of workers once, at the API (R-IN-1).

In: the keywords of `Workers` and of `AsyncWorkers`, and their clients' options. Out: values that
can be used together. Must not: know threads or loops.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from odradek.common.arguments import checked_timeout, choice, refusal, topic_name, whole_number
from odradek.common.backoff import ExponentialBackoff
from odradek.common.config import Config
from odradek.common.errors import ArgumentError, ConfigurationError

Ordering = Literal["key", "partition", "unordered"]
KEY, PARTITION = "key", "partition"
MOST_IN_WORK = 10_000


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """Options for processing records; times in seconds."""

    worker: type
    """The class of the workers, for dead letters."""
    concurrency: int
    ordering: str
    max_attempts: int
    retry_on: type[Exception] | tuple[type[Exception], ...]
    backoff: ExponentialBackoff
    dead_letter_topic: str | None
    buffer_records: int
    buffer_bytes: int
    commit_interval: float
    drain_timeout: float


def work_options(given: dict[str, Any], consumers: type, producers: type) -> WorkOptions:
    """Check the arguments of a workers object, and the classes of its consumer and producer."""
    consumer = _config("consumer", given["consumer"], consumers)
    producer = given["producer"]
    producer = None if producer is None else _config("producer", producer, producers)
    _check_consumer(consumer)
    topic = given["dead_letter_topic"]
    topic = None if topic is None else topic_name("dead_letter_topic", topic)
    if (producer is None) is not (topic is None):
        there, lacking = ("producer", "dead_letter_topic")[:: -1 if producer is None else 1]
        raise ConfigurationError(f"{there} needs {lacking} as well: dead letters need both")
    if producer is not None:
        _check_producer(producer)
        if given["producer"]._serializes:  # noqa: SLF001 - a facade
            raise ConfigurationError(
                "the producer of dead letters can't have serializers, because records are written "
                "as the bytes that were read"
            )
    base, top = (
        checked_timeout(given[name], name) for name in ("retry_backoff", "retry_backoff_max")
    )
    drain = checked_timeout(given["drain_timeout"], "drain_timeout")
    most = consumer["max.poll.interval.ms"] / 2
    if drain > most:
        raise ConfigurationError(
            f"drain_timeout must be at most {most:g} s (half of max.poll.interval.ms), not "
            f"{drain:g}: a member that waits longer in a rebalance is removed from the group"
        )
    return WorkOptions(
        type(given["self"]),
        whole_number("concurrency", given["concurrency"], 1, MOST_IN_WORK),
        choice("ordering", given["ordering"], get_args(Ordering)),
        whole_number("max_attempts", given["max_attempts"], 1),
        _errors("retry_on", given["retry_on"]),
        ExponentialBackoff(base, top),
        topic,
        whole_number("buffer_records", given["buffer_records"], 1),
        whole_number("buffer_bytes", given["buffer_bytes"], 1),
        checked_timeout(given["commit_interval"], "commit_interval"),
        drain,
    )


def work_function(given: Any, *, awaited: bool) -> Callable[[Any], Any]:
    """Return the function that processes a record: a coroutine function if it is `awaited`."""
    if not callable(given) or isinstance(given, type):
        raise refusal("work", "a function that takes a record", given)
    call = type(given).__call__
    if inspect.isgeneratorfunction(given) or inspect.isasyncgenfunction(given):
        raise refusal(
            "work",
            "a function that takes a record",
            given,
            "a generator function isn't run: nothing reads its values",
        )
    if (inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(call)) is not awaited:
        if awaited:
            raise refusal("work", "an async function", given, "for a plain function use Workers")
        raise ArgumentError("work must be a plain function; for an async function use AsyncWorkers")
    return given  # type: ignore[no-any-return]


def _config(name: str, client: Any, kind: type) -> Config:
    if not isinstance(client, kind):
        raise refusal(
            name, f"an {kind.__name__}".replace("an C", "a C").replace("an P", "a P"), client
        )
    config: Config = client._calls.config  # type: ignore[attr-defined]  # noqa: SLF001 - a facade
    return config


def _check_consumer(config: Config) -> None:
    if config["group.id"] is None:
        raise ConfigurationError("workers need a consumer with group.id")
    if config["enable.auto.commit"]:
        raise ConfigurationError(
            "workers need a consumer with enable.auto.commit=false: auto-commit would commit "
            "unfinished records; workers commit the finished ones"
        )


def _check_producer(config: Config) -> None:
    if config["transactional.id"] is not None:
        raise ConfigurationError("the producer of dead letters can't have a transactional.id")
    if config["acks"] == 0:
        raise ConfigurationError(
            "the producer of dead letters can't have acks=0: a record only counts as finished "
            "once its dead letter is acknowledged"
        )


def _errors(name: str, given: Any) -> type[Exception] | tuple[type[Exception], ...]:
    kinds = given if isinstance(given, tuple) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise refusal(name, "an exception class, or a tuple of them", kind)
    return kinds
