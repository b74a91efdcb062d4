"""What is wrong with a cluster, or with the way to it, in whole sentences: the first one first.

In: what an admin client found (`examine`), its own picture (`explain`), the surroundings. Out:
findings, the gravest first, each with why it matters and what mends it. Must not: ask anybody
anything, or guess where somebody has said it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odradek.cli.doctor.surroundings import Surroundings
from odradek.clients.admin.reachability import AddressReach, Reachability
from odradek.clients.admin.users import ClientQuotaEntity
from odradek.clients.explain.causes import DialStage
from odradek.clients.missing_topics import cure, like_it
from odradek.common.errors import (
    AuthenticationError,
    AuthorizationError,
    ClusterIdMismatchError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.printable import cleaned

if TYPE_CHECKING:
    from odradek.clients.admin.examination import Examination, GroupStanding
    from odradek.clients.explain.explanation import AddressExplanation, Explanation

SOON = 14 * 86400.0
"""Seconds before a certificate's end from which on it is worth a word."""
CLOCKS_APART = 60.0
"""Seconds from which on two clocks are a trouble: tokens and tickets bear less than that of it."""
NAMED = 5
"""Addresses and partitions that a sentence names; of the others there is their number."""
LOOPBACK = ("localhost", "127.", "::1", "[::1]")
HOST_OF_CONTAINERS = "host.docker.internal"


class Trouble(StrEnum):
    """What kind of trouble it is. The order is that of the way to a record."""

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
    Trouble.OTHER: 1,
}
"""Exit statuses by kind; 0: nothing is wrong, 2: wrong use."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing."""

    kind: Trouble
    what: str
    """One plain sentence."""
    why: str
    """Why it matters."""
    cure: str
    grave: bool = True
    """It keeps records from going; else it is only worth knowing."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was seen."""

    picture: Explanation
    error: KafkaError | None
    """Why there is no examination, if so."""
    found: Examination | None
    protocol: str
    """`security.protocol`."""
    mechanism: str | None = None
    """`sasl.mechanism`, where it is used."""
    around: Surroundings = field(default_factory=Surroundings)
    topics_named: bool = False
    """Whether topics were named, so that their rights were asked for."""

    @property
    def ahead(self) -> float | None:
        """Seconds that this machine's clock is ahead of the cluster's, as far as that shows."""
        clock = None if self.found is None else self.found.clock
        if clock is None:
            return None
        here = self.around.now - (self.around.at - clock.at)
        ahead = here - clock.seconds
        return ahead if abs(ahead) > clock.tolerance else 0.0

    @property
    def reach(self) -> Reachability | None:
        """What of the cluster can be used."""
        return None if self.found is None else self.found.reach


def findings(seen: Seen) -> list[Finding]:
    """Everything that is wrong, in the order in which it should be mended."""
    reach = seen.reach
    found = list(_unreached(seen)) if reach is None else list(_reached(seen, reach))
    grave = [one for one in found if one.grave]
    order = list(Trouble)
    grave.sort(key=lambda one: order.index(one.kind) if reach is not None else 0)
    return [cleaned(one) for one in [*grave, *(one for one in found if not one.grave)]]


# Nobody was reached


