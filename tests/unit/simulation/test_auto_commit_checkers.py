"""The checker compares automatic commits only while a member owns a partition without a break."""

from __future__ import annotations

from tests.unit.simulation.test_group_checkers import T0, Member, ledger_of

from odradek.clients.consumer.group.announced_ownership import AskedCommit
from odradek.clients.consumer.ownership import Ownership
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.simulation.checkers.auto_commit_checkers import OwnCommits
from odradek.simulation.checkers.invariants import Violation


class Scene:
    """A member that owns t-0, and a checker of its automatic commits."""

    def __init__(self) -> None:
        self.ledger, self.member = ledger_of(1), Member("a", ("id-a", 1), auto_commits=True)
        self.ledger.assigned(self.member, [T0])
        self.checker = OwnCommits(self.ledger, 5.0)

    def begin(
        self, offset: int, ownership: Ownership, *, asked: bool = False, renews: bool = False
    ) -> Violation | None:
        commit = AskedCommit({T0: OffsetAndMetadata(offset)}, {T0: ownership})
        renewed = {T0} if renews else set()
        return self.checker.begins(self.member, commit, None if asked else renewed)


def test_an_automatic_commit_of_a_lower_offset_than_the_last_commit_is_reported() -> None:
    for asked in (False, True):
        scene, ownership = Scene(), Ownership()
        assert scene.begin(3, ownership, asked=asked) is None
        found = scene.begin(2, ownership, renews=True)
        assert "t-0 at 2 by itself after it has begun a commit at 3" in str(found)


def test_a_commit_before_the_member_was_removed_and_rejoined_is_not_compared() -> None:
    """The member's commit was rejected because it had been removed; meanwhile it has rejoined."""
    for asked in (False, True):
        scene, removed, joined = Scene(), Ownership(), Ownership()
        assert scene.begin(3, removed, asked=asked) is None
        assert scene.begin(2, joined, renews=True) is None
        found = scene.begin(1, joined, renews=True)
        assert "t-0 at 1 by itself after it has begun a commit at 2" in str(found)


def test_commits_of_a_deleted_topic_in_stale_metadata_are_not_compared() -> None:
    """A broker that is cut off may still name a deleted topic, which the client then rereads."""
    scene, ownership = Scene(), Ownership()
    assert scene.begin(2, ownership) is None
    scene.member.former = bytes(range(16))
    assert scene.begin(0, ownership) is None


def test_a_commit_that_the_coordinator_rejected_is_not_compared() -> None:
    scene, ownership = Scene(), Ownership()
    assert scene.begin(2, ownership) is None
    refused = AskedCommit({T0: OffsetAndMetadata(5)}, {T0: ownership})
    for accepted in (set(), {T0}):
        assert scene.checker.begins(scene.member, refused, None) is None
        scene.checker.not_stored(refused, accepted)
        assert (scene.begin(2, ownership, renews=True) is None) == (not accepted)


def test_a_close_that_does_not_renew_an_old_commit_is_reported() -> None:
    for age, again, reported in ((60.0, False, True), (60.0, True, False), (20.0, False, False)):
        scene = Scene()
        ledger, member_id = scene.ledger, scene.member.identity[0]
        ledger.gentle = True
        ledger.taken[T0] = 0, member_id
        ledger.committers[T0] = {member_id: ledger.now - age}
        scene.checker.closes(scene.member)
        if again:
            ledger.committers[T0] = {member_id: ledger.now}
        found = scene.checker.closed(scene.member)
        assert ("hasn't renewed the offset of t-0" in str(found)) == reported
