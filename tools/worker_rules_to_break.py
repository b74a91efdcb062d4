"""The rules about workers, for `break_rules`. See `rules_to_break`."""

from __future__ import annotations

from rules_to_break import Breakage, broken

QUEUE, RUN = "clients/workers/work_queue.py", "clients/workers/work_run.py"
DECIDED, RUNS = "tests/unit/clients/workers/test_work_queue.py", "tests/simulation/test_workers.py"
ORACLE = f"{DECIDED}::test_a_random_history_agrees_with_the_oracle"

WORKER_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "records of one key are in work together",
        "R-WK-1",
        QUEUE,
        "return (tp, record.key) if ordering == KEY and",
        "return (tp, record.key) if False and",
        ORACLE,
    ),
    broken(
        "a key goes on while its record waits for another attempt",
        "R-WK-1",
        QUEUE,
        "            self.retried += 1",
        "            self.retried += 1\n            self._release(item)",
        f"{DECIDED}::test_a_record_that_fails_is_tried_again_and_holds_up_its_key_alone",
    ),
    broken(
        "what still runs of a partition that was lost holds up nothing",
        "R-WK-1",
        QUEUE,
        "                elif item.lane is not None:",
        "                if item.lane is not None:",
        f"{DECIDED}::test_a_lane_waits_for_what_still_runs_of_a_partition_that_has_come_back",
    ),
    broken(
        "what is finished after a gap is committed",
        "R-WK-2",
        QUEUE,
        "for offset, item in self.unfinished.items():",
        "for offset, item in ():",
        ORACLE,
    ),
    broken(
        "where a partition begins isn't committed before its first record is finished",
        "R-WK-2",
        RUN,
        "if queue.add(records, now):",
        "if queue.add(records, now) and False:",
        f"{RUNS}::test_who_begins_at_the_end_of_a_topic_loses_nothing_in_a_crash",
    ),
    broken(
        "a partition is given back while its records are in work",
        "R-WK-2",
        RUN,
        "        yield from self._drained(partitions)\n        yield from self._last",
        "        yield from self._last",
        f"{RUNS}::test_a_rebalance_waits_for_what_runs",
    ),
    broken(
        "what was finished isn't committed before its partition goes",
        "R-WK-2",
        RUN,
        "        yield from self._last_commit(partitions)\n        self._drop",
        "        self._drop",
        f"{RUNS}::test_a_rebalance_waits_for_what_runs",
    ),
    broken(
        "a dead letter counts as finished once it is sent",
        "R-WK-3",
        "runtime/hosts/worker_tasks.py",
        "await self._producer.send_and_wait(**item.letter)",
        "await self._producer.send(**item.letter)",
        "tests/unit/runtime/test_worker_tasks.py::test_a_dead_letter_is_waited_for",
    ),
    broken(
        "a thread's dead letter counts as finished once it is sent",
        "R-WK-3",
        "runtime/hosts/worker_threads.py",
        "self._producer.send(**item.letter).result()",
        "self._producer.send(**item.letter)",
        "tests/unit/runtime/test_worker_threads.py::test_a_dead_letter_is_waited_for",
    ),
    broken(
        "work goes on after a record that can be put nowhere",
        "R-WK-3",
        QUEUE,
        "        if self.failure is not None or len",
        "        if len",
        f"{DECIDED}::test_without_a_dead_letter_topic_the_record_is_named_and_nothing_more_begins",
    ),
    broken(
        "a dead letter that is too large ends the run",
        "R-WK-3",
        QUEUE,
        "if large and (cut",
        "if False and (cut",
        f"{RUNS}::test_a_dead_letter_that_is_too_large_lacks_what_is_large_and_says_so",
    ),
    broken(
        "a topic of dead letters that isn't there shows at the first of them",
        "R-WK-3",
        RUN,
        "        yield from self._look_for_letters()\n",
        "",
        f"{RUNS}::test_a_dead_letter_topic_that_is_not_there_is_told_of_before_anything_is_read",
    ),
    broken(
        "a task that closes the consumer of a run waits for what is in work",
        "R-WK-2",
        "runtime/hosts/worker_tasks.py",
        "if asyncio.current_task() is self._owner:",
        "if True:",
        f"{RUNS}::test_a_consumer_that_another_task_closes_ends_it_at_once",
    ),
    broken(
        "what is finished after a gap wakes the loop up for ever",
        "R-WK-2",
        QUEUE,
        "del offsets[tp], self.moved[tp]",
        "del offsets[tp]",
        ORACLE,
    ),
    broken(
        "full buffers pause nothing",
        "R-WK-2",
        QUEUE,
        "if full is not work.paused:",
        "if False:",
        f"{RUNS}::test_slow_work_costs_no_membership_and_little_memory",
    ),
    broken(
        "each of many partitions may fill the buffer",
        "R-WK-2",
        QUEUE,
        "        return self._overfull",
        "        return False",
        f"{RUNS}::test_large_records_of_many_partitions_take_no_more_than_the_buffer_and_a_poll",
    ),
)
