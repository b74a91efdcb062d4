"""The problems of a cluster, or of the connection to it, as sentences, in the order to fix them.

In: what an admin client found (`examine`), its own state (`explain`), facts about this machine.
Out: findings in order, each with the reason why it matters and a remedy. Must not: send requests,
or guess if an error states the reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odradek.cli.doctor.environment import DoctorEnvironment
from odradek.cli.frame.results import counted
from odradek.clients.admin.reachability import AddressReach, Reachability
from odradek.clients.admin.users import ClientQuotaEntity
from odradek.clients.explain.causes import SLOW_NAME, ConnectionStage, usual_cause
from odradek.clients.missing_topics import did_you_mean
from odradek.common.errors import (
    AuthenticationError,
    AuthorizationError,
    ClusterIdMismatchError,
    ConnectionRefusedByPeerError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.printable import cleaned, command, cure, lists_members

if TYPE_CHECKING:
    from odradek.clients.admin.examination import Examination, GroupStanding
    from odradek.clients.explain.explanation import AddressExplanation, Explanation

SOON = 14 * 86400.0
"""A certificate is reported if it expires within this many seconds."""
CLOCKS_APART = 60.0
"""Difference of clocks in seconds that is a problem, because tokens and tickets expire."""
NAMED = 5
"""Maximum number of addresses or partitions in a sentence; others are only counted."""
LOOPBACK = ("localhost", "127.", "::1", "[::1]")
HOST_OF_CONTAINERS = "host.docker.internal"
_refused = usual_cause(ConnectionRefusedByPeerError())
REFUSED = _refused and _refused.meaning
DENIED = "The broker authenticated this client and denies the operation; retrying won't help."


class Trouble(StrEnum):
    """The kinds of problems, in the order in which a client meets them."""

    NAME = "name"
    NETWORK = "network"
    PROXY = "proxy"
    TLS = "tls"
    SASL = "sasl"
    PROTOCOL = "protocol"
    BROKER = "broker"
    ADVERTISED = "advertised"
    CLUSTER = "cluster"
    TOPIC = "topic"
    RIGHTS = "rights"
    LEADERLESS = "leaderless"
    GROUP = "group"
    UNDER_REPLICATED = "under-replicated"
    THROTTLED = "throttled"
    CLOCK = "clock"
    REGISTRY = "registry"
    OTHER = "other"


STATUSES = {
    Trouble.NAME: 10,
    Trouble.NETWORK: 11,
    Trouble.PROXY: 12,
    Trouble.TLS: 13,
    Trouble.SASL: 14,
    Trouble.PROTOCOL: 15,
    Trouble.BROKER: 16,
    Trouble.ADVERTISED: 17,
    Trouble.CLUSTER: 18,
    Trouble.TOPIC: 19,
    Trouble.RIGHTS: 20,
    Trouble.LEADERLESS: 21,
    Trouble.GROUP: 22,
    Trouble.UNDER_REPLICATED: 23,
    Trouble.THROTTLED: 24,
    Trouble.CLOCK: 25,
    Trouble.REGISTRY: 26,
    Trouble.OTHER: 1,
}
"""Exit statuses by kind; 0: no problem, 2: wrong use."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Problem, or an important fact."""

    kind: Trouble
    what: str
    """The problem in one sentence."""
    why: str
    """Why the problem matters."""
    cure: str
    grave: bool = True
    """Whether the problem prevents records from being written or read."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations from which the findings are derived."""

    picture: Explanation
    error: KafkaError | None
    """Why the examination failed, if it did."""
    found: Examination | None
    protocol: str
    """`security.protocol`."""
    mechanism: str | None = None
    """`sasl.mechanism`, if SASL is used."""
    around: DoctorEnvironment = field(default_factory=DoctorEnvironment)
    topics_named: bool = False
    """Whether topics were named, so that their authorized operations were requested."""
    user: str | None = None
    """User name of PLAIN or SCRAM; with other mechanisms, only brokers know the user's name."""

    @property
    def ahead(self) -> float | None:
        """Seconds that this machine's clock is ahead of the cluster's; None if unknown."""
        clock = None if self.found is None else self.found.clock
        if clock is None:
            return None
        here = self.around.now - (self.around.at - clock.at)
        ahead = here - clock.seconds
        return ahead if abs(ahead) > clock.tolerance else 0.0

    @property
    def reach(self) -> Reachability | None:
        """Result of connecting to every address; None if that failed."""
        return None if self.found is None else self.found.reach


