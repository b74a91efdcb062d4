"""Simulate members of a group: applications that poll, work, commit, pause, leave and die.

In: a client of a schedule, a stage (simulation and cluster), the group's checker. Out: a consumer's
calls, in virtual time. Must not cause faults, or decide what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any
from weakref import ref

from odradek.clients.caller_flow import CallerFlow
from odradek.clients.consumer.group.announced_ownership import AskedCommit
from odradek.clients.consumer.group.committed_offsets import Accepted
from odradek.clients.consumer.group.consumer_group import LEAVING_SHARE, ConsumerGroup
from odradek.clients.consumer.group.group_commits import Committing
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.network.flow import Flow
from odradek.simulation.checkers.auto_commit_checkers import OwnCommits
from odradek.simulation.checkers.call_checkers import check_limits
from odradek.simulation.checkers.group_checkers import GroupLedger, MemberView
from odradek.simulation.checkers.history import CallKind, CallResult, Operation
from odradek.simulation.checkers.invariants import Checkers, Violation
from odradek.simulation.checkers.rebalance_checkers import RejoinsAtOnce
from odradek.simulation.faults.fault_table import Stage
from odradek.simulation.runs.application_behaviour import (
    COMMIT_TIMEOUT,
    SHORT_COMMIT_TIMEOUTS,
    ApplicationBehaviour,
)
from odradek.simulation.runs.caller import Caller
from odradek.simulation.runs.record_workload import ReadingDriver
from odradek.simulation.runs.schedule import ScheduledClient
from odradek.simulation.runs.workload import TOPIC
from odradek.simulation.world.link import Mode

LEAVE_TIMEOUT, PATIENT_LEAVE = 10.0, 30.0
"""Timeouts of an orderly close in seconds: the second if only late responses can delay it."""
COMMITTED_WITHIN = LEAVE_TIMEOUT * (1 - LEAVING_SHARE) - 0.5
"""Seconds of an orderly close within which the close's last commit must succeed."""


class ApplicationError(Exception):
    """Error that a callback of an application raises on purpose."""


