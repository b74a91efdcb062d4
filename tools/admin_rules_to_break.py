"""What `break_rules` breaks of an admin client's calls."""

from __future__ import annotations

from rules_to_break import Breakage, broken

ASKING = "clients/asking.py"
TESTS = "tests/simulation/test_admin_asking.py"
TOPICS = "tests/simulation/test_admin_topics.py"

ADMIN_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "a topic that our own request made is taken for another's",
        "R-RT-1",
        ASKING,
        "self._doubtful.add(item)",
        "pass",
        "tests/simulation/test_admin.py",
    ),
    broken(
        "a validation takes a topic for its own",
        "R-RT-1",
        ASKING,
        "ours = question.changes and (lost or item in self._doubtful)",
        "ours = lost or item in self._doubtful",
        "tests/simulation/test_admin.py",
    ),
    broken(
        "the first item that fails ends the call",
        "R-RT-4",
        ASKING,
        "                self.outcome.errors[item] = error\n                del",
        "                raise error\n                del",
        f"{TOPICS}::test_one_topic_that_fails_hides_no_other",
    ),
    broken(
        "what was done is lost where something failed",
        "R-RT-4",
        ASKING,
        "raise first.beside(self.results, self.errors)",
        "raise first",
        f"{TOPICS}::test_one_topic_that_fails_hides_no_other",
    ),
    broken(
        "a topic that isn't there is waited for",
        "R-RT-4",
        ASKING,
        "    errors.UnknownTopicOrPartitionError,\n    errors.UnknownTopicIdError,",
        "    errors.UnknownTopicIdError,",
        f"{TOPICS}::test_partitions_are_added",
    ),
    broken(
        "a topic that was just made isn't waited for",
        "R-RT-4",
        "clients/admin/admin_engine.py",
        "return self._fresh.get(topic, 0.0) > self.now",
        "return False",
        f"{TOPICS}::test_a_topic_that_was_just_made_is_known_soon",
    ),
    broken(
        "a broker that isn't the controller is asked again and again",
        "R-RT-5",
        ASKING,
        "others.add(connection.address)",
        "pass",
        f"{TESTS}::test_a_controller_that_isnt_there_any_more_is_left_for_another_broker",
    ),
    broken(
        "a leader that has moved is asked again and again",
        "R-RT-5",
        "clients/admin/offsets.py",
        "moving=MOVED,",
        "moving=(),",
        f"{TESTS}::test_a_leader_that_moves_is_followed",
    ),
    broken(
        "nobody looks whether a silent leader still leads",
        "R-RT-5",
        ASKING,
        "yield from self._look(leaders)",
        "pass",
        f"{TESTS}::test_a_leader_that_moves_while_it_is_silent_is_followed",
    ),
)
