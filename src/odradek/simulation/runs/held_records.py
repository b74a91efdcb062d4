"""Simulate an application that processes the records of a poll and commits before the next.

In: a member of a group, the records that `poll` returned. Out: the calls of such an application:
commits of records, of offsets or of positions, with and without waiting; seeks for a retry; pauses.
While it processes records, the process may be stopped for longer than its session, and its client
may rejoin the group before the application continues. Because the application doesn't poll
meanwhile, no callback has reported the lost partitions, although another member may own them. Must
not decide what happens to the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from odradek.clients.caller_flow import CallerFlow
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.errors import CommitFailedError, IllegalStateError, KafkaError
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.types import TopicPartition
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.runs.application_behaviour import COMMIT_TIMEOUT
from odradek.simulation.runs.caller import pause
from odradek.simulation.runs.group_workload import MemberDriver

PARTS = 3
"""Maximum number of parts into which the records of a poll are divided; each part is committed."""
AFTER_A_STOP = (0.0, 0.5, 3.0, 8.0)
"""Seconds for which the application works on after its process was stopped and resumed."""


class HoldingDriver(MemberDriver):
    """A member that processes and commits the records of a poll before it polls again."""

    works_after_a_stop = PARTS * max(AFTER_A_STOP)
    _holding = False
    _kept: list[ConsumerRecord] | None = None
    thawed_at = -1.0
    """Time when the process was last resumed after a stop (SIGCONT)."""

    def begins_in_background(self) -> None:
        """Count a commit for which the application doesn't wait."""
        self.in_background += 1

    def ended_in_background(self) -> None:
        """Note that a commit for which the application doesn't wait has ended."""
        self.in_background -= 1

    @property
    def busy_for(self) -> float:
        """Seconds until the application continues to process records."""
        return max(0.0, self._idle_until - self.world.now)

    def work(self, records: list[ConsumerRecord], first: dict[TopicPartition, int]) -> None:
        """Process and commit the records before the next poll, or, with `keeps`, after it."""
        if self.habits.keeps:
            records, self._kept = self._kept or [], records
        if records:
            self._before_next_poll("work on what it holds", self._hold(records))
        else:
            super().work(records, first)

    def _hold(self, records: list[ConsumerRecord]) -> CallerFlow[None]:
        self._polling = self._holding = True
        try:
            yield from HeldRecords(self, records).work()
        finally:
            self._polling = self._holding = False

    def _thaw(self, member_id: str) -> None:
        if not self.over:
            self.thawed_at = self.world.now
            if self._holding and not self.ledger.is_member(member_id):
                self.ledger.hits["frozen beyond its session while it held records"] += 1
        super()._thaw(member_id)


class HeldRecords:
    """The records that one poll returned."""

    def __init__(self, driver: HoldingDriver, records: list[ConsumerRecord]) -> None:
        self._driver = driver
        self._records = records
        self._partitions = list(dict.fromkeys(r.topic_partition for r in records))
        self._begun = driver.world.now

    def work(self) -> CallerFlow[None]:
        """Process the records in parts, and commit each part."""
        driver, habits = self._driver, self._driver.habits
        if habits.pauses:
            self._each("pause()", lambda p: driver.consumer.pause([p], paused=True))
        size = max(1, -(-len(self._records) // PARTS))
        for at in range(0, len(self._records), size):
            yield from self._works()
            if driver.rng.random() < habits.retries:
                self._retry(self._records[at:])
                break
            if not (yield from self._commit(self._records[at : at + size])):
                break
        if habits.pauses:
            self._each("resume()", lambda p: driver.consumer.pause([p], paused=False))

    def _works(self) -> CallerFlow[None]:
        driver = self._driver
        yield from pause(driver.rng.uniform(0.0, driver.habits.holds))
        if driver.busy_for > 0.0:
            yield from pause(driver.busy_for)
        if driver.thawed_at >= self._begun:
            yield from pause(driver.rng.choice(AFTER_A_STOP))

    def _broken(self) -> dict[TopicPartition, str]:
        """Return partitions that others have committed since they were assigned to this member."""
        ledger, driver = self._driver.ledger, self._driver
        found = {p: ledger.broken(driver, p) for p in self._partitions}
        return {p: other for p, other in found.items() if other is not None}

    def _went_well(self, what: str, broken: dict[TopicPartition, str]) -> None:
        """Check R-ID-1: a call can't succeed after the ownership of its partitions has ended."""
        driver = self._driver
        if broken:
            partition, other = next(iter(broken.items()))
            driver.violations.append(
                Violation(
                    f"{driver.world.now}: {driver.name}: {what} succeeded, though {other} has "
                    f"committed {partition} since {driver.name} was told that it owns it"
                )
            )

    def _refused(self, error: Exception, broken: dict[TopicPartition, str]) -> None:
        self._driver.errors.append(error)
        if broken:
            self._driver.ledger.hits["call for an ownership that was broken, refused"] += 1
        elif isinstance(error, CommitFailedError):
            self._driver.ledger.hits["commit of held records refused"] += 1

    # Commits

    def _commit(self, part: list[ConsumerRecord]) -> CallerFlow[bool]:
        """Commit a processed part; return whether the application continues with the next part."""
        driver = self._driver
        by = driver.habits.by
        if by == "any":
            by = driver.rng.choice(("record", "offsets", "async"))
        broken, what = self._broken(), f"commit by {by}"
        last = {r.topic_partition: r for r in part}
        ends = {p: OffsetAndMetadata(r.offset + 1) for p, r in last.items()}
        try:
            if by == "async":
                given = ends if driver.rng.random() < 0.5 else part
                told = self._told(broken)
                driver.begins_in_background()
                try:
                    yield from driver.consumer.commit_async(given, told)
                except KafkaError:
                    driver.ended_in_background()
                    raise
                return True
            each: dict[str, list[Any]] = {"positions": [None], "record": list(last.values())}
            for one in each.get(by, [ends]):
                yield from driver.consumer.commit(one, COMMIT_TIMEOUT)
        except KafkaError as error:
            self._refused(error, broken)
            return False
        self._went_well(what, broken)
        return True

    def _told(self, broken: dict[TopicPartition, str]) -> Callable[[Any, Exception | None], None]:
        def told(_: Any, error: Exception | None) -> None:
            self._driver.ended_in_background()
            if error is None:
                self._went_well("commit by async", broken)
            else:
                self._refused(error, broken)

        return told

    # Seeks and pauses

    def _retry(self, rest: list[ConsumerRecord]) -> None:
        """Seek to the first remaining record in each partition, so that the rest is read again."""
        first = {r.topic_partition: r.offset for r in reversed(rest)}
        driver = self._driver

        def seek(partition: TopicPartition) -> None:
            with suppress(TopicRecreatedError):  # the topic was recreated
                driver.consumer.seek(partition, first[partition])
                driver.sought(partition)

        self._each("seek()", seek, first)

    def _each(
        self,
        what: str,
        call: Callable[[TopicPartition], None],
        partitions: Iterable[TopicPartition] = (),
    ) -> None:
        before = self._broken()
        for partition in partitions or self._partitions:
            # These calls need no broker, so they fail only after the client has learned of its
            # removal.
            known = self._driver.lost(partition)
            broken = {p: other for p, other in before.items() if p == partition and known}
            try:
                call(partition)
            except IllegalStateError as error:
                self._refused(error, broken)
            else:
                self._went_well(what, broken)
