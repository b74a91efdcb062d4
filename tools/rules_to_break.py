"""The rules that `break_rules` breaks: what is changed in the sources, and who has to notice.

Texts are short and stand where a rule is decided; a unit test sees to it that they are still there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patch:
    """A text of one file that is replaced wherever it occurs; it must occur."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Breakage:
    """What is broken, the rule that says otherwise, and the tests of which one must fail."""

    name: str
    rule: str
    patches: tuple[Patch, ...]
    tests: tuple[str, ...]


def case(folder: str, name: str) -> str:
    """A case of `tests/spec` as pytest names it."""
    return f"tests/spec/test_{folder}.py::test_case[{name}]"


def broken(name: str, rule: str, file: str, old: str, new: str, *tests: str) -> Breakage:
    """A breakage with one patch."""
    return Breakage(name, rule, (Patch(file, old, new),), tests)


UPDATER = "metadata/metadata_updater.py"
CLIENT = "network/network_client.py"
STATES = "network/cluster_connection_states.py"
GOVERNOR = "network/dial_governor.py"
SETTLING = "clients/producer/settling.py"

SIGNALS = "tests/unit/api/test_threads_and_signals.py"
CALLER = "runtime/hosts/caller.py"
CTRL_C = "tests/property/test_one_ctrl_c.py"
REPLACED = "tests/unit/api/test_overridden_methods.py"
LEFT_OPEN = "tests/unit/api/test_left_open.py"
IO_LOG = "tests/unit/runtime/test_io_log.py"
IN_TEXTS = "tests/unit/common/test_option_texts.py"