def findings(seen: Seen) -> list[Finding]:
    """Return all problems, in the order in which they should be fixed."""
    reach = seen.reach
    found = list(_unreached(seen)) if reach is None else list(_reached(seen, reach))
    grave = [one for one in found if one.grave]
    order = list(Trouble)
    grave.sort(key=lambda one: order.index(one.kind) if reach is not None else 0)
    return [cleaned(one) for one in [*grave, *(one for one in found if not one.grave)]]


# No broker was reached


def _unreached(seen: Seen) -> Iterator[Finding]:
    """Yield findings if no metadata was loaded; first the address whose connection got furthest."""
    if isinstance(seen.error, ClusterIdMismatchError):
        yield _other_cluster(seen.error)
        return
    starts = [a for a in seen.picture.addresses if "bootstrap" in a.role]
    order = list(ConnectionStage)
    failing = [a for a in starts if a.stage is not None]
    failing.sort(key=lambda a: -order.index(ConnectionStage(a.stage or ConnectionStage.NAME)))
    for address in failing:
        yield _of_bootstrap(seen, address)
    if failing:
        return
    said = seen.picture.attempts[-1].error if seen.picture.attempts else str(seen.error)
    who = starts[0].address if starts else "the cluster"
    if isinstance(seen.error, AuthenticationError):
        yield Finding(
            Trouble.SASL, f"Authentication with {who} failed: {_first_line(seen.error)}",
            WHY[Trouble.SASL], seen.error.cure,
        )  # fmt: skip
        return
    if not any(a.ready or a.proved for a in starts):
        yield Finding(
            Trouble.OTHER,
            f"{who} didn't answer before the timeout.",
            "Nothing is known about a cluster until one of its brokers answers.",
            "Wait longer: --timeout 30.",
        )
        return
    yield Finding(
        Trouble.BROKER,
        f"{who} answers, but returned no cluster metadata: {_plain(said)}.",
        "Without metadata, a client doesn't know the brokers' addresses and the partitions' "
        "leaders.",
        "Read the broker's log: it may still be starting, or can't reach the controllers "
        "(controller.quorum.bootstrap.servers).",
    )


WHY = {
    Trouble.NAME: "Without an IP address for the host name, the client can't connect.",
    Trouble.NETWORK: "Without a connection, nothing else can be checked.",
    Trouble.PROXY: "All connections go through the proxy (proxy.url), so none reaches a broker.",
    Trouble.TLS: "Nothing is sent before the TLS handshake has succeeded and the broker's "
    "certificate is verified.",
    Trouble.SASL: "Brokers answer no other requests before the client is authenticated.",
    Trouble.PROTOCOL: "The service at this address isn't a Kafka broker that this client can use.",
    Trouble.BROKER: "The network works, but no broker answers requests at this address.",
    Trouble.CLUSTER: "Records would be written to the wrong cluster.",
}
TROUBLES = {
    ConnectionStage.NAME: Trouble.NAME,
    ConnectionStage.NETWORK: Trouble.NETWORK,
    ConnectionStage.PROXY: Trouble.PROXY,
    ConnectionStage.TLS: Trouble.TLS,
    ConnectionStage.SASL: Trouble.SASL,
    ConnectionStage.PROTOCOL: Trouble.PROTOCOL,
    ConnectionStage.BROKER: Trouble.BROKER,
    ConnectionStage.CLUSTER: Trouble.CLUSTER,
}


