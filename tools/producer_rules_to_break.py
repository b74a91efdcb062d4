"""The rules about records that are written once, and in order, for `break_rules`.

See `rules_to_break`.
"""

from __future__ import annotations

from rules_to_break import SETTLING, Breakage, broken

QUEUE = "clients/producer/partition_queue.py"
ROOM = "tests/unit/clients/producer/test_room_line.py"
SIGNALS = "tests/unit/api/test_threads_and_signals.py"
ONCE = "tests/simulation/test_written_once.py"
CUT = (
    "tests/simulation/test_explore.py::test_what_once_failed_holds"
    "[no_sequence_is_known_after_a_log_was_cut]"
)
LATE = "tests/simulation/test_late_transaction_offsets.py"
REFUSED = "tests/simulation/test_refused_records.py"

PRODUCER_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "out of order behind an acknowledged batch isn't written",
        "R-PR-1",
        SETTLING,
        "if batch.doubtful and batch.serial < numbering.acknowledged and not numbering.cut:",
        "if False:",
        f"{ONCE}::test_out_of_order_behind_an_acknowledged_one_is_success",
    ),
    broken(
        "out of order doesn't wait for those in doubt behind it",
        "R-PR-1",
        SETTLING,
        "if not queue.gaps or any(not b.out_of_order for b in queue.unsettled()):",
        "if not queue.gaps:",
        f"{ONCE}::test_out_of_order_waits_for_those_in_doubt_behind_it",
    ),
    broken(
        "a batch goes while one five batches older is in doubt",
        "R-PR-1",
        QUEUE,
        " and numbering.numbered - b.ordinal < REMEMBERED",
        "",
        f"{ONCE}::test_none_goes_while_one_five_batches_older_is_in_doubt",
    ),
    broken(
        "a leader of a new epoch counts as one that knows the producer",
        "R-PR-1",
        QUEUE,
        "numbering.known_at != epoch:",
        "numbering.known_at == NEVER:",
        "tests/unit/clients/producer/test_partition_queue.py",
    ),
    broken(
        "a topic made anew counts as one whose leader knows the producer",
        "R-PR-1",
        QUEUE,
        "numbering.acknowledged, numbering.known_at, numbering.reached = -1, NEVER, 0",
        "numbering.acknowledged = -1",
        f"{ONCE}::test_a_topic_made_anew_gets_the_first_batch_first",
    ),
    broken(
        "batches follow those that are under way to the topic as it was before",
        "R-PR-1",
        QUEUE,
        "if any(b.topic_tried != numbering.topic_id for b in under_way):",
        "if False:",
        "tests/unit/clients/producer/test_partition_queue.py",
    ),
    broken(
        "an answer of the topic as it was before proves that the new leader knows the producer",
        "R-PR-1",
        SETTLING,
        " and batch.topic_tried == numbering.topic_id:",
        ":",
        f"{ONCE}::test_a_late_answer_of_the_topic_as_it_was_says_nothing_of_the_new_one",
    ),
    broken(
        "what is in doubt in a log that was cut counts as written",
        "R-PR-1",
        SETTLING,
        "            elif batch.doubtful and not queue.numbering.cut:",
        "            elif batch.doubtful:",
        CUT,
    ),
    broken(
        "what is refused behind a batch that a cut log took counts as written",
        "R-PR-1",
        SETTLING,
        " and not numbering.cut:",
        ":",
        f"{ONCE}::test_what_is_in_doubt_in_a_log_that_was_cut_fails_as_such",
    ),
    broken(
        "what is in doubt in a log that was cut is sent again",
        "R-PR-1",
        SETTLING,
        "foreign or numbering.lost or numbering.cut or",
        "foreign or numbering.lost or",
        f"{ONCE}::test_what_is_in_doubt_in_a_log_that_was_cut_fails_as_such",
    ),
    broken(
        "an offset before what was acknowledged says nothing",
        "R-PR-1",
        QUEUE,
        "if older and offset < numbering.reached + between:",
        "if False:",
        CUT,
    ),
    broken(
        "records of topics without ids go to whoever has the address",
        "R-RB-5",
        "clients/producer/sender.py",
        " or any(q.by_name for q, _ in ready)",
        "",
        "tests/property/test_foreign_clusters.py",
    ),
    broken(
        "an answer after the append counts as a proof",
        "R-PR-1",
        "clients/producer/doubt.py",
        "    errors.NotEnoughReplicasError,",
        "    errors.NotEnoughReplicasError,\n    errors.RequestTimedOutError,",
        "tests/unit/clients/producer/test_partition_queue.py",
        f"{ONCE}::test_retries_that_run_out_leave_no_sequence_to_another",
    ),
    broken(
        "a batch that expired in doubt leaves its partition the epoch",
        "R-PR-1",
        SETTLING,
        "        if batch.doubtful:\n            self._end(queue, why)\n",
        "        if batch.doubtful:\n",
        f"{ONCE}::test_what_expired_in_doubt_comes_late_and_is_refused",
    ),
    broken(
        "what may come late behind a lost batch is numbered anew",
        "R-PR-1",
        SETTLING,
        "unsure = foreign or numbering.lost or numbering.cut or not batch.recognised",
        "unsure = foreign or numbering.cut or not batch.recognised",
        f"{ONCE}::test_behind_an_expired_one_what_may_come_late_is_not_written_anew",
    ),
    broken(
        "epochs of 16 bits are counted on",
        "R-PR-1",
        "clients/producer/producer_id.py",
        "if epoch < LAST_EPOCH:",
        "if True:",
        f"{ONCE}::test_the_epoch_after_the_last_is_a_new_id",
    ),
    broken(
        "a partition in doubt holds up the others",
        "R-PR-1",
        "clients/producer/sender.py",
        "(numbering.ended and queue.unsettled())",
        "(numbering.ended and any(q.unsettled() for q in self.queues.values()))",
        f"{ONCE}::test_one_partition_in_doubt_holds_up_no_other",
    ),
    broken(
        "retries that ran out leave their sequence to another batch",
        "R-PR-1",
        SETTLING,
        'self._give_up(queue, batch, failure, "no retries left")\n            self._resolve',
        "queue.take_back(batch)\n            self.fail(batch, failure)\n            self._resolve",
        f"{ONCE}::test_retries_that_run_out_leave_no_sequence_to_another",
    ),
    broken(
        "DUPLICATE_SEQUENCE_NUMBER is a failure",
        "R-PR-1",
        SETTLING,
        "code in (0, DuplicateSequenceNumberError.code)",
        "code == 0",
        f"{ONCE}::test_duplicate_sequence_number_is_success",
    ),
    broken(
        "sequences go on behind the last",
        "R-PR-1",
        QUEUE,
        "SEQUENCES = 1 << 31",
        "SEQUENCES = 1 << 32",
        f"{ONCE}::test_sequences_begin_again_behind_the_last",
    ),
    broken(
        "before KIP-890 an abort doesn't wait for what was sent",
        "R-PR-1",
        "clients/producer/transaction_manager.py",
        "self.abandons = self.version_2\n",
        "self.abandons = True\n",
        "tests/simulation/test_transaction_ends.py"
        "::test_before_kip_890_an_abort_waits_for_what_was_sent",
    ),
    broken(
        "one refused record fails its neighbours",
        "R-PR-1",
        SETTLING,
        "if answer is not None and bad and not batch.doubtful:",
        "if False:",
        f"{REFUSED}::test_refused_records_fail_and_their_neighbours_are_written",
    ),
    broken(
        "a step walks over all partitions that were used once",
        "R-MD-7",
        "clients/producer/sender.py",
        "            if queue.idle:\n",
        "            if False:\n",
        "tests/simulation/test_idle_partitions.py",
    ),
    broken(
        "a delivery timeout doesn't say what was refused",
        "R-RT-2",
        SETTLING,
        "attempts, latest = together(found)",
        "attempts, latest = together([])",
        f"{REFUSED}::test_a_delivery_timeout_lists_the_refusals",
    ),
    broken(
        "a close doesn't see what the thread has in hand",
        "R-PR-1",
        "clients/producer/sender.py",
        "for batch in self._accumulator.live() if",
        "for batch in self._accumulator.untaken() if",
        "tests/unit/api/test_many_threads.py::test_a_close_waits_for_what_the_thread_has_in_hand",
    ),
    broken(
        "a batch that was only half begun keeps flush waiting",
        "R-HO-1",
        "clients/producer/record_accumulator.py",
        " if b in kept or b in ripe or b in self._ripe}",
        "}",
        "tests/unit/clients/producer/test_record_accumulator.py"
        "::test_a_batch_that_was_only_half_begun_keeps_nobody_waiting",
    ),
    broken(
        "offsets of a transaction overtake those of the call before",
        "R-PR-1",
        "clients/producer/transaction_requests.py",
        "            ordered=True,",
        "            ordered=False,",
        f"{LATE}::test_a_later_call_in_the_transaction_has_the_last_word",
    ),
    broken(
        "an interrupted send_offsets_to_transaction reaches the next transaction",
        "R-HO-1",
        "clients/producer/transaction_manager.py",
        "except (KafkaTimeoutError, GeneratorExit):",
        "except KafkaTimeoutError:",
        f"{LATE}::test_what_an_aborted_transaction_asked_for_is_in_no_later_one",
    ),
    broken(
        "records that were refused one by one aren't counted at the program's end",
        "R-HO-4",
        "clients/producer/batch.py",
        "found.get(part.batch, 0) + part.records",
        "part.batch.count",
        "tests/unit/api/test_left_open.py"
        "::test_records_that_a_broker_refuses_at_the_end_are_told_one_by_one",
    ),
    broken(
        "small records overtake a large one that waits for room",
        "R-PR-1",
        "clients/producer/record_accumulator.py",
        "if self.waiters and not granted:",
        "if False:",
        f"{ROOM}::test_a_large_record_has_its_turn_before_small_ones_that_came_later",
    ),
    broken(
        "in a full buffer each record is a batch of its own",
        "R-PR-1",
        "clients/producer/room_line.py",
        "max(size, wanted, self._share)",
        "max(size, wanted)",
        f"{ROOM}::test_what_a_small_record_gets_holds_those_after_it",
    ),
    broken(
        "whoever is interrupted in the line keeps its place",
        "R-HO-1",
        "clients/producer/producer_engine.py",
        "        self.cancel(room, ",
        "        str(",
        f"{SIGNALS}::test_an_interrupted_wait_for_room_leaves_the_line",
    ),
)
