"""What every asyncio client's facade shares: calls that are awaited, in the caller's event loop.

In: a configuration. Out: `_run`, which carries out a caller's half as a coroutine; `close`, `async
with`. Must not: decide what a call does, or differ from `Client` in anything but how it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from odradek.api.base import E, Facade
from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.client_calls import API_TIMEOUT, CLOSE_TIMEOUT
from odradek.network.flow import Flow
from odradek.network.host import LoopHost
from odradek.runtime.hosts.async_caller import carried_out

if TYPE_CHECKING:
    from uuid import UUID

T = TypeVar("T")


class AsyncClient(Facade[E]):
    """Base of `AsyncProducer`, `AsyncConsumer` and `AsyncAdmin`; not made directly.

    A client belongs to the event loop of its first call: connections, heartbeats and fetches go on
    there while the program does other things, without a thread. Its methods are for that loop's
    tasks; `wakeup()` and `set_sasl_credentials()` may come from anywhere. Cancelling a call leaves
    the client as legal as before: what a task was about to be handed is handed to the next one.
    """

    @property
    def _loop_host(self) -> LoopHost:
        return self._calls.host  # type: ignore[return-value]  # as `loop_host` makes it

    async def _run(self, flow: CallerFlow[T]) -> T:
        """Carry out a call in the loop that runs here."""
        return await carried_out(flow, self._loop_host)

    async def _end(self, flow: CallerFlow[T]) -> T:
        """The same for a call that closes: it may come after the end of the client's loop."""
        return await carried_out(flow, self._loop_host, closing=True)

    async def _call(
        self,
        flow: Callable[[float], Flow[T]],
        timeout: float | None,
        what: str,
        option: str = API_TIMEOUT,
    ) -> T:
        """Run `flow(deadline)` to its end, or raise at the deadline with all that was tried."""
        return await self._run(self._calls.call(flow, timeout, what, option))

    async def cluster_id(self, timeout: float | None = None) -> str:
        """The id of the cluster, from its metadata.

        As `Client.cluster_id`.
        """
        snapshot = await self._call(self._engine.snapshot, timeout, "metadata of the cluster")
        return snapshot.cluster_id or ""

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """The id that a broker has given this client for the metrics that it pushes (KIP-714).

        As `Client.client_instance_id`.
        """
        return await self._call(self._calls.client_instance_id, timeout, "id of this client")

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all connections. Always ends within `timeout` seconds; may be called twice.

        As `Client.close`.
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
        """Close after an error, which is what its caller has to hear of, and soon."""
        await self._run(self._calls.noting(error, self.close))
