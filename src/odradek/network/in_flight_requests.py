"""Hold one connection's requests that wait for a response, in the order they were sent.

In: sent requests. Out: the request to which a response belongs, the earliest deadline, and all
requests when the connection ends. This module compares correlation ids: the response to a cancelled
call is recognized by its id and dropped. Must not: decode responses.
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
    """One request, with the time it was sent, its deadline, and the completion of its response."""

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
        """Seconds for which the broker may hold the response, such as `fetch.max.wait.ms`."""
        self.answered = answered
        """Whether the broker sends a response.

        If not (Produce with acks=0), the request ends when it is written to the socket.
        """
        self.held = False
        """Whether the broker may hold this request for longer without a failure.

        A broker holds a Produce request with `acks=all` until all in-sync replicas have the records
        or have been removed by the controller.
        """

    def waited(self, now: float) -> None:
        """Move the sending time and the deadline of a request that was held back until now."""
        self.deadline += now - self.sent_at
        self.sent_at = now


class InFlightRequests(Sampled):
    """The queue of one connection's requests, which the broker answers in order.

    As a `Sampled`, it contains the response times, in seconds.
    """

    __slots__ = ("_next_id", "_queue", "_writing", "deadline", "head")

    def __init__(self) -> None:
        super().__init__()
        self.head: InFlightRequest | None = None
        """The request whose response is expected next.

        If no request has a response, the oldest one that isn't written to the socket yet.
        """
        self.deadline = math.inf
        """The earliest deadline of all requests."""
        self._queue: deque[InFlightRequest] = deque()
        self._writing: dict[int, InFlightRequest] = {}
        """Requests that have no response, until they are written to the socket."""
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
        """Add a request that is sent now."""
        if request.answered:
            self._queue.append(request)
            self.head = self._queue[0]
        else:
            self._writing[request.correlation_id] = request
            self.head = self.head or request
        self.deadline = min(self.deadline, request.deadline)

    def _look_again(self) -> None:
        """Update `head` and `deadline`, because requests were removed."""
        queue, writing = self._queue, self._writing
        self.head = queue[0] if queue else next(iter(writing.values())) if writing else None
        self.deadline = min((r.deadline for r in (*queue, *writing.values())), default=math.inf)

    def put_off(self, seconds: float) -> None:
        """Postpone all deadlines, because the broker announced a delay (R-TI-1)."""
        for request in (*self._queue, *self._writing.values()):
            request.deadline += seconds
        self.deadline += seconds

    def patience_ends(self, since: float = math.inf) -> float:
        """Return the time until which the broker may hold requests, and so delay later requests.

        Requests that were sent after `since` are ignored.
        """
        found = [r.sent_at + r.patience for r in self._queue if r.sent_at <= since]
        return max(found, default=-math.inf)

    def has_patient(self) -> bool:
        """Return whether the broker may hold the response of some request."""
        return any(r.patience > 0.0 for r in self._queue)

    def take(self, correlation_id: int, now: float) -> InFlightRequest:
        """Remove and return the request of a response; raise if it isn't the oldest one."""
        if not self._queue or self._queue[0].correlation_id != correlation_id:
            expected = self._queue[0].correlation_id if self._queue else "none"
            raise MalformedMessageError(
                f"the response has correlation id {correlation_id}, expected {expected}"
            )
        found = self._queue.popleft()
        waited = now - found.sent_at  # the lines below are `record`, inlined
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
        """Remove and return a request that has no response and was written; None if unknown."""
        found = self._writing.pop(correlation_id, None)
        self._look_again()
        return found

    def give_back(self, correlation_id: int, error: BaseException) -> None:
        """Remove a request that couldn't be encoded and so wasn't sent; fail its reply."""
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
        """Remove and return all requests in order, first those that have a response."""
        requests = [*self._queue, *self._writing.values()]
        self._queue.clear()
        self._writing.clear()
        self._look_again()
        return requests