def _of_bootstrap(seen: Seen, a: AddressExplanation) -> Finding:
    """Return why a bootstrap address doesn't answer."""
    kind = TROUBLES[ConnectionStage(a.stage or ConnectionStage.BROKER)]
    host = _host(a.address)
    what, mends = _in_words(seen, a.address, kind, a.meaning or ""), a.cure or ""
    if kind is Trouble.NAME and host == HOST_OF_CONTAINERS:
        mends = (
            f"On Linux, a container knows {host} only if it is started with `--add-host "
            f"{host}:host-gateway` (in Compose: extra_hosts)."
        )
    elif kind is Trouble.NAME and seen.around.container:
        mends = (
            f"In a container, the broker's host name is the name of its service. {mends} "
            "`docker network ls` lists the networks."
        )
    elif what.startswith("Nothing listens") and _loopback(host):
        what += f" {_localhost(host)}" if seen.around.container else ""
        mends = _for_localhost(seen, a.address)
    return Finding(kind, what, WHY[kind], mends)


def _in_words(seen: Seen, address: str, kind: Trouble, meaning: str) -> str:
    """Return the sentence for an address that can't be used."""
    host, here = _host(address), seen.around.here
    if kind is Trouble.NAME and meaning != SLOW_NAME.meaning:
        return f"{here[0].upper()}{here[1:]} can't resolve the host name {host} (from {address})."
    if kind is Trouble.NETWORK and meaning == REFUSED:
        return f"Nothing listens at {address}: no broker runs there, or the host or port is wrong."
    texts = {
        Trouble.NAME: f"The host name of {address} can't be resolved: {meaning}.",
        Trouble.NETWORK: f"{address} can't be reached: {meaning}.",
        Trouble.PROXY: f"{address} can't be reached through the proxy: {meaning}.",
        Trouble.TLS: f"TLS with {address} failed: {meaning}.",
        Trouble.SASL: f"Authentication with {address} failed: {meaning}.",
        Trouble.PROTOCOL: f"{address} isn't a Kafka broker: {meaning}.",
        Trouble.BROKER: f"No broker answers at {address}: {meaning}.",
    }
    return texts.get(kind, f"{address}: {meaning}.")


def _localhost(host: str) -> str:
    return f"In a container, {host} is the container itself, not the machine that it runs on."


def _for_localhost(seen: Seen, address: str) -> str:
    port = address.rpartition(":")[2]
    if seen.around.container:
        return (
            "If the broker runs in this container, start it, or correct the port. Otherwise use "
            "the name of the broker's container or service, on a network that both share; or, for "
            f"a broker on the machine itself, {HOST_OF_CONTAINERS}:{port}."
        )
    return (
        f"Start the broker. If it runs in a container, publish its port (`docker run -p {port}:"
        f"{port} …`). `odradek cluster start --simulated` starts simulated brokers to experiment "
        "with."
    )


# The cluster was reached


