"""Members of a simulated group: applications that poll, work, commit, stop for a while, leave, die.

In: a client of a schedule, a stage, the group's books. Out: calls on consumer engines as the facade
makes them, in virtual time. Must not: cause faults, or decide what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.group.consumer_group import ConsumerGroup, Listeners
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion, Flow
from odradek.simulation.checkers.call_checkers import check_limits
from odradek.simulation.checkers.group_checkers import GroupLedger
from odradek.simulation.checkers.invariants import Checkers, Violation
from odradek.simulation.faults.verbs import Stage
from odradek.simulation.runs.habits import Habits
from odradek.simulation.runs.schedule import ScheduledClient
from odradek.simulation.runs.workload import TOPIC, Driver
from odradek.simulation.world.link import Mode

LEAVE_TIMEOUT = 10.0
LEAVING_GRACE = 0.5
"""Seconds for the callbacks at the end of a leave that ran out of time, as the facade has them."""


class ApplicationError(Exception):
    """What a callback raises."""


class MemberDriver(Driver):
    """One member. It polls until it leaves or dies."""

    engine: ConsumerEngine

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
        self.habits = Habits(**client.habits)
        self.serial = 0
        """Records that it was handed."""
        self.violations: list[Violation] = []
        self.errors: list[Exception] = []
        """What polls and commits raised."""
        self.over = False
        """It has left or died."""
        self._polling = False
        self._leaving = False
        self._frozen = False
        self._back = False
        self._lost: dict[TopicPartition, None] = {}
        self.newest_generation = -1
        """The highest that a callback was told in."""
        self._idle_until = 0.0
        super().__init__(stage, client, mode, checkers)

    def build(self, config: Config) -> ConsumerEngine:
        """The consumer's engine."""
        return ConsumerEngine(config, self.host.rng(), wall_clock=self.host.wall_clock)

    @property
    def group(self) -> ConsumerGroup:
        """The engine's group."""
        group = self.engine.group
        if group is None:
            raise AssertionError(f"{self.name} has no group.id")
        return group

    # What the books see

    @property
    def identity(self) -> tuple[str, int]:
        """Member id and generation as the client has them now."""
        who = self.group.identity()
        return who.member_id, who.generation

    @property
    def static(self) -> bool:
        """Whether it has an instance id."""
        return self.config["group.instance.id"] is not None

    @property
    def stays(self) -> bool:
        """It is there, and will be."""
        return not self.over and (self._back or not self._leaving)

    def lost(self, partition: TopicPartition) -> bool:
        """Whether the client knows that the partition is lost, and the application doesn't yet."""
        return partition in self._lost

    # The application

    def begin(self) -> None:
        """Subscribe, and begin to poll."""
        lose = self.group.lose

        def noted(partitions: Collection[TopicPartition], now: float) -> Flow[float]:
            self._lost.update(dict.fromkeys(partitions))
            return lose(partitions, now)

        self.group.lose = noted  # type: ignore[method-assign]  # who gives back isn't excused
        self._subscribe()

    def _subscribe(self) -> None:
        listeners = Listeners(
            lambda partitions: self._told(self.ledger.assigned, partitions),
            lambda partitions: self._told(self.ledger.revoked, partitions),
            lambda partitions: self._told(self.ledger.revoked, partitions),
        )
        pattern = self.habits.pattern
        topics = [] if pattern is not None else list(self.topics)
        self.group.subscribe(topics, pattern, listeners, self.world.now)
        self.world.after(0.0, self.poll)

    def _told(self, note: Callable[..., None], partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._lost.pop(partition, None)
        self.newest_generation = max(self.newest_generation, self.identity[1])
        try:
            note(self, partitions)
        except Violation as violation:  # raised in a callback it would be the application's error
            self.violations.append(violation)
        if self.habits.raises and self.rng.random() < 0.3:
            raise ApplicationError("a callback failed")

    def stop_polling(self, seconds: float) -> None:
        """The application is busy with something else for so long."""
        self._idle_until = max(self._idle_until, self.world.now + seconds)

    def hurry(self) -> None:
        """The application is back, if it was away, and has nothing else to do."""
        self.habits = replace(self.habits, work=0.05, most=100)
        if self._idle_until > self.world.now and not self._frozen:
            self._idle_until = 0.0
            self._later(0.0)

    def freeze(self, seconds: float) -> None:
        """The process is stopped for so long, client and application alike."""
        if self.over or self._frozen:
            return
        self._frozen = True
        self.host.freeze()
        self.stop_polling(seconds)
        self.calls.excuse(self.world.now + seconds)
        self.world.after(seconds, self._thaw)

    def _thaw(self) -> None:
        self._frozen = False
        if not self.over:
            self.host.freeze(on=False)
            if self._leaving and not self._polling:
                self._later(0.0)

    def _later(self, seconds: float) -> None:
        self.world.after(seconds, self._again)

    def _again(self) -> None:
        if self.world.now < self._idle_until:
            self.world.at(self._idle_until, self._again)
        else:
            self.poll()

    def poll(self) -> None:
        """As `Consumer.poll` does, in pieces."""
        if self.over or self._polling or self.engine.ended is not None:
            return
        if self._leaving:
            self._leave()
            return
        self._polling = True
        now = self.world.now
        self.ledger.works_on(self, {})
        if self.group.entered(now):
            self.host.wake()
        if self.engine.delivery.ready and self.engine.fetcher.made_room():
            self.host.wake()
        self._take(now + self.habits.poll)

    def _take(self, deadline: float) -> None:
        """What the caller's thread does, whenever it goes on."""
        if self.over or self.engine.ended is not None:
            return
        records: list[ConsumerRecord] = []
        try:
            self.group.take_turns(self.host.now, self.host.wake)
            if not self.engine.delivery.ready:
                self._wait(deadline)
                return
            records = self.engine.delivery.records(self.habits.most, self.world.now)
            self.engine.delivery.handed_over()
            if not records:
                self._wait(deadline)
                return
        except (KafkaError, ApplicationError) as error:  # the application logs it and polls on
            self.engine.delivery.take_back()
            self.errors.append(error)
            if self.group.error is not None:  # it was refused for good: only this goes on
                self.subscribe_anew()
        self._polled(records)

    def _wait(self, deadline: float) -> None:
        if self.world.now >= deadline:
            self._polled([])
            return
        completion = self.engine.start(self.engine.data(deadline))
        self.calls.begin(completion, f"{self.name}: poll", deadline)

        def later(ended: Completion[bool]) -> None:  # what the caller does isn't part of the step
            self.world.after(0.0, lambda: self._woken(ended, deadline))

        completion.when_done(later)
        self.host.wake()

    def _woken(self, ended: Completion[bool], deadline: float) -> None:
        if self.over:
            return
        if ended.error is not None:
            if isinstance(ended.error, KafkaError):
                self.errors.append(ended.error)
            self._polled([])
        elif ended.result():
            self._take(deadline)
        else:
            self._polled([])

    def _polled(self, records: list[ConsumerRecord]) -> None:
        """The caller has what `poll` gave."""
        self._polling = False
        self.group.left(self.world.now)
        first: dict[TopicPartition, int] = {}
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            first.setdefault(place, record.offset)
            try:
                self.ledger.record(self, place, record.offset, record.value)
            except Violation as violation:
                self.violations.append(violation)
                return
            self.serial += 1
        check_limits(self.engine, len(self.calls))
        self.host.wake()
        self.work(records, first)

    def work(self, records: list[ConsumerRecord], first: dict[TopicPartition, int]) -> None:
        """What the application does with what `poll` gave, and then it polls again."""
        if not self.habits.commits:
            self.ledger.works_on(self, first)
        if records and self.habits.commits:
            self._commit()
        else:
            self._later(self.rng.uniform(0.0, self.habits.work))

    def _commit(self) -> None:
        deadline = self.world.now + 3.0
        completion: Completion[Any] = self.engine.start(self.group.commits.commit(None, deadline))
        self.calls.begin(completion, f"{self.name}: commit", deadline)

        def ended(_: Completion[Any]) -> None:
            if isinstance(completion.error, KafkaError):
                self.errors.append(completion.error)
            if not self.over:
                self._later(self.rng.uniform(0.0, self.habits.work))

        completion.when_done(ended)
        self.host.wake()

    # Its end

    def subscribe_anew(self) -> None:
        """Unsubscribe and subscribe again, after the poll that is under way."""
        if not self._leaving and not self.over and not self._frozen:
            self.leave()
            self._back = True

    def rejoin(self) -> None:
        """Ask for a rebalance."""
        membership = self.group.membership
        if membership is not None and not self.over:
            self.engine.post(lambda now: membership.rejoin("the application wants it", now))
            self.host.wake()

    def leave(self) -> None:
        """Close in order, after the poll that is under way."""
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
        deadline = self.world.now + LEAVE_TIMEOUT
        self.ledger.works_on(self, {})
        self.engine.subscription.note_consumed()
        end: Completion[None] = self.engine.start(self.group.leave(deadline))
        until = deadline + LEAVING_GRACE
        self.calls.begin(end, f"{self.name}: leave", until)
        self._leaving_on(end, until)

    def _leaving_on(self, end: Completion[None], deadline: float) -> None:
        if self.over:
            return
        more: Completion[bool] = self.engine.start(self.group.turn_or(end, deadline))

        def ended(_: Completion[bool]) -> None:
            self.world.after(0.0, lambda: take(more))

        def take(found: Completion[bool]) -> None:
            if self.over:
                return
            if found.error is None and found.result():
                with suppress(ApplicationError):
                    self.group.call_back(self.host.now, self.host.wake)
                self._leaving_on(end, deadline)
            elif self._back:
                self._leaving = self._back = self._polling = False
                self._subscribe()
            else:
                self.engine.shut()
                self._end()

        more.when_done(ended)
        self.host.wake()

    def die(self) -> None:
        """As by SIGKILL: connections end, nothing is said."""
        if not self.over:
            self.died = True
            self._end()

    def _end(self) -> None:
        self.host.close(self.world.now)
        self.over = True
        self.ledger.gone(self)

    # What `Driver` asks for

    def operate(self) -> None:
        """It polls by itself."""

    def look(self) -> None:
        """Check what can be checked at any time."""
        if self.violations:
            raise self.violations[0]
        if not self.died:
            super().look()

    def probe(self) -> None:
        """The polls go on."""
        self.hurry()

    def finished(self) -> bool:
        """The books say so for the whole group."""
        return self.over or self._leaving or not any(map(self.ledger.settled, self.topics))
