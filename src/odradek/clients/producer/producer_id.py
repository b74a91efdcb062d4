"""Manage the producer's id (KIP-98), and the epoch of each partition.

In: partitions that begin, or whose identity has ended. Out: the id and epoch of their batches.
R-PR-1: if a batch that may have been written fails, its partition continues under the next epoch,
from sequence 0, so that its leader refuses late requests. This needs no request: without a
transactional id, InitProducerId returns a new *id*, which fences nothing. Leaders keep ids and
epochs by partition, and so does this client; a new id is needed only when no epoch is left. A
producer without idempotence has no id: its options say so, or the brokers don't support
InitProducerId and `enable.idempotence` wasn't set. Must not: know batches, or whether they are in
doubt.
"""

from __future__ import annotations

import logging
import math
from typing import Protocol

from odradek.clients.any_broker import AnyBrokerCall, Brokers
from odradek.clients.final_errors import is_refusal
from odradek.common.backoff import ExponentialBackoff
from odradek.common.config import Config
from odradek.common.errors import AuthorizationError, KafkaError
from odradek.common.errors.kafka import UnsupportedVersionError, error_for
from odradek.common.types import TopicPartition
from odradek.network.connection import Connection
from odradek.network.engine import Engine
from odradek.network.flow import START, Flow
from odradek.network.network_client import NetworkClient
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("odradek")

CURE = (
    "these brokers don't support idempotent producers: remove enable.idempotence, or set it to "
    "false, to write without idempotence (retries may then write records twice)"
)
WITHOUT = (
    "the producer continues without idempotence, which these brokers don't support (%s): retries "
    "after a lost response may write records twice, and out of order unless "
    "max.in.flight.requests.per.connection=1. Set enable.idempotence=true to make this an error, "
    "or enable.idempotence=false to silence this warning"
)
ON_A_TOPIC = "a topic (before Kafka 3.0: IDEMPOTENT_WRITE on the cluster)"
"""Resource on which an idempotent producer needs WRITE (KIP-679)."""

NO_IDENTITY = (-1, -1)
"""The id and epoch of batches without a sequence."""
LAST_EPOCH = 32767
"""Epochs are 16 bits on the wire."""
QUICK = 0.02
"""Initial backoff in seconds while the last transaction is ending; doubles with each retry."""


def quick_backoff(config: Config) -> ExponentialBackoff:
    """Return the backoff after CONCURRENT_TRANSACTIONS, a state that lasts for milliseconds."""
    most = config.backoff("retry.backoff").maximum
    return ExponentialBackoff(min(QUICK, most), most)


class SenderIdentity(Protocol):
    """The id and epoch of a producer's batches, for its sender.

    It is a `ProducerIdentity`, or a `TransactionManager` for transactions.
    """

    @property
    def transactional_id(self) -> str | None:
        """The transactional id; None without transactions."""

    @property
    def newest_produce(self) -> int | None:
        """Newest version of Produce that may be used; None: any."""

    @property
    def dropping(self) -> KafkaError | None:
        """Error with which batches without a sequence fail now; None while they may be sent."""

    @property
    def abandons(self) -> bool:
        """Whether `dropping` also applies to batches with a sequence, even those in flight."""

    @property
    def current(self) -> tuple[int, int]:
        """The id and epoch with which a partition begins."""

    @property
    def bumps(self) -> int:
        """Number of new epochs that were needed."""

    @property
    def idempotent(self) -> bool:
        """Whether batches get an id, an epoch and a sequence."""

    def usable(self) -> bool:
        """Return whether batches may be sent; start to obtain an id if necessary."""

    def admits(self, partition: TopicPartition) -> bool:
        """Return whether a partition may be written to; add it to the transaction if necessary."""

    def go_on(self, identity: tuple[int, int], *, ended: bool) -> tuple[int, int] | None:
        """Return the identity of a partition's next batch, after a batch with `identity`.

        Returns None if it isn't known yet. `ended`: `identity` must not be used for new sequences.
        """

    def begin_above(self, epoch: int) -> bool:
        """Let partitions begin under an epoch above `epoch`; return whether that is possible."""

    def request_bump(self, why: str) -> None:
        """Note that a partition needs a new epoch: a failed batch may be written, or left a gap."""

    def failed(self, error: KafkaError) -> None:
        """Note that a batch or record has failed."""


