"""The producer's id and epoch (KIP-98), and when the epoch must be bumped (KIP-360).

In: wishes for a bump, whether any batch is in doubt. Out: the identity that batches carry.
R-PR-1: after a batch that may have been written was given up, later ones go under a new epoch, and
only when nothing that was sent under the old one is in doubt any more: so nothing is written twice.
Must not: change the identity while a batch with a sequence is in flight or waits to be retried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.client_engine import ClientEngine
from odradek.common.backoff import ExponentialBackoff
from odradek.common.config import Config
from odradek.common.errors import AuthorizationError, KafkaError
from odradek.common.kafka_errors import (
    InvalidProducerEpochError,
    UnknownProducerIdError,
    error_for,
)
from odradek.common.types import TopicPartition
from odradek.network.connection import Connection
from odradek.network.flow import START, Flow
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NONE = (-1, -1)
QUICK = 0.02
"""Seconds before a request is repeated that met the end of the last transaction, as in Java; twice
as long each further time (KIP-580)."""


def quick_backoff(config: Config) -> ExponentialBackoff:
    """The waits after CONCURRENT_TRANSACTIONS, which is over in milliseconds."""
    most = config.backoff("retry.backoff").maximum
    return ExponentialBackoff(min(QUICK, most), most)


class Identity(Protocol):
    """Whose batches these are, as the sender sees it: an idempotent producer's, or those of the
    transactions of one id.
    """

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def newest_produce(self) -> int | None:
        """The newest version of Produce that may be used; None: any."""

    @property
    def current(self) -> tuple[int, int]:
        """The id and epoch of batches that get their sequence now."""

    @property
    def bumping(self) -> bool:
        """No sequence is given any more until there is a new epoch."""

    @property
    def bumps(self) -> int: ...

    @property
    def dropping(self) -> KafkaError | None:
        """What batches without a sequence end with, while they aren't sent."""

    @property
    def abandons(self) -> bool:
        """Meanwhile those with one end so as well, those in flight included."""

    def usable(self) -> bool:
        """Whether batches may be sent; starts what is needed for that."""

    def admits(self, partition: TopicPartition) -> bool:
        """Whether a partition may be written to; starts what is needed for that."""

    def request_bump(self, why: str) -> None:
        """A batch was given up that may be written, or that leaves a gap."""

    def failed(self, error: KafkaError) -> None:
        """A batch has ended with an error."""


class ProducerIdentity:
    """Asks a broker for an id, and for a new epoch when one is needed."""

    transactional_id: str | None = None
    newest_produce: int | None = None
    dropping: KafkaError | None = None
    abandons = False

    def __init__(self, engine: ClientEngine, settled: Callable[[], bool]) -> None:
        self._engine = engine
        self._settled = settled
        self._running = False
        self.current = NONE
        self.bumping = False
        self.bumps = 0

    def request_bump(self, why: str) -> None:
        """From now on no new sequence is given until the epoch is bumped."""
        if not self.bumping:
            self.bumping = True
            self._engine.events.emit(
                self._engine.now, "retry", what="producer epoch", error=why, attempt=self.bumps + 1
            )

    def usable(self) -> bool:
        """Whether batches may be sent; starts the request for an id or epoch when it is time."""
        if self.current != NONE and not self.bumping:
            return True
        if self.current != NONE and not self._settled():
            return True  # retries go on under the old epoch until nothing is in doubt
        if not self._running:
            self._running = True
            self._engine.start(self._obtain())
        return False

    def admits(self, partition: TopicPartition) -> bool:
        """Whether a partition may be written to: without transactions, any."""
        del partition
        return True

    def failed(self, error: KafkaError) -> None:
        """A batch has ended with an error: others don't depend on it."""

    def _obtain(self) -> Flow[None]:
        yield START
        producer_id, epoch = self.current
        body = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=2**31 - 1,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        call = AnyBrokerCall(self._engine, "producer id", math.inf)
        try:
            response = yield from call.ask(lambda _: body, InitProducerIdResponse, _check)
            self.current = (response.producer_id, response.producer_epoch)
            self.bumps += self.bumping
            self.bumping = False
        except (InvalidProducerEpochError, UnknownProducerIdError):
            self.current = NONE  # nothing is in doubt, so a wholly new id is as good
        except KafkaError as error:
            if isinstance(error, AuthorizationError):
                error.of(self._engine.network.user)
            if self._engine.ended is None:
                self._engine.end(error, "broken", error=f"{type(error).__name__}: {error}")
        finally:
            self._running = False
            self._engine.network.changed.notify()


def _check(response: InitProducerIdResponse, _: Connection) -> KafkaError | None:
    if not response.error_code:
        return None
    return error_for(response.error_code, "InitProducerId").needing("IDEMPOTENT_WRITE")
