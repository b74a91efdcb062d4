"""What `break_rules` breaks of R-RB-9 (slow is not dead) and of the sessions that go with it."""

from __future__ import annotations

from rules_to_break import UPDATER, Breakage, broken

CANDIDATES = "metadata/candidates.py"
SLOW = "tests/simulation/test_slow_answers.py"
HELD = "tests/simulation/test_explore.py::test_what_once_failed_holds"
SESSIONS = "tests/simulation/test_group_sessions.py"


def slow(name: str) -> str:
    """A case of an API that answers late."""
    test = "test_the_first_answer_counts_however_late_it_comes"
    return f"tests/simulation/test_slow_answers.py::{test}[{name}]"


SLOW_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "a silent coordinator's answer is given up and asked for again",
        "R-RB-9",
        "clients/coordinator.py",
        "                if now >= self.deadline:\n"
        "                    raise self._unanswered(now)\n",
        "                if connection.suspect:\n"
        '                    raise DisconnectedError("silent")\n',
        slow("OffsetCommit-10-3"),
    ),
    broken(
        "ever more brokers are asked the same",
        "R-RB-9",
        "clients/any_broker.py",
        "MOST_ASKED = 2",
        "MOST_ASKED = 20",
        slow("DescribeCluster-10-3"),
    ),
    broken(
        "a silent leader's offsets are given up and asked for again",
        "R-RB-9",
        "clients/consumer/fetching/offsets.py",
        '                self._reasons.update(dict.fromkeys(partitions, f"{address} is silent"))\n',
        "                del self._asked[address]\n",
        slow("ListOffsets-10-1"),
    ),
    broken(
        "one slow answer makes the only broker a dead one",
        "R-RB-9",
        UPDATER,
        "if connection.ready:  # a reason to ask, and no proof",
        "if connection.ready and connection.is_held(now):  # no proof",
        slow("Fetch-10-1"),
    ),
    broken(
        "metadata is asked for behind a slow answer only",
        "R-RB-9",
        CANDIDATES,
        "silent = data is not None and data.ready and data.suspect",
        "silent = False",
        slow("Fetch-10-1"),
    ),
    broken(
        "an address that answers dials counts as dead",
        "R-RB-9",
        CANDIDATES,
        "                or self.lives(connection, now)\n",
        "",
        slow("Metadata of a new topic-25-1"),
    ),
    broken(
        "all brokers are asked for slow metadata, one after the other",
        "R-RB-9",
        "metadata/late_answers.py",
        "ENOUGH = 2",
        "ENOUGH = 20",
        slow("Metadata of a new topic-25-3"),
    ),
    broken(
        "a question for metadata that another answer has settled makes the next one due",
        "R-RB-9",
        CANDIDATES,
        "        if head is None or not isinstance(head.body, MetadataRequest):\n",
        "        if head is None or self._metadata.in_flight_topics is None:\n",
        f"{SLOW}::test_slow_metadata_that_came_is_asked_for_no_more[1-3-True]",
    ),
    broken(
        "nobody asks about a broker whose first silent request is for metadata",
        "R-RB-9",
        CANDIDATES,
        "return any(not isinstance(r.body, MetadataRequest) for r in connection.in_flight)",
        "return False",
        f"{SLOW}::test_a_dead_broker_is_asked_about_also_where_metadata_was_the_first_that_it_kept",
    ),
    broken(
        "a slow coordinator is looked for every second",
        "R-RB-9",
        "clients/coordinator.py",
        "LOOK_AT_SILENT = ExponentialBackoff(1.0, 8.0)",
        "LOOK_AT_SILENT = ExponentialBackoff(1.0, 1.0)",
        f"{SLOW}::test_a_slow_coordinator_is_looked_for_ever_more_seldom[1]",
    ),
    broken(
        "what idled beside a connection that was silent to its end is used",
        "R-RB-9",
        "network/network_client.py",
        "                self._close_unheard(connection.address, head.sent_at, now)\n",
        "",
        f"{HELD}[what_idles_beside_a_silent_connection_is_made_anew]",
    ),
    broken(
        "a session counts from a heartbeat's late answer",
        "R-RB-9",
        "clients/consumer/group/classic_membership.py",
        "self._sent_at + self._session)",
        "self._group.engine.now + self._session)",
        f"{SESSIONS}::test_a_session_counts_from_the_question_however_late_its_answer_is",
    ),
    broken(
        "the answer to an earlier heartbeat acknowledges what was given back since",
        "R-GR-1",
        "clients/consumer/group/consumer_membership.py",
        "MemberState.ACKNOWLEDGING and self._told:",
        "MemberState.ACKNOWLEDGING:",
        f"{SESSIONS}::test_an_answer_to_an_earlier_heartbeat_acknowledges_nothing",
    ),
)
