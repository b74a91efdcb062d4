"""Remember the failures of each address, and when it may be connected again (KIP-144).

In: connection attempts, their results, and proofs (responses to requests other than ApiVersions and
SASL). Out: when an attempt to an address is allowed, its setup timeout, and the IP to use. All
connections to a host:port share one state (R-CS-2), whether a bootstrap entry or metadata named it;
so a rebootstrap can't shorten a backoff. Must not: open connections, or count a TCP connection as a
success (R-CS-3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from odradek.common.backoff import ExponentialBackoff
from odradek.common.sampled import Sampled
from odradek.common.types import Address, Rng

API_VERSIONS = (5, 4, 3, 0)
"""Versions of ApiVersions to try, newest first.

If they don't know the version, some brokers (Azure Event Hubs, some proxies) close the connection
and don't answer UNSUPPORTED_VERSION (KIP-511).
"""


class AddressState:
    """State of one host:port; times are in seconds on the engine's clock."""

    __slots__ = (
        "address", "answered", "api_versions", "api_versions_answered", "backoff_until",
        "dial_failed", "dialling", "failures", "failures_before_proof", "heard_at", "last_dial",
        "last_error", "last_error_at", "last_ip", "latency", "numeric", "proved_at", "sent",
        "setup_failures", "setup_timeout", "stepped_down", "stepped_up", "suspicion", "through",
        "tried", "unknown_since",
    )  # fmt: skip

    def __init__(self, address: Address) -> None:
        self.address = address
        self.failures = 0
        """Number of failures in a row since the address last answered a real request."""
        self.backoff_until = -math.inf
        self.proved_at = -math.inf
        """Time of the first response to a real request on a connection."""
        self.heard_at = -math.inf
        """Time of the last received byte, on any connection."""
        self.setup_failures = 0
        self.setup_timeout = 0.0
        self.unknown_since: float | None = None
        """Time of the first metadata response without the address; None while metadata has it."""
        self.last_dial = -math.inf
        self.dialling = 0
        """Number of pending connection attempts."""
        self.dial_failed = False
        """Whether the latest attempt led to no connection that answered a real request (R-RB-2)."""
        self.last_error: BaseException | None = None
        self.last_error_at = -math.inf
        self.last_ip: str | None = None
        self.through: str | None = None
        """IP of the proxy through which the client last tried to reach this address."""
        self.tried: list[str] = []
        """IPs to try last: those tried since the last success, or the IP of a lost connection."""
        self.failures_before_proof = 0
        """Value of `failures` before the last response, restored if it was another cluster's."""
        self.suspicion = ""
        """Possible reason why a connection ended without an error; the next attempt checks it."""
        self.api_versions = API_VERSIONS[0]
        """The version of ApiVersions that the next connection sends first."""
        self.api_versions_answered = -1
        """The newest version of ApiVersions that the address has answered.

        If the peer closes a connection during a request of this version, the version isn't the
        reason.
        """
        self.stepped_down = False
        """Whether all versions were tried without an answer.

        From then on, a connection that the peer closes during ApiVersions counts as a failure.
        """
        self.stepped_up = False
        """Whether a newer version was tried already, because the broker reported to support it."""
        host = address.host
        self.numeric = ":" in host or host.replace(".", "").isdecimal()
        """Whether the host is an IP address, so that no name needs to be resolved."""
        self.latency = Sampled()
        """Response times, in seconds, on connections that have ended."""
        self.sent = 0
        """Number of requests sent on all connections to the address; it never decreases."""
        self.answered = 0
        """Number of responses; a connection adds its response times to `latency` when it ends."""

    def opens_to(self, ip: str) -> None:
        """Store the IP of a connection attempt that begins."""
        self.last_ip = ip

    def suspect_of(self, suspicion: str) -> None:
        """Set the `suspicion` that the next attempt checks (see `probe`); "" for none."""
        self.suspicion = suspicion

    def heard(self, now: float) -> None:
        """Store the time at which bytes were received from this address."""
        self.heard_at = now

    def asked(self) -> None:
        """Count a request that was sent to this address."""
        self.sent += 1

    def answers(self) -> None:
        """Count a response of this address."""
        self.answered += 1

    def connection_ended(self, measured: Sampled, now: float) -> None:
        """Add the response times of a connection that has ended."""
        self.latency.take_over(measured, now)

    def take_over(self, other: AddressState, now: float) -> None:
        """Add the counters of another address, whose state is about to be dropped."""
        self.sent += other.sent
        self.answered += other.answered
        self.latency.take_over(other.latency, now)

    def settled(self) -> None:
        """Count an attempt as no longer pending, whatever its result."""
        self.dialling -= 1

    def dialled_in_vain(self) -> None:
        """Note that the latest attempt led to no connection that answered a real request."""
        self.dial_failed = True