BREAKAGES = (
    # Hosts
    broken(
        "two threads hand out the same records",
        "R-HO-3",
        "runtime/hosts/one_reader.py",
        "if held is None or not held.stands:",
        "if True:",
        f"{SIGNALS}::test_a_second_thread_in_poll_is_refused_by_name",
    ),
    broken(
        "a client that another thread closes, too, takes that one's time",
        "R-RT-2",
        "clients/calls/client_calls.py",
        "deadline, begun = until[0], False",
        "self.last = deadline = max(until[0], getattr(self, 'last', 0.0))\n        begun = False",
        "tests/unit/clients/test_closing.py",
    ),
    broken(
        "an exception leaves the accumulator's books torn",
        "R-HO-1",
        "clients/producer/record_accumulator.py",
        "        if self._torn:\n            self._mend()",
        "        if False:\n            self._mend()",
        "tests/property/test_interruptions.py::test_a_producer_goes_on[send-in-the-accumulator]",
    ),
    broken(
        "a thread begins without what it waits with, and ends for good",
        "R-HO-1",
        "runtime/hosts/thread_host.py",
        "                self._inner.open()\n",
        "",
        "tests/unit/runtime/test_thread_host.py"
        "::test_without_descriptors_a_call_fails_and_a_later_one_works",
    ),
    broken(
        "a selector without its wake-up is left open",
        "R-HO-1",
        "runtime/hosts/selector_host.py",
        "                made.close()\n",
        "                pass\n",
        "tests/unit/runtime/test_thread_host.py"
        "::test_without_descriptors_a_call_fails_and_a_later_one_works",
    ),
    broken(
        "an I/O thread runs logging handlers itself",
        "R-HO-2",
        "runtime/hosts/io_log.py",
        "        self._io_threads.add(threading.get_ident())\n",
        "",
        f"{SIGNALS}::test_a_logging_handler_may_wait_for_the_client_under_its_own_lock",
    ),
    broken(
        "a forked child hands on its parent's lines",
        "R-HO-2",
        "runtime/hosts/io_log.py",
        "        self._begin()\n\n    # I/O",
        "        self._running = False\n\n    # I/O",
        f"{IO_LOG}::test_a_forked_child_hands_on_nothing_of_its_parent",
    ),
    broken(
        "the program's end doesn't wait for lines of I/O threads",
        "R-HO-4",
        "runtime/left_open.py",
        "        io_log.drain()\n",
        "",
        f"{IO_LOG}::test_what_was_logged_before_the_programs_end_is_there",
    ),
    broken(
        "a torn engine goes on",
        "R-HO-1",
        "clients/calls/client_calls.py",
        "if self.host.torn:",
        "if False:",
        "tests/property/test_interruptions.py::test_a_consumer_goes_on[end_offsets-False]",
    ),
    broken(
        "a Ctrl-C between two steps of a call passes its flow by",
        "R-HO-1",
        CALLER,
        "                if not ended:\n",
        "                if False:\n",
        f"{CTRL_C}::test_close_closes",
    ),
    broken(
        "a Ctrl-C beside the end of poll() costs its list",
        "R-HO-1",
        "api/consumer.py",
        "        self._calls.engine.delivery.handed_over()\n        return found or []",
        "        (lambda: self._engine.delivery.handed_over())()\n        return found or []",
        f"{CTRL_C}::test_poll_loses_a_list_at_one_place_alone",
    ),
    broken(
        "a callback's StopIteration becomes another error",
        "R-HO-5",
        CALLER,
        "stops += (error,)",
        "pass",
        f"{REPLACED}::test_stop_iteration_of_a_callback_is_not_the_end_of_its_call",
    ),
    broken(
        "send() goes on where it has interrupted itself",
        "R-HO-2",
        "clients/calls/producer_calls.py",
        'self.check_uninterrupted("send()")',
        "pass",
        f"{SIGNALS}::test_a_producer_interrupted_under_its_lock_refuses_to_wait",
    ),
    broken(
        "an interrupted import leaves the import lock held",
        "R-HO-1",
        "common/imports.py",
        "            _imp.release_lock()",
        "            break",
        "tests/unit/common/test_imports.py::test_an_interrupted_import_leaves_no_lock_held",
    ),
    broken(
        "a fork leaves its child half a module",
        "R-HO-4",
        "runtime/fork.py",
        "        keep_amid(_import)",
        "        pass",
        "tests/unit/runtime/test_fork.py::test_a_fork_waits_until_no_other_thread_is_amid_an_import",
    ),
    broken(
        "an import of the I/O thread holds no fork off",
        "R-HO-4",
        "network/handshake.py",
        '            loaded("odradek.network.sasl.authenticate")',
        "            pass",
        "tests/integration/test_secure_changes.py::"
        "test_all_imports_of_other_threads_hold_forks_off",
    ),
    broken(
        "the end of the program forgets records",
        "R-HO-4",
        "runtime/process_end.py",
        "            atexit.register(_ExitHandler(self._ends, self._is_over))",
        "            pass",
        f"{LEFT_OPEN}::test_a_program_that_ends_without_close_delivers_everything",
    ),
    broken(
        "records of exit handlers that run later are forgotten",
        "R-HO-4",
        "runtime/process_end.py",
        "            self._is_over()",
        "            pass",
        f"{LEFT_OPEN}::test_what_later_exit_handlers_send_is_delivered",
    ),
    broken(
        "a forked child of multiprocessing forgets its records",
        "R-HO-4",
        "runtime/process_end.py",
        "            util.Finalize(None, self._child_ends, exitpriority=LAST)",
        "            pass",
        f"{LEFT_OPEN}::test_a_child_of_multiprocessing_delivers_everything",
    ),
    broken(
        "sys.exit() in a callback ends the step",
        "R-HO-5",
        "runtime/hosts/record_future.py",
        "    except BaseException as error:\n        producer._surface(error)",
        "    except ZeroDivisionError:\n        raise",
        f"{SIGNALS}::test_what_a_delivery_callback_means_for_the_program_gets_there",
    ),
    # KIP-580
    broken(
        "the literal formula of KIP-580",
        "R-BO-1",
        "common/backoff.py",
        "top = maximum / (1.0 + jitter)",
        "top = math.inf",
        case("kip_580", "jitter_survives_at_the_cap"),
    ),
    broken(
        "a base above the maximum goes on growing",
        "R-BO-2",
        "common/backoff.py",
        "if base >= maximum:  # `constant`",
        "if maximum < 0.0:",
        case("kip_580", "base_above_max_is_a_constant_max"),
    ),
    broken(
        "jitter drawn at each poll",
        "R-BO-3",
        STATES,
        "max(0.0, found.backoff_until - now)",
        "max(0.0, (found.backoff_until - now) * (0.8 + 0.4 * self._rng.random()))",
        case("kip_144", "a_constant_wait_is_exact"),
        "tests/unit/network/test_cluster_connection_states.py::test_the_deadline_is_drawn_once",
    ),
    broken(
        "the first wait counts as the second",
        "R-BO-5",
        "common/backoff.py",
        "self.until = now + self._policy.delay(self.failures, self._rng)",
        "self.until = now + self._policy.delay(self.failures + 1, self._rng)",
        case("kip_580", "table_of_the_kip"),
    ),
    # KIP-144
    broken(
        "the maximum doesn't follow the base",
        "R-CS-1",
        "common/config.py",
        'if "reconnect.backoff.ms" in self.given and',
        "if False and",
        case("kip_144", "reconnect_settings"),
    ),
    broken(
        "backoff reset at TCP connect",
        "R-CS-3",
        CLIENT,
        "            opened(self, connection, now)\n",
        "            self.states.proved(connection.address, now)\n"
        "            opened(self, connection, now)\n",
        case("kip_144", "tcp_connect_alone_resets_nothing"),
        case("kip_144", "accept_then_reset_grows"),
    ),
    broken(
        "backoff reset at ApiVersions",
        "R-CS-3",
        "network/handshake.py",
        "    network.states.setup_done(connection.address)\n",
        "    network.states.setup_done(connection.address)\n"
        "    network.states.proved(connection.address, now)\n",
        case("kip_144", "ready_then_closed_grows"),
    ),
    broken(
        "an idle close counts as a failure",
        "R-CS-4",
        CLIENT,
        "failure = not (idle and error is None)",
        "failure = True",
        case("kip_144", "an_orderly_idle_close_is_no_failure"),
    ),
    broken(
        "a setup timeout that doesn't grow",
        "R-CS-5",
        STATES,
        "state.setup_failures += 1",
        "state.setup_failures += 0",
        case("kip_144", "setup_timeout_grows"),
    ),
    broken(
        "always the first IP of a name",
        "R-CS-6",
        STATES,
        "state.last_ip = fresh[0]",
        "fresh = list(ips)\n        state.last_ip = fresh[0]",
        case("kip_144", "a_dead_ip_is_passed_over"),
    ),
    broken(
        "the dial governor off",
        "R-CS-8",
        GOVERNOR,
        "limited = self.engaged or failed",
        "limited = False",
        case("kip_144", "after_a_failure_all_dials_are_spaced"),
    ),
    broken(
        "leaders don't wait for metadata",
        "R-CS-8",
        GOVERNOR,
        "if self.engaged and self.metadata_only and not for_metadata:",
        "if False:",
        case("kip_144", "leaders_wait_for_the_round"),
    ),
    broken(
        "no limit on the dials of a second",
        "R-RB-7",
        GOVERNOR,
        "MAX_PER_SECOND = 6",
        "MAX_PER_SECOND = 100",
        "tests/unit/network/test_dial_governor.py"
        "::test_six_dials_in_any_second_whatever_was_proved_meanwhile",
    ),
    broken(
        "no limit on pending dials",
        "R-MD-3",
        GOVERNOR,
        "MAX_PENDING = 6",
        "MAX_PENDING = 100",
        case("kip_144", "hanging_dials_overlap_with_spacing"),
    ),
    broken(
        "a hanging IP costs the whole setup timeout",
        "R-CS-6",
        "network/handshake.py",
        "NEXT_IP = 2.0",
        "NEXT_IP = 1000.0",
        case("kip_144", "a_hanging_ip_is_passed_over"),
    ),
    broken(
        "throttles are ignored",
        "R-RB-2",
        "network/connection.py",
        "self.throttled_until = max(self.throttled_until, until)",
        "pass",
        case("kip_144", "a_throttle_is_kept_to"),
    ),
    # The Sarama page
    broken(
        "always the same idle broker",
        "R-MD-2",
        "metadata/least_loaded_node.py",
        "(len(connection.in_flight), connection.last_used)",
        "(len(connection.in_flight), 0.0)",
        case("metadata", "the_idle_broker_used_longest_ago_is_asked"),
        case("metadata", "idle_brokers_share_the_requests"),
    ),
    broken(
        "a second metadata request in flight",
        "R-MD-4",
        UPDATER,
        "            reply = self._network.send(connection, body, now)\n",
        "            self._network.send(connection, body, now)\n"
        "            reply = self._network.send(connection, body, now)\n",
        case("metadata", "a_thousand_refreshes_make_two_requests"),
    ),
    broken(
        "callers don't join the running request",
        "R-MD-4",
        "metadata/metadata.py",
        "continue  # joins the running request",
        "pass",
        case("metadata", "callers_join_the_running_request"),
    ),
    broken(
        "an answer without brokers is state",
        "R-MD-5",
        UPDATER,
        "if not response.brokers:",
        "if False:",
        case("metadata", "an_answer_without_brokers_is_no_state"),
    ),
    broken(
        "a lower leader epoch is believed",
        "R-MD-7",
        "metadata/cluster.py",
        "0 <= p.leader_epoch < known_epoch",
        "False",
        case("metadata", "a_lower_epoch_is_not_believed"),
    ),
    # KIP-899
    broken(
        "silence proves life",
        "R-RB-2",
        CLIENT,
        "SUSPICION = 2.0",
        "SUSPICION = 1000.0",
        case("kip_899", "all_connections_fall_silent"),
        case("kip_899", "all_brokers_replaced_black_holed"),
    ),
    broken(
        "a long poll is silence",
        "R-RB-2",
        "network/connection.py",
        "max(head.sent_at + head.patience, self.last_received) + suspicion",
        "max(head.sent_at, self.last_received) + suspicion",
        case("kip_899", "a_long_poll_is_no_silence"),
    ),
    broken(
        "all brokers of a large cluster have to be tried",
        "R-RB-3",
        "metadata/bootstrap.py",
        "ENOUGH = 5",
        "ENOUGH = 1000",
        case("kip_899", "a_hundred_brokers_replaced"),
    ),
    broken(
        "a rebootstrap while a connection answers",
        "R-RB-3",
        "metadata/bootstrap.py",
        "if not known or answering:",
        "if not known:",
        case("kip_899", "while_one_answers_there_is_no_rebootstrap"),
        case("kip_899", "a_slow_answer_is_waited_for_while_leaders_fail"),
    ),
    broken(
        "the timer counts from the last attempt",
        "R-RB-3",
        UPDATER,
        "            until = self._retry.failed(now)\n",
        "            self.due_since = now\n            until = self._retry.failed(now)\n",
        case("kip_899", "the_timer_counts_from_the_first_due_attempt"),
    ),
    broken(
        "requests in flight are forgotten at a rebootstrap",
        "R-RB-4",
        CLIENT,
        "            self._end(connection, DisconnectedError(f",
        "            connection.in_flight.clear()\n"
        "            self._end(connection, DisconnectedError(f",
        case("kip_899", "in_flight_requests_end_as_retriable_disconnects"),
    ),
    broken(
        "old connections survive a rebootstrap",
        "R-RB-4",
        UPDATER,
        "        if restarted:  #",
        "        if False:  #",
        case("kip_899", "in_flight_requests_end_as_retriable_disconnects"),
    ),
    Breakage(
        "each round of an outage counts as a rebootstrap",
        "R-RB-4",
        (
            Patch(UPDATER, "and self._rebootstraps and self.current is None:", "and True:"),
            Patch(UPDATER, "        if self.current is not None:\n            return\n", ""),
        ),
        (case("kip_899", "one_outage_counts_one_rebootstrap"),),
    ),
    broken(
        "a rebootstrap forgets the backoffs",
        "R-CS-2",
        UPDATER,
        "        self.history.append(self.current)\n",
        "        self.history.append(self.current)\n        self._network.states._states.clear()\n",
        case("kip_899", "a_rebootstrap_halves_no_backoff"),
    ),
    broken(
        "a rebootstrap forgets the leader epochs",
        "R-RB-4",
        "metadata/metadata.py",
        "        self.snapshot = self._looked = None\n        self.changed.notify()\n",
        "        self.snapshot = None\n        self._epochs.clear()\n"
        "        self.changed.notify()\n",
        case("kip_899", "epochs_outlive_a_rebootstrap"),
    ),
    broken(
        "a rebootstrap forgets the cluster id",
        "R-RB-5",
        "metadata/metadata.py",
        "        self.snapshot = self._looked = None\n        self.changed.notify()\n",
        "        self.snapshot = self._looked = None\n        self.cluster_id = None\n"
        "        self.changed.notify()\n",
        case("kip_899", "the_cluster_id_outlives_a_rebootstrap"),
    ),
    broken(
        "the cluster id isn't compared",
        "R-RB-5",
        "metadata/bootstrap.py",
        "if known is None or not found or known == found:",
        "if True:",
        case("kip_899", "another_cluster_behind_the_bootstrap_address"),
    ),
    broken(
        "a foreign answer proves its address",
        "R-RB-5",
        "network/dial_policy.py",
        "        self._states.disproved(address)\n",
        "",
        case("kip_899", "a_recycled_address_goes_on_backing_off"),
    ),
    broken(
        "records go to a recycled address unasked",
        "R-RB-5",
        "clients/cluster_check.py",
        "if connection.ours or connection.asked_whose:",
        "connection.is_ours()\n        if connection.ours:",
        "tests/property/test_foreign_clusters.py",
    ),
    # Retries
    broken(
        "a batch waits although another leader is known",
        "R-RT-1",
        "clients/producer/sender.py",
        " and epoch <= batch.epoch_tried",
        "",
        case("kip_580", "a_new_leader_epoch_ends_the_wait"),
    ),
    broken(
        "a batch is retried at once",
        "R-RT-1",
        SETTLING,
        "batch.retry_at = now + delay",
        "batch.retry_at = now",
        case("kip_580", "batches_back_off_each_for_itself"),
    ),
    broken(
        "a leader hint costs a refresh",
        "R-MD-6",
        "metadata/metadata.py",
        "if wanted and not hinted:",
        "if wanted:",
        case("metadata", "a_leader_hint_needs_no_refresh"),
    ),
    broken(
        "one impossible name spoils every refresh",
        "R-RT-3",
        "common/topic_names.py",
        'if not 0 < len(name) <= LONGEST or name in (".", "..") or name.strip(_ALLOWED):',
        "if False:",
        case("kip_580", "what_is_no_name_fails_at_once"),
    ),
    broken(
        "an answer that can't be read ends a producer",
        "R-RT-3",
        CLIENT,
        "request.reply.fail(lost)\n                self._malformed",
        "request.reply.fail(error)\n                self._malformed",
        "tests/property/protocol/test_hundred_thousand_frames.py::test_whole_clients[producer]",
    ),
    broken(
        "a retried batch gets a new sequence",
        "R-PR-1",
        "clients/producer/partition_queue.py",
        "        if batch.sequence != NO_SEQUENCE:\n            return\n",
        "",
        "tests/simulation/test_send_arrow.py::test_random_faults_lose_double_and_reorder_nothing",
    ),
    broken(
        "a commit doesn't wait for its records",
        "R-PR-1",
        "clients/producer/transaction_manager.py",
        "        yield from self._settle()\n        yield from self._end(committed=True)",
        "        yield from self._end(committed=True)",
        "tests/simulation/test_transactional_producer.py",
    ),
    broken(
        "a batch in doubt leaves the next transaction its epoch",
        "R-PR-1",
        "clients/producer/transaction_manager.py",
        "unsure = self._needs_epoch or self._begun is Begun.PERHAPS",
        "unsure = False",
        "tests/simulation/test_transaction_errors.py",
    ),
    broken(
        "a record goes out before its partition is in the transaction",
        "R-PR-1",
        "clients/producer/sender.py",
        " and identity.admits(partition)",
        "",
        "tests/simulation/test_transactional_producer.py",
    ),
    broken(
        "errors don't list the attempts",
        "R-RT-2",
        "clients/client_engine.py",
        "attempts = [*self.recent_attempts(now), *own_attempts]",
        "attempts: list[Attempt] = []",
        case("kip_580", "a_call_ends_at_its_deadline_and_lists_the_attempts"),
        "tests/property/test_no_call_outlives_its_timeout.py",
    ),
    broken(
        "any number of records in a batch",
        "R-IN-4",
        "record/limits.py",
        "        if count > self.records:",
        "        if False:",
        "tests/unit/record/test_limits.py::test_more_records_than_a_batch_may_have",
    ),
    broken(
        "a few bytes may become any number of bytes",
        "R-IN-4",
        "record/limits.py",
        "max(FREE_OF_RATIO, self.ratio * packed)",
        "self.decompressed",
        "tests/unit/record/test_limits.py::test_a_ratio_beyond_what_every_batch_may_become",
    ),
    broken(
        "a map of Protobuf has null for a message that isn't written",
        "R-IN-4",
        "serialization/protobuf_plan.py",
        "            made[4] = Label.LEFT if entry else _label(one)",
        "            made[4] = _label(one)",
        "tests/unit/serialization/test_protobuf_columns.py::test_an_entry_of_a_map_without_its_value",
    ),
    broken(
        "bytes of another message are read as this one",
        "R-IN-4",
        "serialization/protobuf_rows.py",
        "        if self._name in names:",
        "        if names:",
        "tests/unit/serialization/test_protobuf_columns.py::test_a_bad_row_fails_alone",
    ),
    broken(
        "a value of JSON ends the object that it is read in",
        "R-IN-4",
        "serialization/json_rows.py",
        "if parsed or pa.types.is_struct(kind) else None",
        "",
        "tests/unit/serialization/test_json_columns.py::test_schemas_that_are_no_object",
    ),
    broken(
        "a few bytes of JSON may become any columns",
        "R-IN-4",
        "serialization/json_room.py",
        "        return items * self._item + size <= RATIO * size + share and size < FREE",
        "        return size < FREE",
        "tests/unit/serialization/test_json_columns.py::test_few_bytes_take_no_memory_of_columns",
    ),
    broken(
        "a few bytes of Avro may become any columns",
        "R-IN-4",
        "serialization/column_room.py",
        "        if found > most:",
        "        if False:",
        "tests/unit/serialization/test_hostile_schemas.py"
        "::test_few_bytes_take_no_memory_of_columns",
    ),
    broken(
        "a bad record takes its good neighbours along",
        "R-IN-4",
        "clients/consumer/fetching/completed_fetch.py",
        "if error.record is None or error.record <= self._start:",
        "if True:",
        "tests/simulation/test_hostile_records.py",
    ),
    broken(
        "records are left out in silence",
        "R-IN-4",
        "clients/consumer/fetching/delivery.py",
        '            logger.warning(\n                "%s: %s; left out',
        '            logger.debug(\n                "%s: %s; left out',
        "tests/simulation/test_hostile_records.py",
    ),
    broken(
        "behind a torn batch its own last offset is believed",
        "R-IN-4",
        "record/batch.py",
        "return int(stop) if sound and count == delta + 1 else None",
        "return int(stop) if sound else None",
        "tests/unit/record/test_limits.py::test_where_reading_goes_on_behind_a_bad_batch",
    ),
    broken(
        "a pause throws away what was fetched",
        "R-IN-4",
        "clients/consumer/subscription_state.py",
        "            state.paused = paused\n",
        "            state.paused = paused\n            state.move_to(state.position)\n",
        "tests/simulation/test_pauses.py",
    ),
    broken(
        "an answer above the frame limit is a disconnect",
        "R-IN-4",
        "network/frame.py",
        "if length > self.limit > FIRST_LIMIT:",
        "if False:",
        "tests/simulation/test_too_large_answers.py",
    ),
    broken(
        "one batch that is too large fails every partition of its broker",
        "R-IN-4",
        "clients/consumer/fetching/fetcher.py",
        "guilty = states if len(states) == 1 else [s for s in states if s.oversized]",
        "guilty = states",
        "tests/simulation/test_too_large_answers.py",
    ),
    broken(
        "AvailableNow ends in an outage as if there were nothing new",
        "R-RT-2",
        "spark/driver/tracker.py",
        "patient = everything or self._freezing or start is None",
        "patient = everything or start is None",
        "tests/unit/spark/test_tracker.py",
    ),
    broken(
        "a query's first batch begins behind its end",
        "R-MD-7",
        "spark/driver/tracker.py",
        "begins = {tp: min(begins[tp], end) for tp, end in view.ends.items()}",
        "begins = {tp: begins[tp] for tp in view.ends}",
        "tests/unit/spark/test_tracker.py",
    ),
    broken(
        "a running query takes offsets of another cluster",
        "R-RB-5",
        "spark/driver/tracker.py",
        "elif self._contact.expected != cluster:",
        "elif False:",
        "tests/unit/spark/test_tracker.py",
    ),
    # Options
    broken(
        "an option's text is a fragment",
        "house",
        "common/consumer_options.py",
        "A call of poll() returns at most this many records, unless it is given max_records.",
        "Records of one poll().",
        f"{IN_TEXTS}::test_each_text_is_sentences_that_stand_alone",
    ),
    broken(
        "an option's text doesn't say its unit",
        "house",
        "common/producer_options.py",
        "waits this many milliseconds for more records",
        "waits this long for more records",
        f"{IN_TEXTS}::test_each_text_says_its_unit_or_its_values",
    ),
    broken(
        "the range of an option isn't the one that is read",
        "house",
        "common/option_values.py",
        '@reads("integer", _span(minimum, maximum))',
        '@reads("integer", _span(minimum + 1, maximum))',
        f"{IN_TEXTS}::test_each_range_is_what_is_read",
    ),
    broken(
        "a default is written that doesn't read as it",
        "house",
        "common/option_values.py",
        "return str(round(seconds * 1000))",
        "return str(round(seconds))",
        f"{IN_TEXTS}::test_each_default_reads_as_it_is_written",
    ),
    broken(
        "another client's default isn't what it is there",
        "house",
        "common/producer_options.py",
        'java="16384"',
        'java="32768"',
        f"{IN_TEXTS}::test_defaults_and_importance_beside_those_of_other_clients",
    ),
    broken(
        "an option changes and the page of options doesn't",
        "house",
        "common/consumer_options.py",
        "268435456,",
        "134217728,",
        "tests/unit/tools/test_configuration_page.py::test_the_page_is_up_to_date",
    ),
    broken(
        "a misspelt option ends `odradek options` as if all was well",
        "house",
        "cli/options.py",
        "raise typer.Exit(2)",
        "raise typer.Exit",
        "tests/unit/cli/test_options.py::test_a_name_that_there_is_not",
    ),
)
