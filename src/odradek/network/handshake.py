"""Set up a connection: resolve the name, connect TCP, negotiate versions (KIP-511), authenticate.

In: a connection that was just created. Out: the API versions that the broker supports, or an error.
Must not: send other requests before the response to ApiVersions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from odradek.common.errors import (
    ConnectionFailedError,
    DisconnectedError,
    DnsError,
    KafkaError,
    UnsupportedServerError,
    first_use,
)
from odradek.common.errors.kafka import RebootstrapRequiredError, UnsupportedVersionError, error_for
from odradek.common.outage import number
from odradek.common.types import Address
from odradek.network import probe
from odradek.network.client_connections import ClientConnections
from odradek.network.connection import Connection
from odradek.network.connection_state import ConnectionEvent
from odradek.network.effects import Hop, Open, Resolve
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.metadata import MetadataRequest

SOFTWARE_NAME, SOFTWARE_VERSION = "odradek", "0.2.0"
"""Name and version of this client, which brokers log (KIP-511)."""
SAYS_WHO_IS_MEANT = 5
"""First version of ApiVersions whose request names the expected cluster and broker (KIP-1242)."""
OLDEST = {0: ("Produce", 3), 1: ("Fetch", 4)}
"""The first versions of Produce and Fetch that use this client's record batches (Kafka 0.11)."""
BROKER_REGISTRATION = 62  # only controllers support this API
CONTROLLER_CURE = (
    "Set bootstrap.servers to addresses of brokers: a controller's port "
    "(controller.listener.names) is for brokers and other controllers."
)
NEXT_IP = 2.0
"""Seconds for TCP to connect to an IP, if the broker's name has IPs that weren't tried yet.

One dead IP among several mustn't take the whole setup timeout (R-CS-6, R-RB-7). IPs tried before
the last success count as not tried yet.
"""


def api_versions_request(cluster_id: str | None = None, node_id: int = -1) -> ApiVersionsRequest:
    """Return the request for a broker's API versions, with the expected cluster and broker."""
    return ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION, cluster_id, node_id)


