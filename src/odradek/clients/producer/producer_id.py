"""The producer's id and epoch (KIP-98), and when the epoch must be bumped (KIP-360).

In: wishes for a bump, whether any batch is in doubt. Out: the identity that batches carry.
R-PR-1: after a batch that may have been written was given up, later ones go under a new epoch, and
only when nothing that was sent under the old one is in doubt any more: so nothing is written twice.
Must not: change the identity while a batch with a sequence is in flight or waits to be retried.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.client_engine import ClientEngine
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import (
    InvalidProducerEpochError,
    UnknownProducerIdError,
    error_for,
)
from odradek.network.connection import Connection
from odradek.network.flow import START, Flow
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NONE = (-1, -1)


class ProducerIdentity:
    """Asks a broker for an id, and for a new epoch when one is needed."""

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
            if self._engine.ended is None:
                self._engine.end(error, "broken", error=f"{type(error).__name__}: {error}")
        finally:
            self._running = False
            self._engine.network.changed.notify()


def _check(response: InitProducerIdResponse, _: Connection) -> KafkaError | None:
    return error_for(response.error_code, "InitProducerId") if response.error_code else None