class ClusterConnectionStates:
    """States of all addresses that one client has tried to connect to."""

    def __init__(self, reconnect: ExponentialBackoff, setup: ExponentialBackoff, rng: Rng) -> None:
        self._reconnect = reconnect
        self.base = reconnect.shortest
        """Backoff after a first failure, in seconds, before jitter is added."""
        self._setup = setup
        self._rng = rng
        self._answered_anywhere = -1
        """The newest version of ApiVersions that any address has answered."""
        self._states: dict[Address, AddressState] = {}
        self.former = AddressState(Address("", 0))
        """Sum of the counters of addresses that were forgotten."""
        self.proved_anywhere = False
        """Whether some address has answered a real request."""
        self.reached_anywhere = False
        """Whether a connection to a broker was ever set up (R-RB-10)."""
        self.on_forgotten: list[Callable[[Address], object]] = []
        self.find = self._states.get
        """Function that returns the state of an address, or None if it was never tried."""

    def state(self, address: Address) -> AddressState:
        """Return the state of an address; create one, without failures, for an unknown address."""
        found = self._states.get(address)
        if found is None:
            found = self._states[address] = AddressState(address)
        return found

    def forget(self, known: Collection[Address], now: float, after: float) -> None:
        """Drop the states of addresses that metadata responses haven't named for `after` seconds.

        `known` contains the addresses in the newest response, the bootstrap addresses, and
        addresses with a connection. During an outage no metadata arrives, so no state is dropped:
        if metadata later names the address again, its backoff continues (R-CS-2).
        """
        for address, state in list(self._states.items()):
            if address in known or state.dialling or state.backoff_until > now:
                state.unknown_since = None
            elif state.unknown_since is None:
                state.unknown_since = now
            elif now - state.unknown_since >= after:
                del self._states[address]
                self.former.take_over(state, now)
                for told in self.on_forgotten:
                    told(address)

    def standing(self, address: Address) -> tuple[bool, bool]:
        """Return whether an address failed since its last answer, and if its last try failed."""
        found = self._states.get(address)
        return (False, False) if found is None else (found.failures > 0, found.dial_failed)

    def all(self) -> list[AddressState]:
        """Return the states of all addresses, in the order of their first attempts."""
        return list(self._states.values())

    def backoff_left(self, address: Address, now: float) -> float:
        """Return the seconds until the address's backoff is over; 0 if it is over already."""
        found = self._states.get(address)
        return 0.0 if found is None else max(0.0, found.backoff_until - now)

    def dialling(self, state: AddressState, now: float) -> float:
        """Note an attempt's start; return its setup timeout, drawn once per failure (KIP-601)."""
        state.last_dial = now
        state.dialling += 1
        if state.setup_timeout == 0.0:
            state.setup_timeout = self._setup.delay(state.setup_failures, self._rng)
        return state.setup_timeout

    def pick_ip(self, address: Address, ips: Sequence[str]) -> str:
        """Choose one of a name's IPs: an untried IP if possible, of `ips[0]`'s family (R-CS-6)."""
        state = self.state(address)
        first_family = ":" in ips[0]
        ordered = [ip for ip in ips if (":" in ip) == first_family]
        ordered += [ip for ip in ips if (":" in ip) != first_family]
        # Some names resolve to other IPs each time: a list that keeps old ones would always grow.
        state.tried = [ip for ip in state.tried if ip in ordered]
        fresh = [ip for ip in ordered if ip not in state.tried]
        if not fresh:  # all IPs were tried: start again, but not with the last one
            state.tried = [state.last_ip] if state.last_ip in ordered[:1] else []
            fresh = [ip for ip in ordered if ip not in state.tried] or ordered
        state.last_ip = fresh[0]
        state.tried.append(fresh[0])
        return fresh[0]

    def pick_proxy(self, address: Address, ips: Sequence[str], proxies: Sequence[str]) -> str:
        """Choose one of the proxy's IPs (`proxies`) for an attempt to a broker with these `ips`.

        Keep the proxy IP of the last attempt until all IPs of the broker have failed through it;
        then choose the next proxy IP.

        """
        state, at = self.state(address), 0
        if state.through in proxies:
            at = proxies.index(state.through)
            if state.setup_failures and state.setup_failures % len(ips) == 0:
                at += 1
        state.through = proxies[at % len(proxies)]
        return state.through

    def others_wait(self, address: Address, ips: Sequence[str]) -> bool:
        """Return whether one of a name's IPs wasn't tried since the last success."""
        state = self.state(address)
        return state.failures < len(ips) and any(ip not in state.tried for ip in ips)

    def failed(
        self, address: Address, now: float, error: BaseException | None, *, connecting: bool
    ) -> float:
        """Note a failed attempt or connection; return when the next attempt is allowed.

        The backoff doubles with each failure in a row (KIP-144); its jitter is drawn here, once
        (R-BO-3). With `connecting`, the connection failed during its setup, which also increases
        the setup timeout.
        """
        state = self.state(address)
        if connecting:
            state.setup_failures += 1
        else:
            state.setup_failures = 0
            state.tried = [state.last_ip] if state.last_ip else []
        state.setup_timeout = 0.0
        state.backoff_until = now + self._reconnect.delay(state.failures, self._rng)
        state.failures += 1
        state.last_error, state.last_error_at = error, now
        return state.backoff_until

    def closed(self, address: Address, now: float) -> float:
        """Apply the base backoff once, for an idle connection closed without an error (R-CS-4)."""
        state = self.state(address)
        state.tried = [state.last_ip] if state.last_ip else []
        wait = now + self._reconnect.delay(0, self._rng)
        state.backoff_until = max(state.backoff_until, wait)
        return state.backoff_until

    def setup_done(self, address: Address) -> None:
        """Reset the setup timeout after a response to ApiVersions; the backoff isn't reset yet."""
        state = self.state(address)
        state.setup_failures, state.setup_timeout = 0, 0.0

    def reached(self) -> None:
        """Note that the client has reached a broker."""
        self.reached_anywhere = True

    def step_down(self, address: Address, asked: int) -> bool:
        """Choose an older version for the next ApiVersions, after the peer closed the connection.

        `asked` is the version of the request that the peer didn't answer. Returns True if the
        closed connection doesn't count as a failure of the address. That is so while versions are
        tried for the first time, and no address has answered this or a newer version. Once a broker
        has answered a version, the other brokers of its cluster support it as well, so an address
        that closes the connection then isn't a broker. After the oldest version, the newest is
        tried again, since the broker may only have been starting.
        """
        state = self.state(address)
        if asked <= state.api_versions_answered:
            return False
        if asked != state.api_versions:  # another connection has already changed the version
            return not state.stepped_down and asked > self._answered_anywhere
        older = [version for version in API_VERSIONS if version < state.api_versions]
        state.api_versions = older[0] if older else API_VERSIONS[0]
        excused = bool(older) and not state.stepped_down and asked > self._answered_anywhere
        state.stepped_down = not excused
        return excused

    def excused(self, address: Address, now: float, error: BaseException) -> None:
        """Store an error for messages and `explain()`, without counting it as a failure."""
        state = self.state(address)
        state.last_error, state.last_error_at = error, now

    def api_versions_known(self, address: Address, version: int, newest: int) -> None:
        """Store which ApiVersions version was answered, and the newest that the broker supports.

        The next connection begins with the answered version. If the broker reported a newer version
        (it was upgraded, or an earlier connection was closed for another reason), the newer version
        is tried, but only once, because the report may be wrong.

        """
        state = self.state(address)
        state.api_versions_answered = max(state.api_versions_answered, version)
        self._answered_anywhere = max(self._answered_anywhere, version)
        newest = min(newest, API_VERSIONS[0])
        if newest <= version:
            state.api_versions = version
        elif not state.stepped_up:
            state.stepped_up, state.api_versions = True, newest

    def proved(self, address: Address, now: float) -> None:
        """Reset the backoff of an address that answered a real request.

        Only such a response resets it (R-CS-3).
        """
        state = self.state(address)
        state.failures_before_proof = state.failures
        state.failures = 0
        state.backoff_until = -math.inf
        state.dial_failed = False
        state.suspicion = ""
        state.last_error = None
        state.proved_at = now
        self.proved_anywhere = True

    def disproved(self, address: Address) -> None:
        """Restore the backoff that a response of another cluster has reset (R-RB-5)."""
        state = self.state(address)
        state.failures = max(state.failures, state.failures_before_proof)
