"""Base class of the asyncio clients: calls that are awaited in the caller's event loop.

In: a configuration. Out: `_run`, which executes a call as a coroutine; `close`, `async with`. Must
not: decide what a call does, or differ from `Client` in anything but how it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from odradek.api.base import E, Facade
from odradek.clients.bootstrap_timeout import API_TIMEOUT
from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.client_calls import CLOSE_TIMEOUT
from odradek.network.flow import Flow
from odradek.network.host import LoopHost
from odradek.runtime.hosts.async_caller import carried_out

if TYPE_CHECKING:
    from uuid import UUID

T = TypeVar("T")


class AsyncClient(Facade[E]):
    """Base class of `AsyncProducer`, `AsyncConsumer` and `AsyncAdmin`; not instantiated directly.

    A client belongs to the event loop of its first call. Connections, heartbeats and fetches are
    served in that loop, without a thread, while the program awaits other things. Only tasks of that
    loop may call its methods, except `wakeup()` and `set_sasl_credentials()`, which are
    thread-safe. Cancelling a call leaves the client usable: records that the cancelled task didn't
    receive are returned by the next call.
    """

    @property
    def _loop_host(self) -> LoopHost:
        return self._calls.host  # type: ignore[return-value]  # as `loop_host` makes it

    async def _run(self, flow: CallerFlow[T]) -> T:
        """Execute a call in the running event loop."""
        return await carried_out(flow, self._loop_host)

    async def _end(self, flow: CallerFlow[T]) -> T:
        """Execute a call that closes the client, even after its event loop has ended."""
        return await carried_out(flow, self._loop_host, closing=True)

    async def _call(
        self,
        flow: Callable[[float], Flow[T]],
        timeout: float | None,
        what: str,
        option: str = API_TIMEOUT,
    ) -> T:
        """Run the generator `flow(deadline)`; at the deadline, raise an error with all attempts."""
        return await self._run(self._calls.call(flow, timeout, what, option))

    async def cluster_id(self, timeout: float | None = None) -> str:
        """Return the cluster's id. `timeout` in seconds, default `default.api.timeout.ms`.

        See `Client.cluster_id`.
        """
        snapshot = await self._call(self._engine.snapshot, timeout, "metadata of the cluster")
        return snapshot.cluster_id or ""

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id that a broker has assigned to this client for its pushed metrics (KIP-714).

        See `Client.client_instance_id`.
        """
        return await self._call(self._calls.client_instance_id, timeout, "the id of this client")

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all connections within `timeout` seconds; closing twice has no effect.

        See `Client.close`.
        """
        await self._end(self._calls.close(timeout))

    async def __aenter__(self) -> Self:
        self._loop_host.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await (self.close() if error is None else self._close_after(error))

    async def _close_after(self, error: BaseException) -> None:
        """Close the client because of an error, which the caller should receive soon."""
        await self._run(self._calls.noting(error, self.close))
