"""The producer's id and epoch (KIP-98), and when the epoch must be bumped (KIP-360).

In: wishes for a bump, whether any batch is in doubt. Out: the identity that batches carry.
R-PR-1: after a batch that may have been written was given up, later ones go under a new epoch, and
only when nothing that was sent under the old one is in doubt any more: so nothing is written twice.
Must not: change the identity while a batch with a sequence is in flight or waits to be retried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from odradek.clients.client_engine import ClientEngine
from odradek.common.backoff import Backoff
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import (
    InvalidProducerEpochError,
    UnknownProducerIdError,
    UnsupportedVersionError,
    error_for,
)
from odradek.metadata.least_loaded_node import Action, Candidate, choose
from odradek.network.flow import START, Flow, Wait
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
        self._retry = Backoff(engine.config.backoff("retry.backoff"), engine.rng)
        self._running = False
        self.current = NONE
        self.bumping = False
        self.bumps = 0
        self.next_try = math.inf

    def request_bump(self, why: str) -> None:
        """From now on no new sequence is given until the epoch is bumped."""
        if not self.bumping:
            self.bumping = True
            self._engine.events.emit(
                self._engine.now, "retry", what="producer epoch", error=why, attempt=self.bumps + 1
            )

    def usable(self, now: float) -> bool:
        """Whether batches may be sent; starts the request for an id or epoch when it is time."""
        if self.current != NONE and not self.bumping:
            return True
        if self.current != NONE and not self._settled():
            return True  # retries go on under the old epoch until nothing is in doubt
        if not self._running and now >= self._retry.until:
            self._running = True
            self._engine.start(self._obtain())
        self.next_try = self._retry.until if not self._running else math.inf
        return False

    def _obtain(self) -> Flow[None]:
        now = yield START
        try:
            response = yield from self._ask(now)
            if response.error_code:
                raise error_for(response.error_code, "InitProducerId")
            self.current = (response.producer_id, response.producer_epoch)
            self.bumps += self.bumping
            self.bumping = False
            self._retry.succeeded()
        except KafkaError as error:
            self._failed(error)
        finally:
            self._running = False
            self._engine.network.changed.notify()

    def _failed(self, error: KafkaError) -> None:
        now = self._engine.now
        if isinstance(error, (InvalidProducerEpochError, UnknownProducerIdError)):
            self.current = NONE  # nothing is in doubt, so a wholly new id is as good
        elif isinstance(error, UnsupportedVersionError) or not (
            error.retriable or error.refresh_metadata
        ):
            self._engine.end(error, "broken", error=f"{type(error).__name__}: {error}")
            return
        until = self._retry.failed(now)
        self._engine.events.emit(
            now,
            "retry",
            what="InitProducerId",
            error=f"{type(error).__name__}: {error}",
            attempt=self._retry.failures,
            backoff=until - now,
        )

    def _ask(self, now: float) -> Flow[InitProducerIdResponse]:
        """Any broker may answer; the least loaded one is asked."""
        network, metadata = self._engine.network, self._engine.metadata
        deadline = now + network.request_timeout
        while True:
            snapshot = metadata.snapshot
            addresses = snapshot.addresses() if snapshot is not None else []
            candidates = [
                Candidate(
                    a,
                    c,
                    c is not None and c.suspect,
                    math.inf,
                    network.states.state(a).last_dial,
                    network.next_dial_at(a, now),
                )
                for a in addresses
                for c in [network.connection(a)]
            ]
            choice = choose(candidates, now, dial_at=-math.inf)
            if choice.action is Action.USE and choice.candidate is not None:
                break
            if choice.action is Action.DIAL and choice.candidate is not None:
                network.ready(choice.candidate.address, now)
            if now >= deadline:
                raise self._engine.timeout("producer id", now)
            until = min(deadline, choice.until) if choice.until > now else deadline
            now = yield Wait((network.changed, metadata.changed), until)
        producer_id, epoch = self.current
        body = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=2**31 - 1,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        connection = choice.candidate.connection
        assert connection is not None  # noqa: S101  # Action.USE says so
        reply = network.send(connection, body, now)
        yield Wait((reply,))
        return cast("InitProducerIdResponse", reply.result())