class MemberDriver(ReadingDriver):
    """One member of the group, which polls until it leaves or dies."""

    works_after_a_stop = 0.0
    """Maximum time in seconds to process a poll's records after a stopped process was resumed."""

    def __init__(
        self,
        stage: Stage,
        client: ScheduledClient,
        mode: Mode,
        checkers: Checkers,
        ledger: GroupLedger,
        topics: Collection[str] = (TOPIC,),
    ) -> None:
        self.ledger = ledger
        self.topics = topics
        self.habits = ApplicationBehaviour(**client.habits)
        self.serial = 0
        """Number of records that were returned to the application."""
        self.violations: list[Violation] = []
        self.errors: list[Exception] = []
        """Errors that the application's polls and commits have raised."""
        self._polling = False
        self._leaving = False
        self._frozen = False
        self._back = False
        self._lost: dict[TopicPartition, None] = {}
        self.newest_generation = -1
        """The highest generation in which a callback was called."""
        self._idle_until = 0.0
        self.own_commits = OwnCommits(ledger, COMMITTED_WITHIN)
        self._rejoins = RejoinsAtOnce()
        self.instance = checkers.history.instance(client.name)
        self.reading: Operation | None = None
        """The last poll, as the history records it."""
        self._owned: dict[TopicPartition, TopicPartition] = {}
        """Owned partitions, with their names in the history (by incarnation of the topic)."""
        super().__init__(stage, client, mode, checkers)

    @property
    def reader(self) -> str:
        """Name of the member's consumer in the history."""
        return self.name

    @property
    def group(self) -> ConsumerGroup:
        """The engine's part that manages the group membership."""
        group = self.engine.group
        if group is None:
            raise AssertionError(f"{self.name} has no group.id")
        return group

    # Values for the group's checker

    @property
    def identity(self) -> tuple[str, int]:
        """Current member id and generation of the client."""
        who = self.group.identity()
        return who.member_id, who.generation

    @property
    def static(self) -> bool:
        """Whether the member has a group instance id."""
        return self.config["group.instance.id"] is not None

    @property
    def auto_commits(self) -> bool:
        """Whether the member's client commits by itself."""
        return bool(self.config["enable.auto.commit"])

    @property
    def stays(self) -> bool:
        """Whether the member is running and won't leave."""
        return not self.over and (self._back or not self._leaving)

    def lost(self, partition: TopicPartition) -> bool:
        """Return whether the client lost the partition but the application doesn't know it yet."""
        return partition in self._lost

    def position(self, partition: TopicPartition) -> int | None:
        """Return the client's position in a partition; None if it has no position."""
        state = self.engine.subscription.partitions.get(partition)
        return None if state is None else state.position

    def topic_id(self, topic: str) -> bytes:
        """Return the topic's id in the client's metadata, or `NO_ID`."""
        snapshot = self.engine.metadata.snapshot
        known = None if snapshot is None else snapshot.topics.get(topic)
        return NO_ID if known is None else known.topic_id

    def former_id(self, partition: TopicPartition) -> bytes:
        """Return the id that the topic had for the client before it was recreated, or `NO_ID`."""
        state = self.engine.subscription.partitions.get(partition)
        return NO_ID if state is None else state.former_id

    # The application

    def begin(self) -> None:
        """Subscribe, and begin to poll."""
        lose, commit = self.group.lose, self.group.commits.commit

        def noted(partitions: Collection[TopicPartition], *, taken: bool = True) -> Flow[float]:
            self._lost.update(dict.fromkeys(partitions))
            self.own_commits.loses(partitions)
            return lose(partitions, taken=taken)

        def begun(
            asked: AskedCommit, *given: Any, unasked: bool = False, **more: Any
        ) -> Committing:
            states = self.engine.subscription.partitions
            renewed = {
                p for p, o in asked.offsets.items() if p in states and states[p].committed is o
            }
            wrong = self.own_commits.begins(self, asked, renewed if unasked else None)
            self.violations += [wrong] if wrong is not None else []
            return commit(asked, *given, unasked=unasked, **more)

        stored = self.group.commits.stored
        send = stored.commit

        def sent(
            asked: AskedCommit,
            deadline: float,
            *,
            accepted: Accepted,
            refused: Callable[[], None],
            **more: Any,
        ) -> Flow[None]:
            done: set[TopicPartition] = set()

            def accepts(partition: TopicPartition, offset: OffsetAndMetadata) -> None:
                done.add(partition)
                accepted(partition, offset)

            def refuses() -> None:
                self.own_commits.not_stored(asked, done)
                refused()

            return send(asked, deadline, accepted=accepts, refused=refuses, **more)

        self.group.lose = noted  # type: ignore[method-assign]  # revoking isn't excused
        if self.auto_commits:
            self.group.commits.commit = begun  # type: ignore[method-assign]
            stored.commit = sent  # type: ignore[method-assign,assignment]
        self._subscribe()

    def _subscribe(self) -> None:
        def told(call: CallKind, note: Callable[..., None]) -> Callable[..., None]:
            return lambda _, partitions: self._told(call, note, partitions)

        self.history.note(CallKind.SUBSCRIBE, self.reader, self.instance)
        named = {
            "on_assigned": told(CallKind.ASSIGNED, self.ledger.assigned),
            "on_revoked": told(CallKind.REVOKED, self._revoked),
            "on_lost": told(CallKind.REVOKED, self.ledger.revoked),
        }
        pattern = self.habits.pattern
        topics = [] if pattern is not None else list(self.topics)
        flow = self.consumer.subscribe(topics, pattern, None, named, ref(self))
        self.caller.begin(f"{self.name}: subscribe", flow, lambda _: self.poll(), self._failed)

    def _told(
        self, call: CallKind, note: Callable[..., None], partitions: list[TopicPartition]
    ) -> None:
        for partition in partitions:
            self._lost.pop(partition, None)
            place = self._owned.pop(partition, partition)
            if call is CallKind.ASSIGNED:
                place = self._owned[partition] = self.ledger.place(partition)
            self.history.note(call, self.reader, self.instance, [place])
        self.newest_generation = max(self.newest_generation, self.identity[1])
        try:
            note(self, partitions)
        except Violation as violation:  # the client must not get the violation
            self.violations.append(violation)
        if self.habits.raises and self.rng.random() < 0.3:
            raise ApplicationError("a callback failed")

    def _revoked(self, member: MemberView, partitions: list[TopicPartition]) -> None:
        membership = self.group.membership
        if membership is not None and not self.static:  # static members may leave before
            self._rejoins.revoked(self.world.now, membership.state, self.identity[1])
        self.ledger.revoked(member, partitions)

    def sought(self, partition: TopicPartition) -> None:
        """Note that the application has sought another offset."""
        self.ledger.sought(self, partition)
        place = self._owned.get(partition, partition)
        self.history.note(CallKind.SEEK, self.reader, self.instance, [place])

    def stop_polling(self, seconds: float) -> None:
        """Let the application stop polling for this many seconds, as if it were busy."""
        self._idle_until = max(self._idle_until, self.world.now + seconds)

    def hurry(self) -> None:
        """Let the application poll again, and process records fast."""
        self.habits = replace(
            self.habits,
            work=0.05,
            most=100,
            holds=min(0.05, self.habits.holds),
            retries=0.0,
            besides=0.0,
        )
        if self._idle_until > self.world.now and not self._frozen:
            self._idle_until = 0.0
            self._later(0.0)

    def freeze(self, seconds: float) -> None:
        """Stop the whole process for this many seconds: the client and the application."""
        if self.over or self._frozen:
            return
        self._frozen = True
        self.host.freeze()
        self.stop_polling(seconds)
        self.calls.excuse(self.world.now + seconds)
        self.wire.excuse(self.world.now + seconds)
        member_id = self.identity[0]
        self.world.after(seconds, lambda: self._thaw(member_id))

    def _thaw(self, member_id: str) -> None:
        """Resume the process; `member_id` is the member's id from before the stop."""
        self._frozen = False
        if not self.over:
            if not self.ledger.is_member(member_id):
                self.ledger.hits["frozen beyond its session"] += 1
            self.host.freeze(on=False)
            if self._leaving and not self._polling:
                self._later(0.0)

    def application(self) -> Caller:
        """Return the caller of the application's calls; it is idle while the process is stopped."""
        return Caller(self.world, self.calls, lambda: self.over, self.soon)

    @property
    def stopped(self) -> bool:
        """Whether the member's process is stopped."""
        return self._frozen

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        """Run an action later, unless the process is stopped or dead."""

        def act() -> None:
            if self.stopped:
                self.world.at(max(self._idle_until, self.world.now), act)
            elif not self.over:
                action()

        self.world.after(seconds, act)

    def _later(self, seconds: float) -> None:
        self.world.after(seconds, self._again)

    def _again(self) -> None:
        if self.world.now < self._idle_until:
            self.world.at(self._idle_until, self._again)
        else:
            self.poll()

    def poll(self) -> None:
        """Poll with the steps that `Consumer.poll` makes."""
        if self.over or self._polling or self.engine.ended is not None:
            return
        if self._leaving:
            self._leave()
            return
        self._polling = True
        self.ledger.works_on(self, {})
        self.reading = self.history.invoke(CallKind.POLL, self.reader, self.instance)
        flow = self.consumer.poll(self.habits.poll, self.habits.most)
        self.caller.begin(f"{self.name}: poll", flow, self._given, self._failed)

    def _given(self, records: list[ConsumerRecord] | None) -> None:
        self.engine.delivery.handed_over()
        self._note(records or [])
        self._polled(records or [])

    def _note(self, records: list[ConsumerRecord]) -> None:
        """Add the records of a poll to the history."""
        reading = self.reading
        if reading is None:
            return
        for record in records:
            partition = record.topic_partition
            place = self.ledger.place(partition, record.value)
            if self._owned.get(partition, place) != place:  # the topic was recreated
                self._owned[partition] = place
                self.history.note(CallKind.ASSIGNED, self.reader, self.instance, [place])
            reading.saw(place, record.offset, record.value)
        reading.ended()

    def _failed(self, error: Exception) -> None:
        """Store the error and poll again; raise it if it is a bug or a violation."""
        if not isinstance(error, KafkaError | ApplicationError):
            raise error
        self.errors.append(error)
        if self.reading is not None and self.reading.returned is None:
            self.reading.ended(CallResult.FAIL)
        if self.engine.ended is not None:
            return
        if self.group.error is not None:  # the group can't continue otherwise
            self.subscribe_anew()
        self._polled([])

    def _polled(self, records: list[ConsumerRecord]) -> None:
        """Handle the records that `poll` returned."""
        self._polling = False
        first: dict[TopicPartition, int] = {}
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            first.setdefault(self.ledger.place(place, record.value), record.offset)
            try:
                self.ledger.record(self, place, record.offset, record.value)
            except Violation as violation:
                self.violations.append(violation)
                return
            self.serial += 1
        check_limits(self.engine, len(self.calls) + self.in_background)
        self.host.wake()
        self.work(records, first)

    def work(self, records: list[ConsumerRecord], first: dict[TopicPartition, int]) -> None:
        """Process the records that `poll` returned, and poll again."""
        if not (self.habits.commits or self.habits.besides):
            self.ledger.works_on(self, first)
        if records and self.habits.commits:
            self._before_next_poll("commit", self.consumer.commit(None, COMMIT_TIMEOUT))
        elif records and self._besides():
            some = records[: self.rng.randint(1, len(records))]
            ends = {r.topic_partition: OffsetAndMetadata(r.offset + 1) for r in some}
            commit = self.consumer.commit(ends, self.rng.choice(SHORT_COMMIT_TIMEOUTS))
            self._before_next_poll("commit besides", commit)
        else:
            self._later(self.rng.uniform(0.0, self.habits.work))

    def _besides(self) -> bool:
        return self.habits.besides > 0.0 and self.rng.random() < self.habits.besides

    def _before_next_poll(self, what: str, flow: CallerFlow[Any]) -> None:
        """Run the application's calls, and poll again when they have ended."""

        def ended(_: object) -> None:
            self._later(self.rng.uniform(0.0, self.habits.work))

        def failed(error: Exception) -> None:
            if not isinstance(error, KafkaError | ApplicationError):
                raise error
            self.errors.append(error)
            ended(error)

        self.caller.begin(f"{self.name}: {what}", flow, ended, failed)

    # End

    def subscribe_anew(self) -> None:
        """Unsubscribe after the current poll, and subscribe again."""
        if not self._leaving and not self.over and not self._frozen:
            self.leave()
            self._back = True

    def rejoin(self) -> None:
        """Request a rebalance."""
        membership = self.group.membership
        if membership is not None and not self.over:
            self.engine.post(lambda now: membership.rejoin("the application wants it", now))
            self.host.wake()

    def leave(self) -> None:
        """Close the consumer in an orderly way after the current poll."""
        self._back = False
        if not self._leaving and not self.over:
            self._leaving = True
            if self._frozen:
                return
            self._idle_until = 0.0
            if not self._polling:
                self._later(0.0)

    def _leave(self) -> None:
        self._polling = True
        self.ledger.works_on(self, {})
        consumer = self.consumer
        # An exception ends a `with` block before the application has processed its records.
        through = self._back or not self._besides()
        if self.auto_commits and through:
            self.own_commits.closes(self, renews=not self.habits.besides)
        timeout = PATIENT_LEAVE if self.ledger.gentle else LEAVE_TIMEOUT
        flow = (
            consumer.unsubscribe(timeout)
            if self._back
            else consumer.leave_and_close(timeout, through=through)
        )
        self.caller.begin(
            f"{self.name}: leave", flow, lambda _: self._left(), lambda error: self._left(error)
        )

    def _left(self, error: Exception | None = None) -> None:
        if error is not None and not isinstance(error, KafkaError | ApplicationError):
            raise error
        if self.group.leaving and not self.consumer.closed:
            self.own_commits.goes_on()
        if (wrong := self.own_commits.closed(self)) is not None:
            self.violations.append(wrong)
        if self.consumer.closed:
            self._end()
        elif self._back:
            self._leaving = self._back = self._polling = False
            self._subscribe()
        else:  # the client isn't closed: try again
            self._leave()

    def die(self) -> None:
        """Kill the process like SIGKILL: connections end without LeaveGroup."""
        if not self.over:
            self.died = True
            self._end()

    def _end(self) -> None:
        self.history.note(
            CallKind.CRASH if self.died else CallKind.CLOSE, self.reader, self.instance
        )
        self.host.close(self.world.now)
        self.over = True
        self.ledger.gone(self)

    # Methods for `Driver`

    def operate(self) -> None:
        """Do nothing: the member polls by itself."""

    def look(self) -> None:
        """Raise the first violation found so far, and check the client."""
        if self.violations:
            raise self.violations[0]
        if not self.died:
            self._look_at_membership()
            super().look()

    def _look_at_membership(self) -> None:
        """Raise a violation if the member has revoked partitions and doesn't join again."""
        membership = self.group.membership
        if membership is None or self._frozen or self._leaving or self.over:
            self._rejoins.excuse()
            return
        if self.group.commits.under_way():
            self._rejoins.wait(self.world.now)  # the revocation ends after the commits
        wrong = self._rejoins.look(self.world.now, membership.state, self.identity[1])
        if wrong is not None:
            raise wrong

    def probe(self) -> None:
        """Let the member poll faster."""
        self.hurry()

    def finished(self) -> bool:
        """Return whether the members together have returned all records."""
        return self.over or self._leaving or not any(map(self.ledger.settled, self.topics))
