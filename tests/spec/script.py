"""Run one scripted case once.

In: a case that `cases` has read, and a seed. Out: an `AssertionError` that names the expectation
that failed. A method `do_…` is an action, a method `expect_…` an expectation; cases use their
names.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.spec.brokers import partition_of
from tests.spec.world import ClusterPicture, World, parse

from odradek.clients.admin import api_versions, cluster, topics
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.fetching.offsets import END
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.types import Address
from odradek.network.flow import Completion
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.simulation.world.world import HostMaker


def within(value: float, bounds: Any) -> bool:
    """Return whether a value equals the bound, or is in the range; null is an open end."""
    if not isinstance(bounds, list):
        return bool(value == bounds)
    low, high = bounds
    return (low is None or value >= low - 1e-9) and (high is None or value <= high + 1e-9)


def check_times(
    what: str,
    times: list[float],
    shown: object,
    count: Any = None,
    first: Any = None,
    gaps: list[Any] | None = None,
) -> None:
    """Check the number of times, the first one and the gaps; `shown` is in the error message."""
    if count is not None:
        assert within(len(times), count), f"{len(times)} {what}, not {count}: {shown}"
    if first is not None:
        assert times, f"no {what}"
        assert within(times[0], first), f"{what} first at {times[0]}, not {first}"
    if gaps is not None:
        between = [b - a for a, b in itertools.pairwise(times)]
        assert len(between) >= len(gaps), f"only {len(between)} gaps of {what}: {shown}"
        for n, (gap, bounds) in enumerate(zip(between, gaps, strict=False)):
            assert within(gap, bounds), f"gap {n} of {what} is {gap}, not {bounds}: {shown}"


def _picture(of: dict[str, Any]) -> ClusterPicture:
    fields = dict(of)
    fields["brokers"] = {int(i): a for i, a in fields.get("brokers", {}).items()}
    fields["ids"] = {
        t: bytes(16) if i is None else i.encode().ljust(16, b"\2")[:16]  # null: no topic id
        for t, i in fields.get("ids", {}).items()
    }
    return ClusterPicture(**fields)


class Script:
    """One run of one case."""

    def __init__(
        self,
        case: dict[str, Any],
        seed: int,
        seen: set[str] | None = None,
        *,
        last: bool = True,
        hosts: HostMaker | None = None,
        resets_together: bool = True,
    ) -> None:
        """Build the simulation; for `hosts` and `resets_together` see `World`."""
        self.case = case
        self.seen = set() if seen is None else seen
        """Addresses of the first connection attempts; shared by all runs of a case."""
        self.last = last
        self.world = World(
            case["config"],
            client=case.get("client", "consumer"),
            seed=seed,
            hint=case.get("hint"),
            hosts=hosts,
            resets_together=resets_together,
        )
        self.results: dict[str, tuple[float, Completion[Any]]] = {}
        self.ended: dict[str, float] = {}
        world = self.world
        for address, mode in case.get("modes", {}).items():
            world.modes[address] = mode
        world.names.update(case.get("names", {}))
        if "cluster" in case:
            world.pictures["*"] = _picture(case["cluster"])

    def run(self) -> None:
        for step in self.case["steps"]:
            at = step["at"]
            assert at >= self.world.now or math.isclose(at, self.world.now), "steps out of order"
            self.world.run(at)
            arguments = {k: v for k, v in step.items() if k not in ("at", "do")}
            getattr(self, f"do_{step['do']}")(**arguments)
        self.world.run(self.case["until"])
        for expected in self.case["expect"]:
            (kind, what), *rest = expected.items()
            getattr(self, f"expect_{kind}")(what, **dict(rest))

    # Actions

    def _start(self, flow: Any, name: str, unreached_until: float = math.inf) -> None:
        completion = self.world.engine.start(flow)
        self.world.engine.track(completion, name, math.inf, unreached_until)
        self._note(completion, name)

    def _note(self, completion: Completion[Any], name: str) -> None:
        self.results[name] = (self.world.now, completion)
        completion.when_done(lambda _: self.ended.update({name: self.world.now}))

    def do_topic(
        self,
        name: str,
        into: str,
        timeout: float = 60.0,
        callers: int = 1,
        governed_by: str | None = None,
    ) -> None:
        """Wait for a topic; `governed_by`: the option that the timeout comes from, if any."""
        now, engine = self.world.now, self.world.engine
        for n in range(callers):
            flow = engine.topic(name.replace("#", str(n)), now + timeout)
            until = math.inf if governed_by is None else engine.unreached_until(now, governed_by)
            self._start(flow, into if callers == 1 else f"{into}{n}", until)

    def do_ask(self, address: str, into: str, timeout: float = 60.0) -> None:
        """Send a request to one broker, and connect to it if necessary."""
        world = self.world
        deadline = world.now + timeout
        flow = world.engine.ask(parse(address), ListOffsetsRequest(), ListOffsetsResponse, deadline)
        self._start(flow, into)

    def do_connect(self, addresses: list[str], every: float = 0.0, until: float = 0.0) -> None:
        """Request connections, as for leaders; with `every` repeatedly."""
        for text in addresses:
            self.world.engine.post(partial(self._want, parse(text)))
        if every and self.world.now + every <= until:
            self.world.later(every, lambda: self.do_connect(addresses, every, until))

    def _want(self, address: Address, now: float) -> None:
        self.world.engine.network.ready(address, now)

    def do_refresh(
        self,
        why: str = "the case wants one",
        times: int = 1,
        every: float = 0.0,
        until: float = 0.0,
    ) -> None:
        """Request a metadata refresh; with `every` repeatedly."""
        metadata = self.world.engine.metadata
        for _ in range(times):
            self.world.engine.post(lambda now: metadata.request(why))
        if every and self.world.now + every <= until:
            self.world.later(every, lambda: self.do_refresh(why, times, every, until))

    def do_mode(self, addresses: list[str], mode: str, cut: bool = True) -> None:
        self.world.mode(*addresses, mode=mode, cut=cut)

    def do_cut(self, address: str, error: str | None) -> None:
        self.world.cut(address, error=error)

    def do_cluster(self, at_address: str = "*", **picture: Any) -> None:
        """Set the cluster state that one address reports from now on, or all addresses."""
        self.world.pictures[at_address] = _picture(picture)

    def do_delay(self, address: str, seconds: float, handshake: bool = False) -> None:
        delays = self.world.handshakes if handshake else self.world.delays
        delays[address] = seconds

    def do_names(self, **names: list[str] | None) -> None:
        self.world.names.update(names)

    def do_answers(self, api: str, codes: list[int], where: str = "*") -> None:
        """Set the error codes of the next responses; `where` is an address or a partition."""
        self.world.errors.set(api, where, codes)

    def do_produce(self, to: str, into: str) -> None:
        """Send a record to a partition (`topic-0`)."""
        engine = self.world.engine
        assert isinstance(engine, ProducerEngine)
        now = self.world.now
        place = engine.accumulator.append(partition_of(to), (None, b"x", (), 0), 100, now)
        assert place is not None, "no room"
        self._note(place.batch.done, into)
        engine.post(lambda now: None)  # wakes the engine

    def do_assign(
        self, partition: str, offset: int | None = None, epoch: int | None = None
    ) -> None:
        """Assign a partition; `epoch`: leader epoch of the record before the offset."""
        engine = self.world.engine
        assert isinstance(engine, ConsumerEngine)
        wanted = partition_of(partition)
        if offset is not None and epoch is not None:
            engine.assign([wanted], None, {wanted: (offset, epoch)})
            return
        engine.assign([wanted], None)
        if offset is not None:
            engine.subscription.seek(wanted, offset)

    def do_poll(self, into: str, timeout: float) -> None:
        """Wait for records."""
        engine = self.world.engine
        assert isinstance(engine, ConsumerEngine)
        self._start(engine.data(self.world.now + timeout), into)

    def do_offsets(self, partition: str, into: str, timeout: float = 60.0) -> None:
        """Request the end offset of a partition."""
        engine = self.world.engine
        assert isinstance(engine, ConsumerEngine)
        self._start(
            engine.offsets_at([partition_of(partition)], END, self.world.now + timeout), into
        )

    def do_admin(self, call: str, into: str, timeout: float = 60.0) -> None:
        """Start a call of the admin client."""
        engine = self.world.engine
        assert isinstance(engine, AdminEngine)
        deadline = self.world.now + timeout
        calls: dict[str, Callable[[], Any]] = {
            "describe_api_versions": lambda: api_versions.describe_api_versions(engine, deadline),
            "describe_cluster": lambda: cluster.describe(False, False).flow(engine, deadline),
            "list_topics": lambda: topics.names(False).flow(engine, deadline),
            "create_topics": lambda: topics.create([NewTopic("new")], True).flow(engine, deadline),
            "delete_topics": lambda: topics.delete("t").flow(engine, deadline),
        }
        self._start(calls[call](), into)

    def do_hang_up(self, address: str) -> None:
        """Close a connection from the client's side."""
        self.world.engine.post(partial(self._hang_up, parse(address)))

    def _hang_up(self, address: Address, now: float) -> None:
        network = self.world.engine.network
        connection = network.connection(address)
        assert connection is not None, f"no connection to {address}"
        network.close(connection, now, "the case wants it")

    def do_close(self) -> None:
        self.world.engine.shut()

    def do_look(
        self,
        address: str,
        state: str | None = None,
        failures: Any = None,
        backoff: Any = None,
        suspect: bool | None = None,
        proved: bool | None = None,
        setup: Any = None,
        dial_in: Any = None,
        throttled: Any = None,
    ) -> None:
        """Check an address at this moment; state "none" is no connection.

        `setup` is the time limit of the connection attempt, `dial_in` the wait until the next
        attempt is allowed ("never" while another event has to come first), `throttled` the rest of
        a throttle.
        """
        world = self.world
        connection = world.connection(address)
        record = world.engine.network.states.state(parse(address))
        if state is not None:
            found = connection.state.value if connection is not None else "none"
            assert found == state, f"{world.now}: {address} is {found}, not {state}"
        if failures is not None:
            text = f"{world.now}: {address} has {record.failures} failures, not {failures}"
            assert within(record.failures, failures), text
        if backoff is not None:
            left = world.engine.network.states.backoff_left(parse(address), world.now)
            assert within(left, backoff), f"{world.now}: {address} backs off for {left}"
        if setup is not None:
            assert connection is not None, f"{world.now}: no connection to {address}"
            limit = connection.setup_deadline - connection.dialled_at
            assert within(limit, setup), f"{world.now}: {address} is given {limit} to be set up"
        if throttled is not None:
            assert connection is not None, f"{world.now}: no connection to {address}"
            left = max(0.0, connection.throttled_until - world.now)
            assert within(left, throttled), f"{world.now}: {address} is throttled for {left}"
        if dial_in is not None:
            at = world.engine.network.next_dial_at(parse(address), world.now) - world.now
            wanted = math.inf if dial_in == "never" else dial_in
            assert within(at, wanted), f"{world.now}: {address} may be connected to in {at}"
        for name, wanted in (("suspect", suspect), ("proved", proved)):
            if wanted is not None:
                assert connection is not None, f"{world.now}: no connection to {address}"
                assert getattr(connection, name) is wanted, f"{world.now}: {address} {name}"

    # Expectations

    def expect_dials(
        self,
        to: str,
        count: Any = None,
        since: float = 0.0,
        until: float = math.inf,
        first: Any = None,
        gaps: list[Any] | None = None,
        every_gap: Any = None,
        ips: list[str] | None = None,
    ) -> None:
        """Check the connection attempts to an address ("*": any): count, first, gaps, IPs."""
        dials = [d for d in self.world.dials if to in (d.address, "*") and since <= d.at <= until]
        shown = [round(d.at, 3) for d in dials]
        check_times(f"dials to {to}", [d.at for d in dials], shown, count, first, gaps)
        if every_gap is not None:
            found = [b.at - a.at for a, b in itertools.pairwise(dials)]
            assert all(within(gap, every_gap) for gap in found), f"gaps {found}, not {every_gap}"
        if ips is not None:
            assert [d.ip for d in dials][: len(ips)] == ips, f"IPs {[d.ip for d in dials]}"

    def expect_requests(
        self,
        to: str,
        count: Any,
        api: str = "Metadata",
        since: float = 0.0,
        until: float = math.inf,
        gaps_at_least: float | None = None,
        gaps: list[Any] | None = None,
        topics: list[list[str]] | None = None,
        each_names: str | None = None,
        lists: bool = False,
    ) -> None:
        """Check the sent requests; `topics`: all topics of each, `each_names`: one of them.

        Requests for all topics aren't refreshes (R-IN-6 sends one per missing topic): they only
        count with `lists`.
        """
        found = [
            a
            for a in self.world.asks(api)
            if to in (a.address, "*")
            and since <= a.at <= until
            and (lists or api != "Metadata" or a.body.topics is not None)
        ]
        times, shown = [a.at for a in found], [(round(a.at, 3), a.address) for a in found]
        check_times(f"{api} to {to}", times, shown, count, gaps=gaps)
        if gaps_at_least is not None:
            between = [b - a for a, b in itertools.pairwise(times)]
            assert all(g >= gaps_at_least - 1e-9 for g in between), f"gaps {between}"
        if topics is not None:
            asked = [sorted(t.name for t in a.body.topics) for a in found]
            assert asked == [sorted(t) for t in topics], f"asked for {asked}"
        for each in found if each_names is not None else ():
            assert each_names in [t.name for t in each.body.topics], f"{each.at}: not {each_names}"

    def expect_order(self, to: list[str], since: float = 0.0, api: str = "Metadata") -> None:
        """Check the order of the addresses that received requests."""
        found = [a.address for a in self.world.asks(api) if a.at >= since]
        assert found[: len(to)] == to, f"asked {found}"

    def expect_event(
        self,
        kind: str,
        count: Any = None,
        since: float = 0.0,
        until: float = math.inf,
        first: Any = None,
        gaps: list[Any] | None = None,
        says: str | None = None,
        waits: list[Any] | None = None,
        **fields: Any,
    ) -> None:
        """Check the events of a kind whose fields have these values.

        `waits` are the first backoffs that the events report, even if something else delays the
        attempt.
        """
        found = [
            e
            for e in self.world.kinds(kind)
            if since <= e.at <= until and all(e.fields.get(k) == v for k, v in fields.items())
        ]
        shown = [(round(e.at, 3), str(e)) for e in found]
        check_times(kind, [e.at for e in found], shown, count, first, gaps)
        if waits is not None:
            told = [e.fields["backoff"] for e in found]
            assert len(told) >= len(waits), f"only {len(told)} waits of {kind}: {shown}"
            for n, (wait, bounds) in enumerate(zip(told, waits, strict=False)):
                assert within(wait, bounds), f"wait {n} of {kind} is {wait}, not {bounds}: {shown}"
        if says is not None:
            assert found, f"no {kind}"
            assert all(says in str(e) for e in found), f"{shown} don't say {says!r}"

    def expect_result(
        self,
        name: str,
        error: str | None = None,
        says: list[str] | None = None,
        within_seconds: Any = None,
        open: bool = False,  # noqa: A002  # a key of cases
        all_of: int | None = None,
    ) -> None:
        """Check how a call ended: with a result, with an error of a class, or not yet."""
        names = [name] if all_of is None else [f"{name}{n}" for n in range(all_of)]
        for each in names:
            started, completion = self.results[each]
            assert completion.done is not open, f"{each} is {'open' if open else 'done'}"
            if open:
                continue
            found = type(completion.error).__name__ if completion.error is not None else None
            assert found == error, f"{each} ended with {found}: {completion.error}"
            for text in says or ():
                assert text in str(completion.error), f"{text!r} isn't in: {completion.error}"
            if within_seconds is not None:
                took = self.ended[each] - started
                assert within(took, within_seconds), f"{each} took {took}"

    def expect_answered(self, call: str, brokers: list[int], failed: dict[str, str]) -> None:
        """Check `describe_api_versions`: the brokers that answered and the others' errors."""
        found = {str(b.broker.id): str(b.error or "") for b in self.results[call][1].result()}
        wanted = {**{str(i): "" for i in brokers}, **failed}
        assert found.keys() == wanted.keys()
        assert all(bool(found[i]) is bool(w) and w in found[i] for i, w in wanted.items()), found

    def expect_lookups(self, of: str, count: Any, since: float = 0.0) -> None:
        """Check how often a name was resolved."""
        found = [at for at, host in self.world.resolved if host == of and at >= since]
        assert within(len(found), count), f"{len(found)} look-ups of {of}, not {count}: {found}"

    def expect_shares(self, api: str, of: int, most_over_mean: float, since: float = 0.0) -> None:
        """Check how evenly the requests were distributed over a number of addresses."""
        found = Counter(a.address for a in self.world.asks(api) if a.at >= since)
        assert len(found) == of, f"asked: {found}"
        ratio = max(found.values()) * of / found.total()
        assert ratio <= most_over_mean, f"shares {found}"

    def expect_worst_second(self, most: int, since: float = 0.0) -> None:
        worst = self.world.worst_second(since)
        assert worst <= most, f"{worst} connection attempts in one second"

    def expect_pending(self, most: int) -> None:
        """Check how many connection attempts were pending at the same time."""
        changes = [(d.at, 1) for d in self.world.dials]
        ends = ("ready", "dial_failed")
        changes += [(e.at, -1) for e in self.world.events if e.kind in ends]
        changes += [
            (e.at, -1)
            for e in self.world.kinds("disconnected")
            if "failure" in e.fields and not e.fields["failure"] and self._unready(e.fields)
        ]
        worst = now = 0
        for _, change in sorted(changes):
            now += change
            worst = max(worst, now)
        assert worst <= most, f"{worst} attempts were pending"

    def _unready(self, fields: Mapping[str, Any]) -> bool:
        number = fields.get("connection")
        dial = next(d for d in self.world.dials if d.connection == number)
        return not any(
            e.fields.get("address") == dial.address and e.at >= dial.at
            for e in self.world.kinds("ready")
        )

    def expect_steps(self, per_second: float) -> None:
        """Check the engine's average steps per second: it must not run in a busy loop."""
        rate = self.world.steps / self.world.now
        assert rate <= per_second, f"{rate} steps a second"

    def expect_attribute(self, path: str, value: Any) -> None:
        """Check an attribute of the engine, e.g. `metadata.cluster_id`."""
        found: Any = self.world.engine
        for part in path.split("."):
            found = getattr(found, part)
        assert found == value, f"{path} is {found!r}, not {value!r}"

    def expect_brokers(self, brokers: list[str]) -> None:
        """Check the brokers in the metadata snapshot."""
        snapshot = self.world.engine.metadata.snapshot
        known = sorted(str(a) for a in snapshot.addresses()) if snapshot is not None else []
        assert known == sorted(brokers), f"{known}"

    def expect_connected(self, addresses: list[str]) -> None:
        """Check which connections are ready at the end."""
        ready = [str(c.address) for c in self.world.engine.network.connections.values() if c.ready]
        assert sorted(ready) == sorted(addresses), f"{ready}"

    def expect_leader(self, topic: str, partition: int, is_: int | None) -> None:
        """Check the leader's broker id in the metadata snapshot; null: no leader."""
        snapshot = self.world.engine.metadata.snapshot
        found = snapshot.leader(topic, partition) if snapshot is not None else None
        assert (found.id if found is not None else None) == is_, f"{found} leads"

    def expect_distinct_first_dials(self, count: int) -> None:
        """Check how many addresses get the first attempt of any seed; runs after the last seed."""
        self.seen.add(self.world.dials[0].address)
        if self.last:
            assert len(self.seen) == count, f"always first: {self.seen}"
