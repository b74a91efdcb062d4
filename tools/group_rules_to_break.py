"""The rules about groups, their offsets and what is written from their records, for `break_rules`.

See `rules_to_break`. The first tests named are some seeds of the explorer's families of groups.
"""

from __future__ import annotations

from rules_to_break import Breakage, broken

GROUP = "clients/consumer/group/consumer_group.py"
GROUPS = "tests/simulation/test_groups.py"
MEMBERS = f"{GROUPS}::test_random_groups_share_all_partitions_and_lose_nothing"
PROCESSORS = f"{GROUPS}::test_what_is_made_of_records_is_there_once"
KEPT = "tests/simulation/test_explore.py::test_what_once_failed_holds"

HABITS = "tests/simulation/test_consumer_habits.py"

CTRL_C = "tests/property/test_one_ctrl_c.py"
RESUBSCRIBED = (
    f"{CTRL_C}::test_who_subscribes_after_an_interrupted_unsubscribe_is_told_and_is_a_member"
)

GROUP_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "who subscribes while the group is being left joins at once",
        "R-GR-1",
        GROUP,
        "if self._leaving is not None and not self._leaving.done:",
        "if False:",
        RESUBSCRIBED,
    ),
    broken(
        "the end of a membership ends the subscription that waits for it",
        "R-GR-1",
        GROUP,
        "        if self._next is None:\n            self._watch.end()",
        "        if True:\n            self._watch.end()",
        RESUBSCRIBED,
    ),
    broken(
        "a subscription that was taken back before it began begins",
        "R-GR-1",
        GROUP,
        "            self.engine.cancel(self._next,",
        "            print(self._next,",
        RESUBSCRIBED,
    ),
    broken(
        "an earlier call's goodbye takes the next membership away",
        "R-GR-1",
        GROUP,
        "        if membership is not self.membership:",
        "        if False:",
        RESUBSCRIBED,
    ),
    broken(
        "who leaves the group twice at once leaves it twice",
        "R-GR-1",
        "clients/consumer/group/consumer_membership.py",
        "if self.state is MemberState.LEAVING:",
        "if False:",
        RESUBSCRIBED,
    ),
    broken(
        "a heartbeat that comes late takes an assignment with it",
        "KIP-848",
        "clients/consumer/group/consumer_heartbeats.py",
        "self.full = group.engine.now < self._doubtful_until",
        "self.full = False",
        f"{KEPT}[no_partition_is_lost_with_a_late_heartbeat]",
    ),
    broken(
        "a static member that comes back with other topics stays at its old place",
        "KIP-345",
        "clients/consumer/group/classic_membership.py",
        "if group.instance_id is not None and len(wanted) < len(given) and",
        "if False and",
        "tests/simulation/test_group_resubscribing.py",
    ),
    broken(
        "a loop that is woken goes on to the end of what was fetched",
        "R-GR-1",
        "runtime/hosts/one_reader.py",
        "last.iterates = NOBODY",
        "pass",
        f"{HABITS}::test_a_loop_that_a_wakeup_ended_is_through_with_its_record",
    ),
    broken(
        "a wakeup doesn't end a wait",
        "R-RT-2",
        "clients/consumer/consumer_engine.py",
        "self._roused = True",
        "pass",
        f"{HABITS}::test_a_wakeup_ends_the_call_that_waits_or_else_the_next[poll]",
    ),
    broken(
        "the way back to committed offsets leads elsewhere",
        "R-GR-1",
        "clients/calls/consumer_calls.py",
        "request_reset(chosen, COMMITTED)",
        "request_reset(chosen, EARLIEST)",
        f"{HABITS}::test_the_way_back_to_what_is_committed",
    ),
    broken(
        "the lag of who reads committed records only counts open transactions",
        "KIP-695",
        "clients/consumer/fetching/fetcher.py",
        "data.last_stable_offset if self._isolation else data.high_watermark",
        "data.high_watermark",
        f"{HABITS}::test_behind_an_open_transaction_nothing_is_to_be_read",
    ),
    broken(
        "a seek to a committed offset drops its leader epoch",
        "KIP-320",
        "clients/consumer/partition_arguments.py",
        "return offset_number(name, given.offset), epoch",
        "return offset_number(name, given.offset), -1",
        f"{HABITS}::test_the_epoch_of_a_committed_offset_is_checked_as_one_that_was_read",
    ),
    broken(
        "offsets are committed beyond what was handled",
        "R-GR-1",
        "clients/consumer/group/group_commits.py",
        "p: OffsetAndMetadata(position, leader_epoch=epoch)",
        "p: OffsetAndMetadata(position + 1, leader_epoch=epoch)",
        f"{MEMBERS}[0]",
    ),
    broken(
        "a member begins at an offset that an open transaction is about to move",
        "KIP-447",
        "clients/consumer/group/offset_lookup.py",
        "stable = version >= STABLE_FROM",
        "stable = False",
        "tests/simulation/test_group_commits.py::test_who_takes_over_amid_a_transaction_begins_after_it",
    ),
    broken(
        "a partition whose offset isn't stable holds up the others",
        "KIP-447",
        "clients/consumer/group/group_commits.py",
        "deadline, told=told)",
        "deadline)",
        "tests/simulation/test_group_commits.py"
        "::test_a_partition_whose_offset_is_not_stable_holds_up_no_other_and_is_told_of",
    ),
    broken(
        "a partition that is revoked is handed out still",
        "R-GR-1",
        GROUP,
        "pop(state, None)\n            self._subscription.withhold(state)\n",
        "pop(state, None)\n",
        f"{MEMBERS}[0]",
    ),
    broken(
        "a partition is given up before on_revoked has ended",
        "R-GR-1",
        "clients/consumer/group/classic_membership.py",
        "yield from self._beat_until(self._revoking)\n            self._revoking.result()\n",
        "pass\n",
        f"{MEMBERS}[6]",
    ),
    broken(
        "a transaction forgets its offsets",
        "R-GR-1",
        "clients/producer/transaction_manager.py",
        "        if not offsets:\n            return\n",
        "        if offsets:\n            return\n",
        f"{PROCESSORS}[0]",
    ),
    broken(
        "who joined again sends offsets of before as what it is now",
        "R-GR-1",
        GROUP,
        "who = self._outlived or self.identity()",
        "who = self.identity()",
        f"{KEPT}[offsets_of_one_that_joined_again_are_refused]",
    ),
    broken(
        "who was put out sends offsets as nobody, who is let pass",
        "R-GR-1",
        GROUP,
        "        who = self._outlived or self.identity()\n"
        "        if who.generation < 0 and self._owner is not None:\n",
        "        who = self.identity()\n        if False:\n",
        "tests/simulation/test_commits_of_the_put_out.py",
    ),
    broken(
        "offsets in a transaction don't say whose they are",
        "R-GR-1",
        "clients/producer/transaction_requests.py",
        "            group.generation_id,\n            group.member_id,\n",
        '            -1,\n            "",\n',
        f"{KEPT}[offsets_of_one_that_was_put_out_are_refused]",
    ),
    broken(
        "a member beats while it says goodbye",
        "R-GR-1",
        "clients/consumer/group/classic_membership.py",
        "self._identity.forget(member_id=False)",
        "pass",
        f"{KEPT}[who_closes_while_put_out_beats_no_more]",
    ),
    broken(
        "what comes after a pause is put aside before what came earlier",
        "R-GR-1",
        "clients/consumer/fetching/waiting_records.py",
        "        self._sort()\n        if not entry.valid:",
        "        self._mend()\n        if not entry.valid:",
        "tests/property/test_waiting_records.py",
    ),
    broken(
        "what lies aside is handed out because a seek made its neighbour useless",
        "R-GR-1",
        "clients/consumer/fetching/waiting_records.py",
        "                    self._sift(state)\n                else:",
        "                    self._let_go(state)\n                else:",
        "tests/property/test_waiting_records.py",
    ),
    broken(
        "the same subscription again makes the group rebalance",
        "R-GR-1",
        "clients/consumer/group/topic_watch.py",
        "before == (names, text, compiled)",
        "False",
        "tests/simulation/test_group_resubscribing.py",
    ),
    broken(
        "what watched an earlier subscription goes on watching",
        "R-GR-1",
        "clients/consumer/group/topic_watch.py",
        "self._serial += 1\n        self._asked.notify()",
        "self._serial += 1",
        "tests/simulation/test_group_resubscribing.py",
    ),
    broken(
        "whoever led a group once holds its topics for ever",
        "R-MD-7",
        "clients/consumer/group/classic_leader.py",
        "metadata.held_by.remove(self._topics)",
        "pass",
        "tests/simulation/test_group_resubscribing.py",
    ),
    broken(
        "a leader that names a useless replica is asked at the pace of its answers",
        "KIP-392",
        "clients/consumer/fetching/read_replicas.py",
        "        if leaders_only:\n            return False",
        "        if leaders_only:\n            return True",
        "tests/simulation/test_closest_replica.py",
    ),
    broken(
        "replicas may send a reader to and fro",
        "KIP-392",
        "clients/consumer/fetching/read_replicas.py",
        "if leader is None or leader.address != asked:",
        "if leader is None:",
        "tests/simulation/test_closest_replica.py",
    ),
    broken(
        "offsets that nobody waits for any more are asked for",
        "R-GR-1",
        "clients/consumer/group/offset_lookup.py",
        "elif wanted:",
        "else:",
        "tests/simulation/test_group_commits.py",
    ),
    broken(
        "a topic that isn't there is waited for in silence",
        "R-IN-6",
        "clients/missing_topics.py",
        "TELL_AFTER = 5.0",
        "TELL_AFTER = 500.0",
        "tests/simulation/test_missing_topics.py",
    ),
    broken(
        "the list of topics is asked for as long as one isn't there",
        "R-IN-6",
        "clients/missing_topics.py",
        "            missing.told = True\n            missing.near",
        "            missing.since = now\n            missing.near",
        "tests/simulation/test_missing_topics.py",
    ),
    broken(
        "topics are made for those who don't want it",
        "KIP-361",
        "metadata/metadata_updater.py",
        "allow_auto_topic_creation=self._creates",
        "allow_auto_topic_creation=True",
        "tests/simulation/test_missing_topics.py",
    ),
    broken(
        "warnings go nowhere where no logging is set up",
        "R-IN-6",
        "common/events.py",
        'logger = logging.getLogger("odradek")',
        'logger = logging.getLogger("odradek")\nlogger.addHandler(logging.NullHandler())',
        "tests/unit/api/test_no_logging.py",
    ),
    broken(
        "odradek consume commits what couldn't be written",
        "R-GR-1",
        "cli/console/consuming.py",
        "raise CutOffError from None",
        "return",
        "tests/simulation/test_console.py",
    ),
    broken(
        "a seek to the same offset keeps the epoch of a log that was cut",
        "KIP-320",
        "clients/consumer/subscription_state.py",
        "state.position_epoch = epoch\n        state.move_to(offset",
        "state.move_to(offset",
        "tests/simulation/test_truncation.py",
    ),
)