class Handshake:
    """The setup of one connection, from its first attempt to the state READY."""

    def __init__(self, network: ClientConnections, connection: Connection) -> None:
        self._network, self._connection = network, connection

    def begin(self, now: float) -> None:
        """Open the connection, after resolving its address if necessary.

        An IP address is opened without a flow, which saves time in outages with many attempts.
        """
        network, connection = self._network, self._connection
        if connection.record.numeric and network.proxy is None:
            self._open(connection.address.host, now)
            return
        first = network.connection(connection.address) if connection.secondary else None
        if first is not None and first.ip is not None:  # another IP might be another broker
            self._open(first.ip, now)
        else:
            network.engine.start(self._resolve_and_open())

    def _open(self, ip: str, now: float, through: str = "") -> None:
        """Open a connection to an IP of the address, through the proxy IP `through` if given.

        If the proxy resolves names, `ip` is the proxy's IP, and the broker's name is sent to the
        proxy.
        """
        network, connection = self._network, self._connection
        connection.opens_to(ip)
        network.events.emit(
            now,
            "dial",
            address=str(connection.address),
            purpose=connection.purpose,
            ip=ip,
            connection=connection.id,
        )
        plain = probe.begin(connection, now)
        address, proxy, hop = connection.address, network.proxy, None
        if proxy is not None:
            hop = Hop(proxy, Address(ip, address.port) if through else address)
        network.engine.effects.append(Open(connection.id, address, through or ip, plain, hop))

    def _resolve_and_open(self) -> Flow[None]:
        network, connection = self._network, self._connection
        now, proxy, through, ways = (yield START), network.proxy, "", 1
        first = connection.address if proxy is None or not proxy.resolves else proxy.address
        try:
            ips, now = yield from self._resolve(first, now)
            if proxy is not None and not proxy.resolves:
                proxies, now = yield from self._resolve(proxy.address, now)
                through = network.states.pick_proxy(connection.address, ips, proxies)
                ways = len(proxies)
        except KafkaError as error:
            network.fail(connection, error, network.engine.now)
            return
        while (left := network.states.backoff_left(connection.address, now)) > 0:
            # Another connection to the address failed while the name was resolved (R-CS-2).
            now = yield Wait((), now + left)
            if connection.ended:
                return
        network.dials.left(connection.dialled_at, now)
        ip = network.states.pick_ip(connection.address, ips)
        untried = ways > 1 and connection.record.setup_failures + 1 < ways * len(ips)
        if untried or network.states.others_wait(connection.address, ips):
            connection.hurry(now + NEXT_IP)
        self._open(ip, now, through)

    def _resolve(self, address: Address, now: float) -> Flow[tuple[Sequence[str], float]]:
        network, connection = self._network, self._connection
        host = address.host
        whose = "the" if address is connection.address else "the proxy's"
        name = f"{whose} name {host!r}"
        token = network.engine.new_token()
        answer: Completion[Sequence[str]] = Completion()
        network.resolving[token] = answer
        network.engine.effects.append(Resolve(token, host, address.port, connection.setup_deadline))
        now = yield Wait((answer,), connection.setup_deadline)
        network.resolving.pop(token, None)
        if connection.ended:
            raise DisconnectedError("closed while the name was resolved")
        if not answer.done:
            raise DnsError(f"the name server didn't answer for {name}")
        if answer.error is not None or not answer.result():
            error = why = str(answer.error or "no address")
            if address is not connection.address:
                why = f"{name}: {error}"
            network.events.emit(now, "dns_failed", address=str(connection.address), error=why)
            raise DnsError(f"{name} doesn't resolve: {error}")
        return answer.result(), now

    def opened(self, now: float) -> None:
        """Start the handshake, because TCP (and TLS, if used) is established."""
        network, connection = self._network, self._connection
        connection.connected(now)
        network.events.emit(now, "connected", address=str(connection.address))
        network.engine.start(self._set_up())

    def _set_up(self) -> Flow[None]:
        network, connection = self._network, self._connection
        now = yield START
        if connection.ended:
            return
        event = ConnectionEvent.API_VERSIONS_ANSWERED
        try:
            now = yield from self._check_api_versions(now)
            other = None if connection.asks else not_usable(connection.versions)
            if other is not None:
                raise other
            now = yield from probe.ask(network.send_version, connection, now)
            if network.mechanism is not None and not connection.ended:
                with first_use():
                    from odradek.network.sasl import reauthentication as reauthentication  # later
                    from odradek.network.sasl.authenticate import Authentication

                now = yield from Authentication(network, connection, network.mechanism).first()
                event = ConnectionEvent.AUTHENTICATED
        except KafkaError as error:
            network.fail(connection, error, network.engine.now)
            return
        if self._gone():  # a method, since mypy ignores changes at a yield
            return
        connection.became_ready(now, event, network.frame_limit, network.buffers)
        network.states.setup_done(connection.address)
        network.states.reached()
        network.dials.ended(connection.record)
        network.events.emit(
            now,
            "ready",
            address=str(connection.address),
            purpose=connection.purpose,
            seconds=round(now - connection.dialled_at, 6),
        )
        network.changed.notify()

    def _check_api_versions(self, now: float) -> Flow[float]:
        """Request the broker's API versions; retry with an older version if it rejects the newest.

        A broker that doesn't support the version answers UNSUPPORTED_VERSION in the format of
        version 0, with the range that it supports (KIP-511). From version 5 on the request names
        the expected broker (KIP-1242).
        """
        network, connection = self._network, self._connection
        asks = probe.in_plaintext(connection)
        version = connection.record.api_versions
        cluster_id, node_id = (None, -1) if asks else network.meant_by(connection.address)
        for _ in range(2):
            body = api_versions_request(cluster_id, node_id)
            request = network.send_version(connection, body, version, now)
            now = yield Wait((request.reply,))
            response = cast("ApiVersionsResponse", request.reply.result())
            if response.error_code == 0:
                versions = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
                told = version >= SAYS_WHO_IS_MEANT and cluster_id is not None
                connection.speaks(versions, node_id if told else None)
                _, newest = versions.get(ApiVersionsRequest.API_KEY, (0, version))
                aside = connection.secondary  # on it, the cluster id isn't verified yet
                if not aside:
                    network.states.api_versions_known(connection.address, version, newest)
                if not asks and not aside:
                    levels = {f.name: f.max_version_level for f in response.finalized_features}
                    epoch = response.finalized_features_epoch
                    network.learned_features(epoch, levels, versions)
                return now
            if response.error_code != UnsupportedVersionError.code or version == 0:
                break
            known = {k.api_key: k.max_version for k in response.api_keys}
            version = min(version - 1, known.get(ApiVersionsRequest.API_KEY, 0))
        error = error_for(response.error_code)
        if isinstance(error, RebootstrapRequiredError) and not asks:
            meant = f" than broker {node_id} of cluster {cluster_id}" if cluster_id else ""
            raise error_for(
                error.code,
                f"the broker at {connection.address} reports that it is another one{meant}. If "
                "this persists, a proxy or an advertised listener leads to the wrong broker; "
                "metadata.cluster.check.enable=false turns this check off",
            )
        raise ConnectionFailedError(f"ApiVersions was refused: {type(error).__name__}: {error}")

    def _gone(self) -> bool:
        return self._connection.ended


def not_usable(versions: Mapping[int, tuple[int, int]]) -> UnsupportedServerError | None:
    """Return an error if the server, which answered ApiVersions, can't serve this client."""
    if MetadataRequest.API_KEY not in versions:
        kind = "is a Kafka controller" if BROKER_REGISTRATION in versions else "isn't a broker"
        what = f"the server {kind}: of {number(len(versions), 'API')}, none is Metadata"
        return UnsupportedServerError(what, cure=CONTROLLER_CURE)
    if any(versions.get(key, (0, least))[1] >= least for key, (_, least) in OLDEST.items()):
        return None
    theirs = " and ".join(
        f"{name} {versions[key][0]} to {versions[key][1]}" for key, (name, _) in OLDEST.items()
    )
    needed = " and ".join(f"{name} {least}" for name, least in OLDEST.values())
    return UnsupportedServerError(
        f"the broker is older than Kafka 0.11: it supports {theirs}, but this client needs "
        f"{needed}",
        cure="Upgrade the brokers.",
    )


def silent_refusal() -> ConnectionFailedError:
    """Return the error for a broker that closed the connection during SASL without an error."""
    return ConnectionFailedError(
        "the broker closed the connection during SASL authentication without an error: it is "
        "stopping, or it is older than Kafka 1.0 and has refused the credentials"
    )
