"""A commit is accepted if the caller has owned its partition continuously since reading (R-ID-1).

A model of the group knows when a partition was lost, or may have been another member's; clients
only see generations, losses and announcements.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.volume import examples

from odradek.clients.consumer.group.announced_ownership import AnnouncedOwnership
from odradek.clients.consumer.group.offset_lookup import GroupIdentity
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import IllegalStateError
from odradek.common.types import TopicPartition

P = TopicPartition("t", 0)
ACTS = (
    *("poll", "poll", "announce", "seek"),
    *("rebalance", "given to another", "two generations", "removed amid one", "lose", "join"),
)


@dataclass
class Model:
    """The true state of one member and one partition, to compare with the client's."""

    by_epoch: bool
    breaks: int = 0
    """How often the partition was lost, or may have been another member's."""
    owned: bool = False
    announced: int | None = None
    """Value of `breaks` at the last announcement."""
    waits: bool = False
    """Whether the current assignment hasn't been announced to the caller yet."""
    records: list[tuple[int, int]] = field(default_factory=list)
    """Offsets that the caller has read, each with the value of `breaks` at that time."""
    lowest: dict[int, int] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)
    committed: int = 0

    def __post_init__(self) -> None:
        backoff = ExponentialBackoff(0.1, 1.0)
        self.subscription = SubscriptionState("earliest", backoff, random.Random(1))
        self.ownership = AnnouncedOwnership(self.subscription)
        self.member = GroupIdentity("m", 1, by_epoch=self.by_epoch)

    def do(self, act: str, number: int) -> None:
        state = self.subscription.partitions.get(P)
        if act in ("poll", "announce") and self.waits:
            self.ownership.announce([P], self.ownership.losses, self.member)
            self.waits, self.announced = False, self.breaks
        if act == "poll" and state is not None and state.position is not None:
            self.records += [(state.position + n, self.breaks) for n in range(number)]
            state.pass_over(state.position + number, -1)
            self.reached()
        elif act == "seek" and state is not None:
            self.seek(number)
        elif act == "lose" and self.owned:
            self.ownership.lost([] if state is None else [state])
            self.subscription.drop([P])
            self.breaks += 1
            self.owned = self.waits = False
            self.member = self.member._replace(member_id=self.member.member_id + "x", generation=0)
        elif act == "join" and not self.owned:
            self.take(1)
        elif act in ACTS[4:8] and state is not None:
            self.ownership.given_back([state], self.member)
            self.subscription.drop([P])
            self.breaks += self.by_epoch
            self.check()
            self.breaks += act != "rebalance" and not self.by_epoch
            if act == "removed amid one":
                self.ownership.lost([])
                self.owned = self.waits = False  # the member id may still be valid
            elif act == "given to another":
                self.owned = self.waits = False
                self.member = self.member._replace(generation=self.member.generation + 1)
                self.ownership.assigned([], self.member)
            else:
                self.take(1 if act == "rebalance" else 2)

    def take(self, generations: int) -> None:
        self.member = self.member._replace(generation=self.member.generation + generations)
        self.subscription.add([P], {})
        state = self.subscription.partitions[P]
        self.ownership.assigned([state], self.member)
        self.owned = self.waits = True
        state.move_to(self.committed)
        self.reached()

    def seek(self, number: int) -> None:
        if self.announced is not None and self.announced != self.breaks:
            with pytest.raises(IllegalStateError):
                self.subscription.seek(P, number)
        else:
            self.subscription.seek(P, number)
            self.reached()

    def reached(self) -> None:
        position = self.subscription.partitions[P].position
        assert position is not None
        self.lowest[self.breaks] = min(position, self.lowest.get(self.breaks, position))
        self.highest[self.breaks] = max(position, self.highest.get(self.breaks, position))

    def check(self) -> None:
        """Check commits of all records that the caller has, and one with explicit offsets."""
        by_hand = self.ownership.asked({P: OffsetAndMetadata(3)}, read=False).refused()
        assert bool(by_hand) == (self.announced not in (None, self.breaks))
        for offset, breaks in self.records:
            asked = self.ownership.asked({P: OffsetAndMetadata(offset + 1)}, read=True)
            taken = breaks == self.breaks
            if self.announced == self.breaks and self.breaks in self.lowest:
                taken |= self.lowest[self.breaks] <= offset + 1 <= self.highest[self.breaks]
            assert bool(asked.refused()) != taken, (offset, breaks, self.breaks)
        if self.records and self.announced == self.breaks:
            self.committed = max(0, self.records[-1][0])
        if self.owned and self.ownership.broken:
            assert self.ownership.member(self.member) != self.member


@pytest.mark.parametrize("by_epoch", [False, True], ids=["classic", "consumer"])
@settings(max_examples=examples(400))
@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 4)), min_size=2, max_size=30))
def test_a_commit_is_accepted_if_its_record_belongs_to_the_current_ownership(
    by_epoch: bool, acts: list[tuple[str, int]]
) -> None:
    model = Model(by_epoch)
    model.take(0)
    for act, number in acts:
        model.do(act, number)
        model.check()