class ProducerIdentity:
    """The `SenderIdentity` of a producer without transactions.

    It requests an id from a broker, and counts epochs by itself.
    """

    transactional_id: str | None = None
    newest_produce: int | None = None
    dropping: KafkaError | None = None
    abandons = False

    def __init__(
        self, engine: Engine, network: NetworkClient, brokers: Brokers, config: Config
    ) -> None:
        self._engine = engine
        self._network = network
        self._brokers = brokers
        self._running = False
        self.current = NO_IDENTITY
        self.bumps = 0
        self.idempotent: bool = config["enable.idempotence"]
        self._insists = "enable.idempotence" in config.given
        self.lacking: str | None = None
        """Feature that the brokers lack, so that there is no idempotence."""

    def request_bump(self, why: str) -> None:
        self.bumps += 1
        self._engine.events.emit(
            self._engine.now, "retry", what="producer epoch", error=why, attempt=self.bumps
        )

    def usable(self) -> bool:
        if self.idempotent and self.current == NO_IDENTITY:
            self._ask()
        return self.current != NO_IDENTITY or not self.idempotent

    def admits(self, partition: TopicPartition) -> bool:
        return True

    def go_on(self, identity: tuple[int, int], *, ended: bool) -> tuple[int, int] | None:
        """Return the next epoch after an identity's end; after the last epoch, another id."""
        if identity == NO_IDENTITY:
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
        if not self.idempotent:
            return True  # there are no sequences
        if epoch >= LAST_EPOCH:
            return False
        self.current = self.current[0], max(self.current[1], epoch + 1)
        return True

    def failed(self, error: KafkaError) -> None:
        """Do nothing: other batches don't depend on the failed one."""

    def _ask(self) -> None:
        if not self._running:
            self._running = True
            self._engine.start(self._obtain())

    def _obtain(self) -> Flow[None]:
        yield START
        body = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=2**31 - 1,
            producer_id=NO_IDENTITY[0],
            producer_epoch=NO_IDENTITY[1],
        )
        call = AnyBrokerCall(self._brokers, "the producer id", math.inf)
        try:
            response = yield from call.ask(
                lambda _: body, InitProducerIdResponse, _check, ours=True
            )
            self.current = (response.producer_id, response.producer_epoch)
        except UnsupportedVersionError as error:
            self._do_without(error)
        except KafkaError as error:
            if isinstance(error, AuthorizationError):
                error.of(self._network.user)
            if self._engine.ended is None:
                self._engine.end(error, "broken", error=f"{type(error).__name__}: {error}")
        finally:
            self._running = False
            self._network.changed.notify()

    def _do_without(self, error: UnsupportedVersionError) -> None:
        """Continue without idempotence, which the brokers don't support, unless it was required."""
        engine = self._engine
        if engine.ended is not None:
            return
        if self._insists:
            lacking = UnsupportedVersionError(f"{error}; {CURE}")
            engine.end(lacking, "broken", error=f"{type(error).__name__}: {lacking}")
            return
        self.idempotent, self.lacking = False, str(error)
        engine.events.emit(engine.now, "without", what="idempotence", error=str(error))
        logger.warning(WITHOUT, error)


class _NoIdNowError(KafkaError):
    """A broker can't assign an id now; another broker is asked."""

    retriable = True


def _check(response: InitProducerIdResponse, _: Connection) -> KafkaError | None:
    if not response.error_code:
        return None
    error = error_for(response.error_code, "InitProducerId").needing("WRITE", on=ON_A_TOPIC)
    if error.retriable or is_refusal(error):
        return error
    logger.warning("InitProducerId failed: %s; the producer retries", error)
    return _NoIdNowError(str(error))
