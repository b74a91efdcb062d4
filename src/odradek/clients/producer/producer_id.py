"""The producer's id (KIP-98), and under which epoch each partition goes on.

In: partitions that begin, or whose identity has ended. Out: the id and epoch that their batches
carry. R-PR-1: if a batch that may have been written is given up, its partition goes on under the
next epoch, from sequence 0, so that its leader refuses what comes late. No broker is asked for it:
without a transactional id, InitProducerId gives a new *id*, which fences nothing. Leaders keep ids
and epochs by partition, and so do we; a new id is needed only when no epoch is left. A producer
without idempotence has no id: its options say so, or the brokers don't know InitProducerId and
`enable.idempotence` wasn't given. Must not: know batches, or what is in doubt.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, TypeAlias

from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.client_engine import ClientEngine
from odradek.clients.producer.partition_queue import NOBODY
from odradek.clients.refusals import is_refusal
from odradek.common.backoff import ExponentialBackoff
from odradek.common.config import Config
from odradek.common.errors import AuthorizationError, KafkaError
from odradek.common.kafka_errors import UnsupportedVersionError, error_for
from odradek.common.types import TopicPartition
from odradek.network.connection import Connection
from odradek.network.flow import START, Flow
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from odradek.clients.producer.transaction_manager import TransactionManager

logger = logging.getLogger("odradek")

CURE = (
    "these brokers have no idempotent producers: leave enable.idempotence out, or set it to false, "
    "to write to them all the same (what is sent again may then be written twice)"
)
WITHOUT = (
    "the producer goes on without idempotence, which these brokers don't have (%s): what is sent "
    "again after a lost answer may be written twice, and out of order unless "
    "max.in.flight.requests.per.connection=1; enable.idempotence=true makes this an error, "
    "enable.idempotence=false says that it is meant"
)

NONE = NOBODY
LAST_EPOCH = 32767
"""Epochs are 16 bits on the wire."""
QUICK = 0.02
"""Seconds before a request is repeated that met the end of the last transaction, as in Java; twice
as long each further time (KIP-580)."""


def quick_backoff(config: Config) -> ExponentialBackoff:
    """The waits after CONCURRENT_TRANSACTIONS, which is over in milliseconds."""
    most = config.backoff("retry.backoff").maximum
    return ExponentialBackoff(min(QUICK, most), most)


class ProducerIdentity:
    """Asks a broker for an id, and counts epochs by itself.

    `TransactionManager` has the same attributes and methods for the sender, without a docstring
    where these say it.
    """

    transactional_id: str | None = None
    newest_produce: int | None = None
    """The newest version of Produce that may be used; None: any."""
    dropping: KafkaError | None = None
    """What batches without a sequence end with, while they aren't sent."""
    abandons = False
    """Meanwhile those with one end so as well, those in flight included."""

    def __init__(self, engine: ClientEngine) -> None:
        self._engine = engine
        self._running = False
        self.current = NONE
        """The id and epoch that a partition begins with."""
        self.bumps = 0
        self.idempotent: bool = engine.config["enable.idempotence"]
        """Whether batches get an id, an epoch and a sequence."""
        self.lacking: str | None = None
        """Why there is no idempotence although the options allow it: what the brokers lack."""

    def request_bump(self, why: str) -> None:
        """A batch was given up that may be written, or that leaves a gap: an identity ended."""
        self.bumps += 1
        self._engine.events.emit(
            self._engine.now, "retry", what="producer epoch", error=why, attempt=self.bumps
        )

    def usable(self) -> bool:
        """Whether batches may be sent; starts what is needed for that."""
        if self.idempotent and self.current == NONE:
            self._ask()
        return self.current != NONE or not self.idempotent

    def admits(self, partition: TopicPartition) -> bool:
        """Whether a partition may be written to; starts what is needed for that."""
        return True

    def go_on(self, identity: tuple[int, int], *, ended: bool) -> tuple[int, int] | None:
        """What a partition's next batch carries, whose last one carried `identity`: after its end
        the next epoch, or after the last epoch another id. None: that isn't known yet.
        """
        if identity == NONE:
            return self.current
        if not ended:
            return identity
        producer_id, epoch = identity
        if epoch < LAST_EPOCH:
            return producer_id, epoch + 1
        if producer_id != self.current[0]:
            return self.current
        self._ask()
        return None

    def begin_above(self, epoch: int) -> bool:
        """Let new partitions begin under a higher epoch than this one; say whether they do."""
        if not self.idempotent:
            return True  # whatever is kept of a partition says nothing
        if epoch >= LAST_EPOCH:
            return False
        self.current = self.current[0], max(self.current[1], epoch + 1)
        return True

    def failed(self, error: KafkaError) -> None:
        """A batch has ended with an error: others don't depend on it."""

    def _ask(self) -> None:
        if not self._running:
            self._running = True
            self._engine.start(self._obtain())

    def _obtain(self) -> Flow[None]:
        yield START
        body = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=2**31 - 1,
            producer_id=NONE[0],
            producer_epoch=NONE[1],
        )
        call = AnyBrokerCall(self._engine, "producer id", math.inf)
        try:
            response = yield from call.ask(
                lambda _: body, InitProducerIdResponse, _check, ours=True
            )
            self.current = (response.producer_id, response.producer_epoch)
        except UnsupportedVersionError as error:
            self._do_without(error)
        except KafkaError as error:
            if isinstance(error, AuthorizationError):
                error.of(self._engine.network.user)
            if self._engine.ended is None:
                self._engine.end(error, "broken", error=f"{type(error).__name__}: {error}")
        finally:
            self._running = False
            self._engine.network.changed.notify()

    def _do_without(self, error: UnsupportedVersionError) -> None:
        """The brokers know no InitProducerId: go on without, unless idempotence was asked for."""
        engine = self._engine
        if engine.ended is not None:
            return
        if "enable.idempotence" in engine.config.given:
            lacking = UnsupportedVersionError(f"{error}; {CURE}")
            engine.end(lacking, "broken", error=f"{type(error).__name__}: {lacking}")
            return
        self.idempotent, self.lacking = False, str(error)
        engine.events.emit(engine.now, "without", what="idempotence", error=str(error))
        logger.warning(WITHOUT, error)


SenderIdentity: TypeAlias = "ProducerIdentity | TransactionManager"
"""Whose batches these are: an idempotent producer's, or those of one id's transactions."""


class _NoIdNowError(KafkaError):
    """An error that says nothing about this producer: any broker may be asked again."""

    retriable = True


def _check(response: InitProducerIdResponse, _: Connection) -> KafkaError | None:
    if not response.error_code:
        return None
    error = error_for(response.error_code, "InitProducerId").needing("IDEMPOTENT_WRITE")
    if error.retriable or is_refusal(error):
        return error
    logger.warning("no producer id: %s; asking on", error)
    return _NoIdNowError(str(error))
