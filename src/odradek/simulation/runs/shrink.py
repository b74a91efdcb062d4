"""Shorten a failing schedule: remove everything that the failure doesn't need.

In: a schedule, and a function that returns whether a schedule still fails in the same way. Out: a
smaller schedule that fails in the same way. The search is greedy: it removes faults in chunks, then
clients, operations, brokers, partitions and settings, until nothing can be removed or `go_on`
returns False. Must not read a clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from odradek.common.errors import ConfigurationError
from odradek.simulation.faults.fault_table import VERBS, Fault
from odradek.simulation.runs.schedule import Schedule, ScheduledClient, settings
from odradek.simulation.world.link import LinkProfile

Fails = Callable[[Schedule], bool]


def kind(violation: str | None) -> str | None:
    """Return a violation's text without times, addresses and names, to compare two violations."""
    if violation is None:
        return None
    return re.sub(r"'[^']*'|[\w.]*\d[\w.:/-]*", "#", violation).split("; ")[0][:80]


def shrunk(schedule: Schedule, fails: Fails, go_on: Callable[[], bool] = lambda: True) -> Schedule:
    """Return the smallest failing schedule that was found."""
    while True:
        for smaller in _smaller(schedule):
            if not go_on():
                return schedule
            if fails(smaller):
                schedule = smaller
                break
        else:
            return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yield smaller schedules, the one with the largest reduction first."""
    yield from _fewer_faults(schedule)
    for client in schedule.clients if len(schedule.clients) > 1 else ():
        yield _fitted(
            replace(schedule, clients=tuple(c for c in schedule.clients if c is not client))
        )
    for part in ("partitions", "brokers"):
        for count in dict.fromkeys((1, getattr(schedule, part) - 1)):
            if 0 < count < getattr(schedule, part):
                yield _fitted(replace(schedule, **{part: count}))
    yield from _simpler_clients(schedule)
    yield from _simpler_faults(schedule)
    for left_out in schedule.cluster:
        cluster = {k: v for k, v in schedule.cluster.items() if k != left_out}
        yield _fitted(replace(schedule, cluster=cluster))
    if schedule.link != LinkProfile():
        yield replace(schedule, link=LinkProfile())
    if schedule.mode != "messages":
        yield replace(schedule, mode="messages")
    last = max((f.at for f in schedule.faults), default=0.0)
    for heal_at in (round(last + 0.001, 3), round((last + schedule.heal_at) / 2, 3)):
        if heal_at < schedule.heal_at - 0.01:
            yield replace(schedule, heal_at=heal_at)


def _fewer_faults(schedule: Schedule) -> Iterator[Schedule]:
    faults = schedule.faults
    size = len(faults)
    while size >= 1:
        for at in range(0, len(faults), size):
            yield replace(schedule, faults=faults[:at] + faults[at + size :])
        size //= 2


def _simpler_clients(schedule: Schedule) -> Iterator[Schedule]:
    for number, client in enumerate(schedule.clients):
        simpler = [replace(client, operations=n) for n in (0, 1, client.operations // 2)]
        simpler += [replace(client, operations=client.operations - 1)]
        simpler += [replace(client, start=0.0), replace(client, config={})]
        simpler += [
            replace(client, config={k: v for k, v in client.config.items() if k != left_out})
            for left_out in client.config
        ]
        simpler += [
            replace(client, habits={k: v for k, v in client.habits.items() if k != left_out})
            for left_out in client.habits
        ]
        for one in simpler:
            fewer = 0 <= one.operations < client.operations
            less = fewer or (one.operations == client.operations and one != client)
            if less and _possible(one):
                clients = (*schedule.clients[:number], one, *schedule.clients[number + 1 :])
                yield replace(schedule, clients=clients)


def _possible(client: ScheduledClient) -> bool:
    """Return whether a client's options are valid in combination."""
    try:
        settings(client)
    except ConfigurationError:
        return False
    return True


def _simpler_faults(schedule: Schedule) -> Iterator[Schedule]:
    for number, fault in enumerate(schedule.faults):
        for name in fault.arguments:
            if VERBS[fault.verb].arguments[name].optional:
                arguments = {k: v for k, v in fault.arguments.items() if k != name}
                simpler = Fault(fault.at, fault.verb, arguments)
                faults = (*schedule.faults[:number], simpler, *schedule.faults[number + 1 :])
                yield replace(schedule, faults=faults)


def _fitted(schedule: Schedule) -> Schedule:
    """Return the schedule without faults that refer to removed brokers, partitions or clients."""
    scope = schedule.scope

    def fits(fault: Fault) -> bool:
        arguments = VERBS[fault.verb].arguments
        return all(arguments[k].allowed(v, scope) for k, v in fault.arguments.items())

    return replace(schedule, faults=tuple(f for f in schedule.faults if fits(f)))
