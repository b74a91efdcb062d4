"""Hold the requests of one connection that wait for responses, in the order they were sent.

In: sent requests. Out: the request that a response belongs to, those that are overdue, all of them
when the connection ends. Correlation ids are handled here: the response to a cancelled call is
recognized by its id and dropped. Must not: decode.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from odradek.common.errors import KafkaError, MalformedMessageError
from odradek.common.errors.kafka import InvalidRequestError
from odradek.common.sampled import Sampled
from odradek.network.effects import AnyRequest
from odradek.network.failures import in_words
from odradek.network.flow import Completion
from odradek.protocol.message import Message


class InFlightRequest:
    """One request: its content, the time it was sent, and its deadline."""

    __slots__ = (
        "answered", "body", "correlation_id", "deadline", "held", "patience", "reply", "sent_at",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        correlation_id: int,
        body: AnyRequest,
        version: int,
        reply: Completion[Message],
        sent_at: float,
        deadline: float,
        patience: float,
        answered: bool = True,
    ) -> None:
        self.correlation_id = correlation_id
        self.body = body
        self.version = version
        self.reply = reply
        self.sent_at = sent_at
        self.deadline = deadline
        self.patience = patience
        """Seconds for which the broker may hold the response (a fetch's max wait)."""
        self.answered = answered
        """Whether the broker sends a response.

        If not (Produce with acks=0), the request ends once written.
        """
        self.held = False
        """Whether the broker may hold the request for longer without a failure.

        With `acks=all`, it does so until all in-sync replicas have the records, or the controller
        has removed a replica.
        """

    def waited(self, now: float) -> None:
        """Move the sending time and the deadline of a request that was sent after a wait."""
        self.deadline += now - self.sent_at
        self.sent_at = now


class InFlightRequests(Sampled):
    """The queue of one connection's requests, which brokers answer in order.

    The samples are the response times, in seconds.
    """

    __slots__ = ("_next_id", "_queue", "_writing", "deadline", "head")

    def __init__(self) -> None:
        super().__init__()
        self.head: InFlightRequest | None = None
        """The request whose response is expected next.

        If no response is expected, the oldest request that isn't written yet.
        """
        self.deadline = math.inf
        """The earliest deadline of all requests."""
        self._queue: deque[InFlightRequest] = deque()
        self._writing: dict[int, InFlightRequest] = {}
        """Requests without a response, until they are written."""
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._writing)

    def __iter__(self) -> Iterator[InFlightRequest]:
        return iter(self._queue)

    def make(
        self,
        body: AnyRequest,
        version: int,
        now: float,
        *,
        timeout: float,
        patience: float,
        answered: bool = True,
    ) -> InFlightRequest:
        """Return a new request with the next correlation id."""
        request = InFlightRequest(
            self._next_id, body, version, Completion(), now, now + timeout, patience, answered
        )
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return request

    def note(self, request: InFlightRequest) -> None:
        """Note that a request is sent now."""
        if request.answered:
            self._queue.append(request)
            self.head = self._queue[0]
        else:
            self._writing[request.correlation_id] = request
            self.head = self.head or request
        self.deadline = min(self.deadline, request.deadline)

    def _look_again(self) -> None:
        """Update the head and its deadline after requests were removed."""
        queue, writing = self._queue, self._writing
        self.head = queue[0] if queue else next(iter(writing.values())) if writing else None
        self.deadline = min((r.deadline for r in (*queue, *writing.values())), default=math.inf)

    def put_off(self, seconds: float) -> None:
        """Postpone all deadlines, because the broker announced a delay (R-TI-1)."""
        for request in (*self._queue, *self._writing.values()):
            request.deadline += seconds
        self.deadline += seconds

    def patience_ends(self, since: float = math.inf) -> float:
        """Return until when the broker may hold these requests, which delays later ones.

        Only requests that were sent until `since` count.
        """
        found = [r.sent_at + r.patience for r in self._queue if r.sent_at <= since]
        return max(found, default=-math.inf)

    def has_patient(self) -> bool:
        """Return whether there is a request whose response the broker may hold."""
        return any(r.patience > 0.0 for r in self._queue)

    def take(self, correlation_id: int, now: float) -> InFlightRequest:
        """Remove and return the request of a response; raise if it isn't the oldest one."""
        if not self._queue or self._queue[0].correlation_id != correlation_id:
            expected = self._queue[0].correlation_id if self._queue else "none"
            raise MalformedMessageError(
                f"the response has correlation id {correlation_id}, expected {expected}"
            )
        found = self._queue.popleft()
        waited = now - found.sent_at  # from here on, `record` is inlined
        if now >= self._until:
            self._turn(now)
        self._count += 1
        self._whole += waited
        if waited > self._largest:
            self._largest = waited
        if self._queue or self._writing:
            self._look_again()
        else:
            self.head, self.deadline = None, math.inf
        return found

    def written(self, correlation_id: int) -> InFlightRequest | None:
        """Remove a request that was written and has no response, and return it if it existed."""
        found = self._writing.pop(correlation_id, None)
        self._look_again()
        return found

    def give_back(self, correlation_id: int, error: BaseException) -> None:
        """Remove and fail a request that wasn't sent because it couldn't be encoded."""
        found = self._writing.pop(correlation_id, None)
        if found is None:
            found = next((r for r in self._queue if r.correlation_id == correlation_id), None)
            if found is None:
                return
            self._queue.remove(found)
        self._look_again()
        if not found.reply.done:
            known = isinstance(error, KafkaError)
            found.reply.fail(error if known else InvalidRequestError(in_words(error)))

    def clear(self) -> list[InFlightRequest]:
        """Remove and return all requests, in the order they were sent."""
        requests = [*self._queue, *self._writing.values()]
        self._queue.clear()
        self._writing.clear()
        self._look_again()
        return requests
