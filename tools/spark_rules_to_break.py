"""What `break_rules` breaks of promises to Spark's users: maxBytesPerTrigger and its like."""

from __future__ import annotations

from rules_to_break import Breakage, broken

RATES, SHARING = "spark/driver/byte_rates.py", "spark/driver/sharing.py"
WEIGHED = "tests/unit/spark/test_byte_rates.py"
LIMITED = "tests/simulation/test_spark_driver.py"
SHARED = "tests/unit/spark/test_planning.py"
LATER, AGAIN = "spark/tasks/later_runs.py", "tests/unit/spark/test_later_runs.py"

SPARK_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "a limit in bytes is dropped where the head of a log is gone",
        "R-RT-2",
        RATES,
        "if not self._goes_to_beginning(client, error):",
        "if True:",
        f"{LIMITED}::test_the_limit_in_bytes_holds_where_the_heads_of_logs_are_gone",
    ),
    broken(
        "the records that are gone count against a limit in bytes",
        "R-RT-2",
        RATES,
        "return begin if found is None or found[0] != begin else max(found)",
        "return begin",
        f"{LIMITED}::test_the_limit_in_bytes_holds_where_the_heads_of_logs_are_gone",
    ),
    broken(
        "a sample that comes late is thrown away",
        "R-RB-9",
        RATES,
        "{tp: s for tp, s in self._under_way.items() if tp in lags}",
        "{}",
        f"{WEIGHED}::test_a_late_answer_counts_for_the_next_batch",
    ),
    broken(
        "what nobody could weigh is taken for light",
        "R-RT-2",
        SHARING,
        "UNWEIGHED_BYTES = 1 << 20",
        "UNWEIGHED_BYTES = 1 << 10",
        f"{LIMITED}::test_the_limit_in_bytes_holds_where_nothing_is_ever_weighed",
    ),
    broken(
        "one partition that can't be weighed takes the limit from the others",
        "R-RT-2",
        SHARING,
        "        found |= proportional_ends(",
        "        _ = proportional_ends(",
        f"{SHARED}::test_a_limit_in_bytes_holds_and_every_partition_goes_on",
    ),
    broken(
        "one partition's refusal ends the weighing of the others",
        "R-RT-2",
        RATES,
        "if error.fatal or client.ended is not None:",
        "if True:",
        f"{WEIGHED}::test_one_partition_that_can_not_be_read_takes_nothing_from_the_others",
    ),
    broken(
        "each batch warns anew that partitions can't be weighed",
        "R-RT-2",
        RATES,
        "            self._told.update(tp.topic for tp in failing)\n",
        "",
        f"{WEIGHED}::test_an_outage_is_told_once_and_so_is_its_end",
    ),
    broken(
        "old sizes are used for ever without a word",
        "R-RT-2",
        RATES,
        "now - sample.since >= STALE_S",
        "False",
        f"{WEIGHED}::test_old_sizes_are_not_used_for_ever_without_a_word",
    ),
    broken(
        "sizes of a topic go for the one that was made anew",
        "R-MD-7",
        "spark/driver/tracker.py",
        "            self._rates.forget(losses.recreated)\n",
        "",
        f"{WEIGHED}::test_a_topic_that_was_made_anew_is_weighed_anew",
    ),
    broken(
        "a pause file that can't be looked for is taken for none",
        "R-RT-2",
        "spark/driver/stream_source.py",
        "except (FileNotFoundError, NotADirectoryError):",
        "except OSError:",
        "tests/unit/spark/test_source.py::test_a_pause_file_that_nobody_can_look_for_is_an_error",
    ),
    broken(
        "a task waits in vain in a log that an election has cut",
        "R-RT-2",
        "spark/tasks/reading.py",
        "if begin <= at <= end and not cut:",
        "if begin <= at <= end:",
        "tests/simulation/test_spark_tasks.py",
    ),
    broken(
        "a kept frame is frozen at its first plan",
        "R-SP",
        LATER,
        "return made > share.planned_at",
        "return False",
        f"{AGAIN}::test_a_later_run_reads_what_is_there_by_then",
    ),
    broken(
        "a kept frame's first query has no one answer for its tasks",
        "R-SP",
        LATER,
        "made > share.planned_at",
        "made >= share.planned_at - 1",
        f"{AGAIN}::test_the_first_run_reads_what_was_planned",
    ),
    broken(
        "a kept frame beside a stream is frozen at its first batch",
        "R-SP",
        LATER,
        "return batch_id is not None",
        "return False",
        f"{AGAIN}::test_a_micro_batch_whose_id_is_its_streams_plans_by_itself",
    ),
    broken(
        "a kept frame ends where it was divided",
        "R-SP",
        LATER,
        "until = found.until if share.last else min(found.until, wanted.until)",
        "until = min(found.until, wanted.until)",
        f"{AGAIN}::test_any_split_and_any_change_give_each_record_once",
    ),
    broken(
        "a kept frame's divided ranges are read twice",
        "R-SP",
        LATER,
        "start = found.start if share.first else max(found.start, wanted.start)",
        "start = found.start",
        f"{AGAIN}::test_any_split_and_any_change_give_each_record_once",
    ),
    broken(
        "a kept frame lacks partitions that were empty",
        "R-SP",
        LATER,
        "return [] if found.tp in (share.planned or ()) else [found]",
        "return []",
        f"{AGAIN}::test_what_was_empty_has_a_task_in_later_runs",
    ),
    broken(
        "a kept frame is read late and short without a word",
        "R-SP",
        LATER,
        "if end > wanted.until:",
        "if False:",
        f"{AGAIN}::test_a_frame_that_is_read_long_after_its_plan_is_warned_of_once",
    ),
    broken(
        "a kept frame's filters narrow its other queries",
        "R-SP",
        "spark/driver/pushdown.py",
        "if not hasattr(DataSourceReader, LIMITS):",
        "if False:",
        "tests/unit/spark/test_filters.py"
        "::test_nothing_is_narrowed_where_spark_keeps_one_plan_for_all_queries",
    ),
    broken(
        "a timestamp that Spark can't hold is null without a word",
        "R-RT-2",
        "spark/tasks/reading.py",
        'return "timestamp" in columns and not self._options.null_timestamps',
        "return False",
        "tests/unit/spark/test_reading.py::test_a_timestamp_that_spark_can_not_hold_is_named",
    ),
    broken(
        "a second write of a batch, to another topic, is taken for its replay",
        "R-RT-2",
        "spark/sink/exactly_once.py",
        "if self._options.topic not in (None, topic):",
        "if False:",
        "tests/unit/spark/test_exactly_once.py::"
        "test_a_second_write_of_one_batch_to_another_topic_is_not_taken_for_its_replay",
    ),
    broken(
        "a batch of foreachBatch is written under no query's name",
        "R-RT-2",
        "spark/sink/foreach_batch.py",
        "    if not query:\n",
        "    if False:\n",
        "tests/unit/spark/test_foreach_batch.py::test_a_query_that_nobody_names_is_not_written",
    ),
    broken(
        "a pipeline counts what was read for what was written",
        "R-RT-2",
        "cli/pipeline/progress.py",
        "return None if rows < 0 else rows",
        "return None",
        "tests/unit/cli/pipeline/test_progress.py::"
        "test_rows_in_all_are_what_the_sink_has_written_where_it_tells",
    ),
    broken(
        "a flow whose Python process didn't connect is started again and again",
        "R-RT-2",
        "cli/pipeline/running.py",
        "error = None if flow.again else flow.query.exception()",
        "error = flow.query.exception()",
        "tests/unit/cli/pipeline/test_running.py::"
        "test_a_flow_whose_python_process_did_not_connect_is_started_once_more",
    ),
    broken(
        "a topic made anew that gives nothing is a partition that gives nothing",
        "R-RT-2",
        "spark/tasks/reading.py",
        "if self._goes_on(at):",
        "if False:",
        "tests/unit/spark/test_reading.py::"
        "test_what_gives_nothing_is_looked_at_before_it_is_given_up",
    ),
)
