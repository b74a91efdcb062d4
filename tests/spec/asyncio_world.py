"""The scripted world of `world.py` around the asyncio host that ships.

The same brokers do the same things at the same times; but requests and answers are bytes, on
sockets that an event loop watches, and the loop's timers have the engine step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.spec.world import World

from odradek.network.effects import Effect, IncomingResponse, Resolve
from odradek.protocol.headers import encode_response
from odradek.runtime.hosts.transport import Transport
from odradek.runtime.resolver import Resolver
from odradek.simulation.world.environment import read_request
from odradek.simulation.world.world import World as Simulation
from odradek.testing.turned_loop import TurnedLoop
from odradek.testing.virtual_sockets import VirtualSocket
from odradek.testing.world_host import WorldAsyncioHost

if TYPE_CHECKING:
    from odradek.common.types import Address
    from odradek.runtime.hosts.tunnel import Tunnel
    from odradek.runtime.resolver import Answer


class OneByOne(World):
    """A `World` whose engine steps after each input, as an event loop has it."""

    def look(self) -> None:
        if self.engine.inputs:
            self.step()


class AsyncioWorld(World):
    """A `World` whose engine is run by an `AsyncioHost`."""

    def __init__(self, config: dict[str, Any], **given: Any) -> None:
        self.simulation = Simulation()
        super().__init__(config, **given)
        self.host = _Host(self)
        self.host.attach(self.engine)

    @property
    def now(self) -> float:  # type: ignore[override]  # time goes on in the simulation
        return self.simulation.now

    # Time

    def at(self, when: float, action: Callable[[], None]) -> None:
        def act() -> None:
            action()
            self.look()

        self.simulation.at(when, act)

    def look(self) -> None:
        if self.engine.inputs:
            self.host.wake()
        self.host.heard()

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> None:
        time = self.simulation.time
        self.look()
        while stop is None or not stop():
            due = time.next_at()
            if due is None or due > until:
                time.run_until(until)
                break
            time.fire_next()
        self.steps = self.host.steps

    # What the client's end hears

    def tell_connected(self, number: int) -> None:
        self.host.ends[number].socket.connected()
        self.look()

    def tell_lost(self, number: int, error: BaseException | str | None) -> None:
        refused = isinstance(error, ConnectionRefusedError)
        self.host.ends[number].socket.lost("refused" if refused else error)
        self.look()

    def tell_answer(self, number: int, response: IncomingResponse) -> None:
        end, identity = self.host.ends[number], response.correlation_id
        frame = b"".join(encode_response(response.message, end.versions.pop(identity), identity))
        end.socket.arrived([memoryview(frame)])
        self.look()


class _Host(WorldAsyncioHost):
    """Its sockets lead to the script's brokers."""

    def __init__(self, world: AsyncioWorld) -> None:
        super().__init__(world.simulation, "client")
        self.script = world
        self.ends: dict[int, _End] = {}
        self._resolver = _Names(world)

    def _carry_out(self, effect: Effect) -> None:
        if not isinstance(effect, Resolve):  # the resolver is asked for those
            self.script.carry_out(effect)
        super()._carry_out(effect)

    def _new_plain_transport(
        self, connection: int, address: Address, tunnel: Tunnel | None
    ) -> Transport:
        return _Transport(self, connection, address, tunnel)

    def new_end(self, connection: int) -> VirtualSocket:
        """A socket whose other end the script has."""
        assert isinstance(self._loop, TurnedLoop)
        end = self.ends[connection] = _End()
        end.socket = VirtualSocket(self._loop.files, end)
        return end.socket


class _Transport(Transport):
    """Addresses of a script are names."""

    def __init__(
        self, host: _Host, connection: int, address: Address, tunnel: Tunnel | None
    ) -> None:
        super().__init__(connection, address, tunnel)
        self._host = host

    def open(self, ip: str) -> bool:
        del ip
        sock = self._host.new_end(self.connection)
        self.sock, self.fd = sock, sock.fileno()  # type: ignore[assignment]
        return False


class _End:
    """The other end of one socket."""

    socket: VirtualSocket

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}
        """Of the requests that have no answer yet."""

    def dial(self, ip: str, port: int) -> None:
        """Nothing: the effect says so already."""

    def frame(self, frame: bytes) -> None:
        """A request, with its length before it; raises where no broker could read it."""
        asked = read_request(memoryview(frame)[4:])
        assert asked.body is not None
        self.versions[asked.correlation_id] = asked.version

    def hang_up(self) -> None:
        """Nothing: the script hears of it by the effect, or has ended the connection."""


class _Names(Resolver):
    """What the script's names lead to."""

    def __init__(self, world: AsyncioWorld) -> None:
        super().__init__()
        self._world = world

    def resolve(self, host: str, port: int, deliver: Callable[[Answer], None]) -> None:
        self._world.look_up(host, deliver)