def _unreached(seen: Seen) -> Iterator[Finding]:
    """There is no metadata. What got furthest on its way says most."""
    if isinstance(seen.error, ClusterIdMismatchError):
        yield _other_cluster(seen.error)
        return
    starts = [a for a in seen.picture.addresses if "bootstrap" in a.role]
    order = list(DialStage)
    failing = [a for a in starts if a.stage is not None]
    failing.sort(key=lambda a: -order.index(DialStage(a.stage or DialStage.NAME)))
    for address in failing:
        yield _of_bootstrap(seen, address)
    if failing:
        return
    said = seen.picture.attempts[-1].error if seen.picture.attempts else str(seen.error)
    who = starts[0].address if starts else "the cluster"
    if isinstance(seen.error, AuthenticationError):
        yield Finding(
            Trouble.SASL, f"{who} doesn't let this client in: {_first_line(seen.error)}",
            WHY[Trouble.SASL], seen.error.cure,
        )  # fmt: skip
        return
    if not any(a.ready or a.proved for a in starts):
        yield Finding(
            Trouble.OTHER,
            f"{who} hasn't answered in the time that there was.",
            "Nothing can be said of a cluster before somebody answers.",
            "Look for longer: --timeout 30.",
        )
        return
    yield Finding(
        Trouble.BROKER,
        f"{who} answers, and gives no picture of its cluster: {_plain(said)}.",
        "A client has to learn the brokers' addresses and the partitions' leaders from somebody.",
        "Read the broker's log: it is starting, or doesn't reach the controllers "
        "(controller.quorum.bootstrap.servers).",
    )


WHY = {
    Trouble.NAME: "Without an address for the name nothing can be dialled.",
    Trouble.NETWORK: "Nothing else can be tried before a connection is there.",
    Trouble.PROXY: "All connections go through the proxy (proxy.url), so none gets to a broker.",
    Trouble.TLS: "Nothing is sent before both agree on TLS and the broker has shown who it is.",
    Trouble.SASL: "Brokers answer nothing else before they know who asks.",
    Trouble.PROTOCOL: "Whatever answers there isn't a Kafka broker that this client can talk to.",
    Trouble.BROKER: "The way is open, but nobody works at its end.",
    Trouble.CLUSTER: "Records would end in a cluster that nobody meant.",
}
TROUBLES = {
    DialStage.NAME: Trouble.NAME,
    DialStage.NETWORK: Trouble.NETWORK,
    DialStage.PROXY: Trouble.PROXY,
    DialStage.TLS: Trouble.TLS,
    DialStage.SASL: Trouble.SASL,
    DialStage.PROTOCOL: Trouble.PROTOCOL,
    DialStage.BROKER: Trouble.BROKER,
    DialStage.CLUSTER: Trouble.CLUSTER,
}


def _of_bootstrap(seen: Seen, a: AddressExplanation) -> Finding:
    """Why a bootstrap address doesn't answer."""
    kind = TROUBLES[DialStage(a.stage or DialStage.BROKER)]
    host = _host(a.address)
    what, mends = _in_words(seen, a.address, kind, a.meaning or ""), a.cure or ""
    if kind is Trouble.NAME and host == HOST_OF_CONTAINERS:
        mends = (
            f"On Linux a container knows {host} only when it is told: start it with `--add-host "
            f"{host}:host-gateway` (in Compose: extra_hosts)."
        )
    elif kind is Trouble.NAME and seen.around.container:
        mends = (
            "In a container a broker's name is that of its service, and both have to be in the "
            f"same network (`docker network ls`). {mends}"
        )
    elif what.startswith("Nothing listens") and _loopback(host):
        what += f" {_localhost(host)}" if seen.around.container else ""
        mends = _for_localhost(seen, a.address)
    return Finding(kind, what, WHY[kind], mends)


def _in_words(seen: Seen, address: str, kind: Trouble, meaning: str) -> str:
    """The sentence for an address that isn't there."""
    host, here = _host(address), seen.around.here
    if kind is Trouble.NAME and "server" not in meaning:
        name = here[0].upper() + here[1:]
        return f"{name} doesn't know the name {host} (of {address})."
    if kind is Trouble.NETWORK and meaning.startswith("nothing listens"):
        return f"Nothing listens at {address}: no broker runs there, or host or port are wrong."
    texts = {
        Trouble.NAME: f"{address} can't be looked up: {meaning}.",
        Trouble.NETWORK: f"{address} can't be reached: {meaning}.",
        Trouble.PROXY: f"The proxy doesn't lead to {address}: {meaning}.",
        Trouble.TLS: f"TLS with {address} fails: {meaning}.",
        Trouble.SASL: f"{address} doesn't let this client in: {meaning}.",
        Trouble.PROTOCOL: f"{address} isn't a Kafka broker: {meaning}.",
        Trouble.BROKER: f"{address} doesn't work: {meaning}.",
    }
    return texts.get(kind, f"{address}: {meaning}.")