def _reached(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    yield from _of_versions(seen)
    yield from _of_brokers(seen, reach)
    yield from _of_starts(seen, reach)
    yield from _of_topics(reach)
    group = None if seen.found is None else seen.found.group
    quiet = any(a.throttle > 0 for a in reach.addresses)
    # A throttled client may time out; then the coordinator isn't the problem.
    if group is not None and not (quiet and isinstance(group.error, KafkaTimeoutError)):
        yield from _of_group(group, reach.servers)
    yield from _of_standings(seen, reach)
    yield from _of_quotas(seen, reach)
    yield from _of_clock(seen)
    yield from _of_certificates(seen)


def _of_brokers(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    """Yield findings about the addresses that brokers advertise: the most frequent mistake."""
    brokers = reach.brokers
    failing = [a for a in brokers if a.error is not None]
    pictures = {a.address: a for a in seen.picture.addresses}
    if failing:
        yield _of_advertised(seen, reach, failing, pictures)
    for shared in brokers:
        if len(shared.brokers) > 1:
            ids = _listed(shared.brokers)
            yield Finding(
                Trouble.ADVERTISED,
                f"Brokers {ids} all advertise the same address, {shared.address}.",
                "Requests for one of them reach another one, which rejects them.",
                "Set a different advertised.listeners for each broker (another host or port).",
            )
    if reach.absent:
        one = len(reach.absent) == 1
        ids = _listed(reach.absent)
        yield Finding(
            Trouble.UNDER_REPLICATED,
            f"Broker {ids} should hold replicas, but isn't in the cluster."
            if one
            else f"Brokers {ids} should hold replicas, but aren't in the cluster.",
            "Their partitions have fewer replicas now, and no leader if none is left."
            if not one
            else "Its partitions have fewer replicas now, and no leader if none is left.",
            "Start it again; if it is running, its log says why the cluster has fenced it."
            if one
            else "Start them again; if they are running, their logs say why the cluster has "
            "fenced them.",
        )


def _of_advertised(
    seen: Seen,
    reach: Reachability,
    failing: Sequence[AddressReach],
    pictures: dict[str, AddressExplanation],
) -> Finding:
    first = failing[0]
    picture = pictures.get(first.address)
    stage = None if picture is None or picture.stage is None else ConnectionStage(picture.stage)
    meaning = _meaning(first, picture)
    starts = [a.address for a in reach.addresses if a.bootstrap]
    start = next((a.address for a in reach.addresses if a.bootstrap and a.error is None), starts[0])
    if isinstance(first.error, ClusterIdMismatchError):
        return _other_cluster(first.error)
    if (
        stage in (ConnectionStage.TLS, ConnectionStage.SASL, ConnectionStage.PROTOCOL)
        and picture is not None
    ):
        kind = TROUBLES[stage]
        what = _in_words(seen, first.address, kind, meaning)
        return Finding(
            kind, f"{what} The cluster at {start} advertises this address to clients.", WHY[kind],
            picture.cure or "",
        )  # fmt: skip
    host = _host(first.address)
    count = len(reach.brokers)
    if len(failing) < count:
        return Finding(
            Trouble.ADVERTISED,
            f"{len(failing)} of {count} brokers can't be reached from {seen.around.here}: broker "
            f"{_listed(first.brokers)} at {first.address} ({meaning}).",
            "Partitions can only be written to and read from at their leaders"
            + (f": {first.address} leads {_partitions(first.leads)}." if first.leads else "."),
            "Check that the broker is running; if it is, its advertised.listeners must be an "
            f"address that {seen.around.here} can reach.",
        )
    sends = f"The cluster answers at {start}, but sends clients on to {first.address}"
    if _loopback(host) and not _loopback(_host(start)):
        what = f"{sends}, and {host} is {seen.around.here}, not the broker's machine."
    elif stage is ConnectionStage.NAME:
        what = f"{sends}, a host name that {seen.around.here} can't resolve."
    else:
        what = f"{sends}. From {seen.around.here}, {meaning.partition(':')[0]}."
    return Finding(
        Trouble.ADVERTISED,
        what,
        "A client uses the bootstrap address only to find the brokers. It then connects to the "
        "addresses that they advertise (advertised.listeners), and those must be reachable from "
        "every client's machine.",
        _for_advertised(seen.protocol, start, first.address),
    )


def _for_advertised(protocol: str, start: str, advertised: str) -> str:
    return (
        "In the broker's server.properties, set advertised.listeners to an address that works from "
        f"here, for example {protocol}://{start} (in a container's environment: "
        f"KAFKA_ADVERTISED_LISTENERS). If other clients need {advertised}, give the broker a "
        "second listener with its own advertised address, and connect to that listener's port."
    )


def _meaning(a: AddressReach, picture: AddressExplanation | None) -> str:
    if picture is not None and picture.meaning is not None:
        return picture.meaning
    return _first_line(a.error)


def _other_cluster(error: ClusterIdMismatchError) -> Finding:
    return Finding(
        Trouble.CLUSTER,
        f"{error.address} belongs to cluster {error.found}, but cluster {error.expected} is "
        "expected.",
        WHY[Trouble.CLUSTER],
        "Correct the address; if the cluster was recreated on purpose, correct "
        "cluster.id.expected and restart the clients.",
    )


def _of_versions(seen: Seen) -> Iterator[Finding]:
    lacking = {} if seen.found is None else seen.found.lacking
    for address, texts in lacking.items():
        yield Finding(
            Trouble.PROTOCOL,
            f"{address} and this client have no version in common of a required API: {texts[0]}.",
            WHY[Trouble.PROTOCOL],
            "Upgrade the older side; docs/brokers.md lists the supported releases.",
        )
        return


def _of_starts(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    """Yield findings about bootstrap addresses that fail although another one works."""
    pictures = {a.address: a for a in seen.picture.addresses}
    for a in reach.addresses:
        if a.brokers or a.error is None:
            continue
        if isinstance(a.error, ClusterIdMismatchError):
            yield _other_cluster(a.error)
            continue
        known = pictures.get(a.address)
        if known is None or known.stage is None:
            yield Finding(
                Trouble.BROKER,
                f"Bootstrap address {a.address} doesn't answer: {_meaning(a, known)}.",
                WHY[Trouble.BROKER],
                "Check that a broker is running there, or remove the address.",
            )
        else:
            yield _of_bootstrap(seen, known)


def _of_topics(reach: Reachability) -> Iterator[Finding]:
    if isinstance(reach.topics_error, AuthorizationError):
        yield _no_right(reach.topics_error)
    absent = f" (missing: {_listed(reach.absent)})" if reach.absent else ""
    for topic in reach.topics:
        if isinstance(topic.error, UnknownTopicOrPartitionError):
            yield Finding(
                Trouble.TOPIC,
                f"Topic {topic.topic} doesn't exist{did_you_mean(topic.near)}.",
                "Until it exists, producers wait and consumers receive nothing. Topic names "
                "distinguish upper and lower case.",
                f"Correct the name if it is misspelled. {cure(topic.topic, reach.servers)}",
            )
        elif isinstance(topic.error, AuthorizationError):
            yield _no_right(topic.error)
        elif topic.error is not None:
            yield Finding(
                Trouble.OTHER,
                f"Topic {topic.topic} can't be described: {_first_line(topic.error).rstrip('.')}.",
                "Nothing is known about its partitions.",
                "Run odradek doctor again; the brokers' logs say more.",
            )  # fmt: skip
        else:
            count = len(topic.leaderless)
            yield Finding(
                Trouble.LEADERLESS,
                f"{count} of {_partitions(topic.partitions)} of topic {topic.topic} "
                f"{'has' if count == 1 else 'have'} no leader ({_listed(topic.leaderless)}).",
                "A partition without a leader can be neither written to nor read from.",
                f"Start the brokers that hold the replicas{absent}. Only if those are lost for "
                "good, elect leaders uncleanly, which loses records: odradek partitions "
                "elect-leaders --help",
            )


def _user(name: str | None) -> str:
    return "This client's user" if name is None else f"User {name!r}"


def _no_right(error: AuthorizationError) -> Finding:
    who = _user(error.user)
    right = (
        "this operation" if error.operation is None else f"{error.operation} on {error.resource}"
    )
    return Finding(
        Trouble.RIGHTS,
        f"{who} isn't authorized for {right}.",
        DENIED,
        f"Have an ACL created that allows {right}: odradek acls create --help",
    )


REBALANCING = frozenset(("PreparingRebalance", "CompletingRebalance"))
"""States of a classic group in which no member has partitions."""


def _of_group(group: GroupStanding, servers: Iterable[object]) -> Iterator[Finding]:
    name, lag = shlex.quote(group.group_id), sum(group.waiting.values())
    if isinstance(group.error, AuthorizationError):
        yield _no_right(group.error)
    elif group.error is not None:
        yield Finding(
            Trouble.GROUP,
            f"No coordinator answers for group {name}: {_first_line(group.error).rstrip('.')}.",
            "Without its coordinator, a group can neither assign partitions nor commit offsets.",
            "If there are fewer than three brokers, set offsets.topic.replication.factor to at "
            "most their number (1 for a single broker): otherwise the topic __consumer_offsets "
            "can't be created.",
        )
    elif group.outside:
        partition, (begin, end) = next(iter(group.outside.items()))
        more = len(group.outside) - 1
        others = f" (and {more} more like it)" if more else ""
        yield Finding(
            Trouble.GROUP,
            f"Group {name} has committed offset {group.committed[partition]} of {partition}, which "
            f"doesn't exist: the log has offsets {begin} to {end}{others}.",
            "Its consumers start where auto.offset.reset says, so records are read twice or "
            "skipped; records that were deleted before they were read are lost to the group.",
            "If retention deleted the records, keep them longer or make the consumers faster; if "
            "the topic was recreated, reset the group's offsets: odradek groups reset-offsets "
            "--help",
        )
    elif group.state in REBALANCING:
        yield Finding(
            Trouble.GROUP,
            f"Group {name} is rebalancing ({group.state}, "
            f"{counted(group.members or 0, 'member')}): until that ends, no member "
            "receives records.",
            "The group waits until all members have rejoined: for a killed member until its "
            "session.timeout.ms expires (45 s by default), for a busy one until its next poll().",
            "Check again in a moment. If it lasts, find the member that doesn't join. "
            + lists_members(group.group_id, servers),
            grave=False,
        )
    elif not group.committed and group.waiting:
        yield Finding(
            Trouble.GROUP,
            f"Group {name} has no committed offsets, so a new consumer starts where "
            f"auto.offset.reset says; {counted(lag, 'record')} already "
            f"{'exists' if lag == 1 else 'exist'}.",
            "With the default, latest, a consumer reads only records that are written after it "
            "has joined, so the topic looks empty.",
            "To read the existing records with a new group, set auto.offset.reset=earliest.",
            grave=False,
        )
    elif lag and group.members == 0:
        yield Finding(
            Trouble.GROUP,
            f"Group {name} has a lag of {counted(lag, 'record')}, but no members to read them.",
            "A group without members loses its offsets after offsets.retention.minutes.",
            "Start its consumers; if they are running, they have another group.id.",
            grave=False,
        )
    elif lag:
        worst = max(group.waiting, key=lambda p: group.waiting[p])
        yield Finding(
            Trouble.GROUP,
            f"Group {name} has a lag of {counted(lag, 'record')}, the "
            f"largest in {worst} ({group.waiting[worst]:,}).",
            "The lag is the number of records after the group's committed offsets.",
            "Check again later: if the lag grows, the group needs more consumers (up to one per "
            "partition) or faster ones; if it doesn't change, no member commits.",
            grave=False,
        )


def _of_standings(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    wants_read = seen.found is not None and seen.found.group is not None
    for topic in reach.standings:
        may = topic.rights
        if may is not None and not (may & {"READ"} if wants_read else may & {"READ", "WRITE"}):
            missing = "READ" if wants_read else "READ or WRITE"
            right = f"{missing.partition(' ')[0]} --topic {shlex.quote(topic.topic)}"
            who = "User:…" if seen.user is None else shlex.quote(f"User:{seen.user}")
            create = f"acls create --allow-principal {who} --operation {right}"
            both = "" if wants_read else " (READ to consume, WRITE to produce)"
            yield Finding(
                Trouble.RIGHTS,
                f"{_user(seen.user)} may describe topic {topic.topic}, but not {missing} it.",
                DENIED,
                f"Have an ACL created{both}: {command(create, reach.servers)}",
            )
    behind = [topic for topic in reach.standings if topic.under_replicated]
    if behind:
        first = behind[0]
        count = sum(len(topic.under_replicated) for topic in behind)
        yield Finding(
            Trouble.UNDER_REPLICATED,
            f"{_partitions(count)} of {_topics(len(behind))} {'has' if count == 1 else 'have'} "
            f"replicas that aren't in sync: {first.topic}-{first.under_replicated[0]}"
            f"{', …' if count > 1 else ''}.",
            "If the broker with a partition's last in-sync replica fails, its records are lost; "
            "below min.insync.replicas, brokers already reject writes with acks=all.",
            "Start the missing brokers, and wait until those that have come back catch up.",
        )


def _of_clock(seen: Seen) -> Iterator[Finding]:
    ahead = seen.ahead
    if ahead is None or abs(ahead) < CLOCKS_APART:
        return
    way = "ahead of" if ahead > 0 else "behind"
    here = seen.around.here
    yield Finding(
        Trouble.CLOCK,
        f"The clock of {here} is {abs(ahead):.0f} s {way} the cluster's.",
        "Tokens and certificates look expired or not valid yet; records get wrong timestamps, and "
        "brokers reject timestamps that are too far in the future.",
        f"Set the clock of {here} or of the controller, whichever is wrong, by a time server "
        "(NTP).",
    )


def _of_quotas(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    slowed = [a for a in reach.addresses if a.throttle > 0]
    if slowed:
        yield Finding(
            Trouble.THROTTLED,
            f"The cluster throttles this client: {slowed[0].address} delays its requests by "
            f"{max(a.throttle for a in slowed):.1f} s.",
            "The client exceeds a quota of its user or client.id, so every request takes longer.",
            "Raise the quota (odradek quotas alter --help), or send and fetch less.",
        )
    for entity, found in ((None if seen.found is None else seen.found.quotas) or {}).items():
        numbers = sorted(found.items())
        limits = ", ".join(f"{name} {_plain_number(limit)}" for name, limit in numbers)
        named = (("user", entity.user), ("client-id", entity.client_id))
        whose = " with ".join(
            f"any {kind} without a quota of its own"
            if name == ClientQuotaEntity.DEFAULT
            else f"{kind} {name!r}"
            for kind, name in named
            if name is not None
        )
        yield Finding(
            Trouble.THROTTLED,
            f"There is a quota for {whose}: {limits}.",
            "Brokers throttle clients that exceed it; no records are lost.",
            "The cluster's administrators can raise it.",
            grave=False,
        )


def _of_certificates(seen: Seen) -> Iterator[Finding]:
    for address, ends in (seen.around.certificates or {}).items():
        left = ends - seen.around.now
        if left < SOON:
            yield Finding(
                Trouble.TLS,
                f"The certificate of {address} expires in "
                f"{counted(round(max(0.0, left) / 86400), 'day')}.",
                "After that, clients can't connect any more.",
                "Renew the broker's certificate before then.",
                grave=False,
            )
            return


# Texts


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _loopback(host: str) -> bool:
    return host.startswith(LOOPBACK)


def _first_line(error: BaseException | None) -> str:
    return str(error).partition("\n")[0]


def _plain(said: str) -> str:
    name, colon, text = said.partition(": ")
    return (text if colon and name.endswith("Error") else said).rstrip(".")


def _listed(numbers: Sequence[int]) -> str:
    left = len(numbers) - NAMED
    return ", ".join(map(str, numbers[:NAMED])) + (f" and {left} more" if left > 0 else "")


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def _topics(count: int) -> str:
    return f"{count} topic{'' if count == 1 else 's'}"


def _plain_number(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:g}"
