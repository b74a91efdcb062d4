"""Collect further facts about a cluster for `odradek doctor`: its clock, quotas, a group's members.

In: an engine, a deadline. Out: short results of admin calls; None if the cluster doesn't support a
request or refuses it: no finding depends on one of these alone. Must not: send a request that isn't
an admin call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.clients.admin.cluster import quorum
from odradek.clients.admin.groups import describe_consumer
from odradek.clients.admin.users import ClientQuotaEntity, describe_quotas
from odradek.common.errors import KafkaError
from odradek.network.flow import START, Flow

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

MILLISECONDS = 1000.0


@dataclass(frozen=True, slots=True)
class ClusterClock:
    """The controller's clock, compared with the client's."""

    seconds: float
    """The controller's time in seconds since the epoch."""
    at: float
    """Time on the client's monotonic clock at which the controller's clock showed `seconds`:
    halfway between request and response."""
    tolerance: float
    """Duration of the request in seconds: the largest possible error of `seconds`."""


def cluster_clock(engine: AdminEngine, deadline: float) -> Flow[ClusterClock | None]:
    """Estimate the controller's clock, which it reports as its own caught-up time (KIP-836)."""
    asked = yield START
    try:
        found = yield from quorum().flow(engine, deadline)
    except KafkaError:
        return None
    now = engine.now
    for voter in found.voters:
        if voter.id == found.leader_id and voter.last_caught_up_ms is not None:
            seconds = voter.last_caught_up_ms / MILLISECONDS
            return ClusterClock(seconds, (asked + now) / 2, now - asked)
    return None


def quotas_of_this_client(
    engine: AdminEngine, deadline: float
) -> Flow[dict[ClientQuotaEntity, dict[str, float]] | None]:
    """Return the quotas of this client's user and `client.id`, and the default quotas."""
    yield START
    try:
        found = yield from describe_quotas(None, strict=False).flow(engine, deadline)
    except KafkaError:
        return None
    default = ClientQuotaEntity.DEFAULT
    users = (None, default, engine.network.user)
    clients = (None, default, engine.network.client_id)
    return {
        entity: limits
        for entity, limits in found.items()
        if entity.user in users and entity.client_id in clients and entity.ip is None
    }


def members(engine: AdminEngine, group: str, deadline: float) -> Flow[tuple[str, int] | None]:
    """Return a group's state, as Kafka names it, and its number of members."""
    yield START
    try:
        found = yield from describe_consumer([group], authorized_operations=False).flow(
            engine, deadline
        )
    except KafkaError:
        return None
    one = found[group]
    return None if one.state == "Dead" else (one.state, len(one.members))