def _localhost(host: str) -> str:
    return f"And in a container {host} is the container itself, not the machine that it runs on."


def _for_localhost(seen: Seen, address: str) -> str:
    port = address.rpartition(":")[2]
    if seen.around.container:
        return (
            "If the broker runs in this container, start it, or correct the port. Else use the "
            "name of the broker's container or service, from a network that both are in; or, for a "
            f"broker on the machine itself, {HOST_OF_CONTAINERS}:{port}."
        )
    return (
        f"Start the broker. If it runs in a container, publish its port (`docker run -p {port}:"
        f"{port} …`). `odradek cluster start` gives you three brokers to try with."
    )


# The cluster was reached


def _reached(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    yield from _of_versions(seen)
    yield from _of_brokers(seen, reach)
    yield from _of_starts(seen, reach)
    yield from _of_topics(reach)
    group = None if seen.found is None else seen.found.group
    quiet = any(a.throttle > 0 for a in reach.addresses)
    # Who has to keep quiet gets no answer in time, and no coordinator is to blame for it.
    if group is not None and not (quiet and isinstance(group.error, KafkaTimeoutError)):
        yield from _of_group(group)
    yield from _of_standings(seen, reach)
    yield from _of_quotas(seen, reach)
    yield from _of_clock(seen)
    yield from _of_certificates(seen)


def _of_brokers(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    """The addresses that brokers advertise: where most newcomers are lost."""
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
                f"Brokers {ids} all say that they are at {shared.address}, where only one can be.",
                "What is meant for one of them goes to another, which refuses it.",
                "Give each broker an advertised.listeners of its own (another host, or another "
                "port).",
            )
    if reach.absent:
        one = len(reach.absent) == 1
        ids = _listed(reach.absent)
        yield Finding(
            Trouble.UNDER_REPLICATED,
            f"Broker {ids} should hold copies of partitions, and isn't in the cluster."
            if one
            else f"Brokers {ids} should hold copies of partitions, and aren't in the cluster.",
            "What was copied there has fewer copies now, and where none is left, no leader.",
            "Start it again; if it runs, its log says why the cluster has shut it out."
            if one
            else "Start them again; if they run, their logs say why the cluster has shut them out.",
        )


def _of_advertised(
    seen: Seen,
    reach: Reachability,
    failing: Sequence[AddressReach],
    pictures: dict[str, AddressExplanation],
) -> Finding:
    first = failing[0]
    picture = pictures.get(first.address)
    stage = None if picture is None or picture.stage is None else DialStage(picture.stage)
    meaning = _meaning(first, picture)
    starts = [a.address for a in reach.addresses if a.bootstrap]
    start = next((a.address for a in reach.addresses if a.bootstrap and a.error is None), starts[0])
    if isinstance(first.error, ClusterIdMismatchError):
        return _other_cluster(first.error)
    if stage in (DialStage.TLS, DialStage.SASL, DialStage.PROTOCOL) and picture is not None:
        kind = TROUBLES[stage]
        what = _in_words(seen, first.address, kind, meaning)
        return Finding(
            kind, f"{what} The cluster sends clients there from {start}.", WHY[kind],
            picture.cure or "",
        )  # fmt: skip
    host = _host(first.address)
    count = len(reach.brokers)
    if len(failing) < count:
        return Finding(
            Trouble.ADVERTISED,
            f"{len(failing)} of {count} brokers can't be reached from {seen.around.here}: broker "
            f"{_listed(first.brokers)} at {first.address} ({meaning}).",
            "What a broker leads can only be written to and read from there"
            + (f": {_partitions(first.leads)} of {first.address}." if first.leads else "."),
            "See that it runs; if it does, its advertised.listeners must be an address that "
            f"{seen.around.here} can reach.",
        )
    sends = f"The cluster answers at {start}, and sends clients on to {first.address}"
    if _loopback(host) and not _loopback(_host(start)):
        what = f"{sends}: there, {host} is {seen.around.here}, and not the broker's machine."
    elif stage is DialStage.NAME:
        what = f"{sends}, a name that {seen.around.here} doesn't know."
    else:
        what = f"{sends}; from {seen.around.here}, {meaning.partition(':')[0]}."
    return Finding(
        Trouble.ADVERTISED,
        what,
        "A client asks the bootstrap address only who the brokers are. From then on it dials what "
        "they call their own address, their advertised.listeners, and that has to be right for "
        "every client's machine.",
        _for_advertised(seen.protocol, start, first.address),
    )


def _for_advertised(protocol: str, start: str, advertised: str) -> str:
    return (
        "In the broker's server.properties, set advertised.listeners to an address that works from "
        f"here, for example {protocol}://{start} (in a container's environment: "
        f"KAFKA_ADVERTISED_LISTENERS). If other clients need {advertised}, give the broker two "
        "listeners with an address each, and use the port of the one that is meant for you."
    )


def _meaning(a: AddressReach, picture: AddressExplanation | None) -> str:
    if picture is not None and picture.meaning is not None:
        return picture.meaning
    return _first_line(a.error)


def _other_cluster(error: ClusterIdMismatchError) -> Finding:
    return Finding(
        Trouble.CLUSTER,
        f"{error.address} belongs to cluster {error.found}, and cluster {error.expected} is the "
        "one that is meant.",
        WHY[Trouble.CLUSTER],
        "Correct the address; if the cluster was made again on purpose, correct "
        "cluster.id.expected and start the clients again.",
    )


def _of_versions(seen: Seen) -> Iterator[Finding]:
    lacking = {} if seen.found is None else seen.found.lacking
    for address, texts in lacking.items():
        yield Finding(
            Trouble.PROTOCOL,
            f"{address} and this client have no version in common of what both need: {texts[0]}.",
            WHY[Trouble.PROTOCOL],
            "Upgrade the side that is older; docs/brokers.md has the releases that fit.",
        )
        return


def _of_starts(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    """Bootstrap addresses that don't answer, while the cluster was reached by another."""
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
                "See that a broker runs there, or leave the address out.",
            )
        else:
            yield _of_bootstrap(seen, known)


def _of_topics(reach: Reachability) -> Iterator[Finding]:
    if isinstance(reach.topics_error, AuthorizationError):
        yield _no_right(reach.topics_error)
    absent = f" (broker {_listed(reach.absent)} is missing)" if reach.absent else ""
    for topic in reach.topics:
        if isinstance(topic.error, UnknownTopicOrPartitionError):
            yield Finding(
                Trouble.TOPIC,
                f"There is no topic {topic.topic}{like_it(topic.near)}.",
                "Producers wait for it, and consumers get nothing, without an end. Names count "
                "letter by letter, capitals too.",
                f"Correct the name, or make the topic. {cure(topic.topic, reach.servers)}",
            )
        elif isinstance(topic.error, AuthorizationError):
            yield _no_right(topic.error)
        elif topic.error is not None:
            yield Finding(
                Trouble.OTHER,
                f"Topic {topic.topic} can't be looked at: {_first_line(topic.error).rstrip('.')}.",
                "Nothing is known of its partitions.", "Ask again; the brokers' logs say more.",
            )  # fmt: skip
        else:
            count = len(topic.leaderless)
            yield Finding(
                Trouble.LEADERLESS,
                f"{count} of {_partitions(topic.partitions)} of topic {topic.topic} "
                f"{'has' if count == 1 else 'have'} no leader ({_listed(topic.leaderless)}).",
                "Nothing is written to a partition without a leader, and nothing is read from it.",
                f"Start the brokers that hold its copies{absent}. Only where those are lost for "
                "good is an unclean election the way, which loses records.",
            )


def _no_right(error: AuthorizationError) -> Finding:
    who = "This client's user" if error.user is None else f"User {error.user!r}"
    right = error.operation or "the right"
    on = error.resource or "what was asked for"
    return Finding(
        Trouble.RIGHTS,
        f"{who} has no right to {right} on {on}.",
        "The broker knows who asks, and refuses just this; waiting changes nothing.",
        f"Have an ACL made: kafka-acls.sh --add --allow-principal User:… --operation {right} on "
        f"{on}.",
    )


REBALANCING = frozenset(("PreparingRebalance", "CompletingRebalance"))
"""Kafka's states of a classic group in which nobody has anything to read."""


def _of_group(group: GroupStanding) -> Iterator[Finding]:
    name = shlex.quote(group.group_id)
    if isinstance(group.error, AuthorizationError):
        yield _no_right(group.error)
    elif group.error is not None:
        yield Finding(
            Trouble.GROUP,
            f"No coordinator answers for group {name}: {_first_line(group.error).rstrip('.')}.",
            "Without its coordinator a group can't share partitions out, nor commit.",
            "With few brokers, set offsets.topic.replication.factor to at most their number "
            "(1 for a single broker): else the topic __consumer_offsets can't be made.",
        )
    elif group.outside:
        partition, (begin, end) = next(iter(group.outside.items()))
        more = len(group.outside) - 1
        others = f", and of {_partitions(more)} more likewise" if more else ""
        yield Finding(
            Trouble.GROUP,
            f"Group {name} goes on from offset {group.committed[partition]} of {partition}, which "
            f"isn't there: the log has {begin} to {end}{others}.",
            "Its consumers begin where auto.offset.reset says: records are read again, or never; "
            "what was deleted before they came is lost to them.",
            "If retention deleted the records, make it longer or the consumers faster; if the "
            "topic was made again, reset the group's offsets (kafka-consumer-groups.sh "
            "--reset-offsets).",
        )
    elif group.state in REBALANCING:
        yield Finding(
            Trouble.GROUP,
            f"Group {name} shares its partitions out just now ({group.state}, {group.members} "
            "members): until that is over nobody reads.",
            "It waits until all members have joined again: for one that was killed until its "
            "session.timeout.ms is over (45 s), for one that is at work until its next poll().",
            f"Ask again in a moment. If it lasts, `odradek groups members {name}` says who is "
            "there, and who has which partitions.",
            grave=False,
        )
    elif not group.committed and group.waiting:
        total = sum(group.waiting.values())
        yield Finding(
            Trouble.GROUP,
            f"Group {name} has committed nothing, so a new consumer begins where "
            f"auto.offset.reset says; {total} records are there already.",
            "With the default, latest, a consumer reads only what is written after it came: it "
            "looks as if nothing were there.",
            "To read what is there, set auto.offset.reset=earliest for a group that is new.",
            grave=False,
        )
    elif sum(group.waiting.values()) and group.members == 0:
        yield Finding(
            Trouble.GROUP,
            f"{sum(group.waiting.values())} records wait for group {name}, which has no members: "
            "nobody reads them.",
            "The group's place is kept until offsets.retention.minutes have passed.",
            "Start its consumers; if they run, their group.id isn't this one.",
            grave=False,
        )
    elif sum(group.waiting.values()):
        worst = max(group.waiting, key=lambda p: group.waiting[p])
        yield Finding(
            Trouble.GROUP,
            f"{sum(group.waiting.values())} records wait for group {name}, most of them in "
            f"{worst} ({group.waiting[worst]}).",
            "That is its lag: what was written and isn't committed as read.",
            "Ask again in a while: a lag that grows wants more consumers (up to one a partition), "
            "or faster ones; one that stays the same means that nobody commits.",
            grave=False,
        )


def _of_standings(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    wants_read = seen.found is not None and seen.found.group is not None
    for topic in reach.standings:
        may = topic.rights
        if may is not None and not (may & {"READ"} if wants_read else may & {"READ", "WRITE"}):
            missing = "READ" if wants_read else "READ or WRITE"
            yield Finding(
                Trouble.RIGHTS,
                f"This client's user may see topic {topic.topic}, and not {missing} it.",
                "The broker knows who asks, and refuses the records; waiting changes nothing.",
                "Have an ACL made: kafka-acls.sh --add --allow-principal User:… --operation "
                f"{missing.partition(' ')[0]} --topic {shlex.quote(topic.topic)}.",
            )
    behind = [topic for topic in reach.standings if topic.under_replicated]
    if behind:
        first = behind[0]
        count = sum(len(topic.under_replicated) for topic in behind)
        yield Finding(
            Trouble.UNDER_REPLICATED,
            f"{_partitions(count)} of {_topics(len(behind))} {'has' if count == 1 else 'have'} "
            f"fewer copies in step than they should, among them {first.topic}-"
            f"{first.under_replicated[0]}.",
            "If the broker that has a partition's last copy dies, its records are lost; and below "
            "min.insync.replicas, writes with acks=all are refused already.",
            "Start the brokers that are missing, and give those that have come back the time to "
            "catch up.",
        )


def _of_clock(seen: Seen) -> Iterator[Finding]:
    ahead = seen.ahead
    if ahead is None or abs(ahead) < CLOCKS_APART:
        return
    way = "ahead of" if ahead > 0 else "after"
    here = seen.around.here
    yield Finding(
        Trouble.CLOCK,
        f"The clock of {here} is {abs(ahead):.0f} s {way} the cluster's.",
        "Tokens and certificates look expired, or not valid yet; records get times that are wrong, "
        "and brokers refuse those that are too far in the future.",
        f"Set the clock of {here} by a time server (NTP), or the controller's, whichever is wrong.",
    )


def _of_quotas(seen: Seen, reach: Reachability) -> Iterator[Finding]:
    slowed = [a for a in reach.addresses if a.throttle > 0]
    if slowed:
        yield Finding(
            Trouble.THROTTLED,
            f"The cluster slows this client down: {slowed[0].address} asked it to keep quiet for "
            f"{max(a.throttle for a in slowed):.1f} s.",
            "It is above a quota of its user or its client.id, so everything takes longer.",
            "Have the quota raised (kafka-configs.sh --alter --entity-type users or clients), or "
            "send and fetch less.",
        )
    for entity, found in ((None if seen.found is None else seen.found.quotas) or {}).items():
        numbers = sorted(found.items())
        limits = ", ".join(f"{name} {_plain_number(limit)}" for name, limit in numbers)
        named = (("client-id", entity.client_id), ("user", entity.user))
        whose = " and ".join(
            f"every {kind} without one of its own"
            if name == ClientQuotaEntity.DEFAULT
            else f"{kind} {name!r}"
            for kind, name in named
            if name is not None
        )
        yield Finding(
            Trouble.THROTTLED,
            f"There is a quota for {whose}: {limits}.",
            "Who is above it is slowed down by the brokers; nothing is lost.",
            "It is as your cluster's operators want it; they can raise it.",
            grave=False,
        )


def _of_certificates(seen: Seen) -> Iterator[Finding]:
    for address, ends in (seen.around.certificates or {}).items():
        left = ends - seen.around.now
        if left < SOON:
            yield Finding(
                Trouble.TLS,
                f"The certificate of {address} ends in {max(0.0, left) / 86400:.0f} days.",
                "From then on no client connects any more.",
                "Have the broker's certificate renewed in time.",
                grave=False,
            )
            return


# Words


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
