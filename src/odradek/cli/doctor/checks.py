"""The table of `odradek doctor`: a row for each step between a client and a record.

In: what was observed, and the findings. Out: steps with `ok`, `wrong`, `-` (not reached, or not
requested) and a detail. Must not: contain rules of its own; a step is wrong if there is a finding
about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from odradek.cli.doctor.findings import Finding, Seen, Trouble
from odradek.cli.frame.results import counted
from odradek.clients.explain.causes import SAYS_NOTHING, ConnectionStage
from odradek.common.printable import cleaned
from odradek.common.topic_names import KAFKAS_OWN

if TYPE_CHECKING:
    from odradek.clients.explain.explanation import AddressExplanation

OK, WRONG, NOT_SEEN = "ok", "wrong", "-"
DAY = 86400.0
WAY = (
    ("name", ConnectionStage.NAME, Trouble.NAME),
    ("connection", ConnectionStage.NETWORK, Trouble.NETWORK),
    ("TLS", ConnectionStage.TLS, Trouble.TLS),
    ("login", ConnectionStage.SASL, Trouble.SASL),
    ("Kafka's protocol", ConnectionStage.PROTOCOL, Trouble.PROTOCOL),
    ("answers", ConnectionStage.BROKER, Trouble.BROKER),
)
"""Steps of one connection, in order; with a proxy, the proxy step comes first."""
CLUSTER = ("brokers' addresses", "cluster id", "topics", "permissions", "group", "clocks", "quotas")
UNTRIED = -1
RANK = {
    stage: place
    for place, stage in enumerate((ConnectionStage.PROXY, *(stage for _, stage, _ in WAY)))
}


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table: a step, its state and a detail."""

    step: str
    state: str
    detail: str

    def to_dict(self) -> dict[str, str]:
        """Return plain data."""
        return asdict(self)


def checks(seen: Seen, found: Sequence[Finding]) -> list[Check]:
    """Return all steps in order."""
    wrong = {one.kind for one in found if one.grave}
    return [cleaned(one) for one in (*_way(seen), *_cluster(seen, wrong))]


def _way(seen: Seen) -> Iterator[Check]:
    """Yield the connection steps of the bootstrap address that got furthest."""
    starts = [a for a in seen.picture.addresses if "bootstrap" in a.role]
    if not starts:
        return
    best = max(starts, key=_progress)
    reached = RANK[ConnectionStage.PROTOCOL] if _lacks_versions(seen) else _progress(best)
    for step, stage, _ in WAY:
        rank = RANK[stage]
        detail = _detail(seen, best, stage)
        if rank < reached:
            skipped = detail == "none"
            if stage is ConnectionStage.PROTOCOL and best.meaning in SAYS_NOTHING:
                skipped = True  # the failure doesn't tell if this step worked
            yield Check(step, NOT_SEEN if skipped else OK, detail)
        else:
            meaning = best.meaning or best.last_error or ""
            yield Check(step, WRONG if rank == reached else NOT_SEEN, meaning * (rank == reached))


def _lacks_versions(seen: Seen) -> bool:
    """Return whether the broker accepted the login but lacks an API version this client needs."""
    return seen.found is not None and bool(seen.found.lacking)


def _progress(a: AddressExplanation) -> int:
    """Return the rank of the stage at which an address fails.

    Addresses that answer rank highest, addresses that were never tried lowest.
    """
    if a.stage is None:
        return len(RANK) + 1 if a.ready or a.proved else UNTRIED
    return RANK.get(ConnectionStage(a.stage), len(RANK))


def _detail(seen: Seen, a: AddressExplanation, stage: ConnectionStage) -> str:
    if stage is ConnectionStage.NAME:
        host = a.address.rpartition(":")[0].strip("[]")
        return host if a.ip in (None, host) else f"{host} is {a.ip}"
    if stage is ConnectionStage.NETWORK:
        return a.address
    if stage is ConnectionStage.TLS:
        if not seen.protocol.endswith("SSL"):
            return "none"
        ends = (seen.around.certificates or {}).get(a.address)
        days = None if ends is None else (ends - seen.around.now) / DAY
        return "" if days is None else f"the certificate expires in {counted(round(days), 'day')}"
    if stage is ConnectionStage.SASL:
        return seen.mechanism or "none"
    return ""


def _cluster(seen: Seen, wrong: set[Trouble]) -> Iterator[Check]:
    """Yield the steps that depend on answers of the cluster."""
    reach = seen.reach
    if reach is None:
        for step in (
            "brokers' addresses",
            "cluster id",
            "topics",
            "permissions",
            "group",
            "clocks",
            "quotas",
        ):
            yield Check(step, NOT_SEEN, "")
        return
    brokers = reach.brokers
    answering = sum(a.error is None for a in brokers)
    yield Check(
        "brokers' addresses",
        WRONG if Trouble.ADVERTISED in wrong or answering < len(brokers) else OK,
        f"{answering} of {len(brokers)} answer: "
        + ", ".join(a.address for a in brokers[:3])
        + (" …" if len(brokers) > 3 else ""),
    )
    yield Check("cluster id", WRONG if Trouble.CLUSTER in wrong else OK, reach.cluster_id or "none")
    bad = wrong & {Trouble.TOPIC, Trouble.LEADERLESS, Trouble.UNDER_REPLICATED}
    there = sum(topic.partitions for topic in reach.standings)
    own = any(topic.topic in KAFKAS_OWN for topic in reach.standings)
    yield Check(
        "topics", WRONG if bad else OK,
        (f"found {len(reach.standings)} of the named topics" if seen.topics_named
         else counted(len(reach.standings), "topic"))
        + f", {counted(there, 'partition')}"
        + (", including Kafka's internal topics" if own else ""),
    )  # fmt: skip
    rights = [(t.topic, t.rights) for t in reach.standings if t.rights is not None]
    told = "; ".join(f"{topic}: {', '.join(sorted(may)) or 'none'}" for topic, may in rights[:3])
    asked = bool(rights) or Trouble.RIGHTS in wrong
    state = WRONG if Trouble.RIGHTS in wrong else OK if asked else NOT_SEEN
    unasked = "not reported by the brokers" if seen.topics_named else "checked with --topic"
    yield Check("permissions", state, told if asked else unasked)
    group = None if seen.found is None else seen.found.group
    if group is None:
        yield Check("group", NOT_SEEN, "checked with --group")
    else:
        lag = sum(group.waiting.values())
        said = f"{counted(len(group.committed), 'partition')} committed, lag {lag:,}"
        if group.state is not None:
            said = f"{group.state}, {counted(group.members or 0, 'member')}; {said}"
        unsaid = WRONG if wrong & {Trouble.GROUP, Trouble.RIGHTS} else NOT_SEEN
        bad_group = group.error is not None
        yield Check("group", unsaid if bad_group else OK, "" if bad_group else said)
    ahead = seen.ahead
    told = "" if ahead is None else f"{abs(ahead):.1f} s apart"
    yield Check("clocks", NOT_SEEN if ahead is None else _state(Trouble.CLOCK, wrong), told)
    slow = max((a.throttle for a in reach.addresses), default=0.0)
    yield Check("quotas", WRONG if slow else OK, f"throttled for {slow:.1f} s" if slow else "")


def _state(kind: Trouble, wrong: set[Trouble]) -> str:
    return WRONG if kind in wrong else OK
