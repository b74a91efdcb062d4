"""Transactional producers of librdkafka and Java with one interface.

In: bootstrap servers, a transactional id. Out: transactions, or `FencedError` once another producer
uses the id. Must not: import Odradek's clients.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, Self

from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from tests.interop.group_members import end_program, java_program
from tests.interop.other_client import settings

PATIENCE = 60
FENCED = ("ProducerFencedException", "InvalidProducerEpochException")


class FencedError(Exception):
    """The other client has been fenced by another producer with its id."""


class Other(Protocol):
    """Producer that writes to partition 0 of topics."""

    def begin(self) -> None: ...

    def write(self, topic: str, *values: str) -> None:
        """Write records, and return once they are acknowledged."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Librdkafkas:
    """Producer of confluent-kafka."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._producer = ConfluentProducer(
            settings(servers, **{"transactional.id": transactional_id})
        )
        self._producer.init_transactions(PATIENCE)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, topic: str, *values: str) -> None:
        for value in values:
            self._producer.produce(topic, value.encode(), partition=0)
        self._producer.flush(PATIENCE)

    def commit(self) -> None:
        try:
            self._producer.commit_transaction(PATIENCE)
        except KafkaException as error:
            found: Any = error.args[0]
            if not (found.fatal() or found.txn_requires_abort()):
                raise
            raise FencedError(str(error)) from error

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE)


class Javas:
    """Java's KafkaProducer in a separate process."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        words = [f"bootstrap.servers={servers}", f"transactional.id={transactional_id}"]
        source = Path(__file__).with_name("TransactionalProducer.java")
        self._process = java_program(source, *words)

    def __enter__(self) -> Self:
        self._hear()  # wait until the producer has its epoch
        return self

    def __exit__(self, *_: object) -> None:
        end_program(self._process)

    def begin(self) -> None:
        self._say("begin")

    def write(self, topic: str, *values: str) -> None:
        self._say("write", topic, *values)

    def offset(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset of partition 0 with the transaction."""
        self._say("offset", group, topic, str(offset))

    def commit(self) -> None:
        self._say("commit")

    def abort(self) -> None:
        self._say("abort")

    def _say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        self._hear()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().split()
        if answer[:1] == ["error"] and answer[1] in FENCED:
            raise FencedError(answer[1])
        assert answer == ["done"], answer
