"""What `break_rules` breaks of connections and metadata that no test missed for a long time."""

from __future__ import annotations

from rules_to_break import CLIENT, GOVERNOR, STATES, UPDATER, Breakage, broken, case

METADATA = "metadata/metadata.py"
NO_ID = "        if not snapshot.cluster_id:  # R-RB-5"
ASKED = "        if connection.ours or connection.asked_whose:\n"

METADATA_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "a proof leaves the latest dial in vain",
        "R-RB-2",
        STATES,
        "        state.dial_failed = False\n        state.suspicion",
        "        state.suspicion",
        "tests/unit/network/test_cluster_connection_states.py"
        "::test_a_proof_says_that_the_latest_dial_was_not_in_vain",
    ),
    broken(
        "a proof doesn't renew the close dials",
        "R-CS-8",
        GOVERNOR,
        "self._dials = self._fresh = 0",
        "self._dials = 0",
        "tests/unit/network/test_dial_governor.py::test_a_proof_renews_the_close_dials",
    ),
    broken(
        "the newest dial is given up to make room",
        "R-MD-3",
        CLIENT,
        "oldest = hanging.pop(0)",
        "oldest = hanging.pop()",
        "tests/unit/network/test_network_client.py::test_the_dial_that_hangs_longest_makes_room",
    ),
    broken(
        "a broker that leaves right after use is an idle close",
        "R-CS-4",
        CLIENT,
        "connection.left_in_use = True",
        "connection.left_in_use = False",
        case("kip_144", "a_broker_that_leaves_right_after_use_is_no_idle_close"),
    ),
    broken(
        "a leader hint's epoch is forgotten",
        "R-MD-7",
        METADATA,
        "        self._epochs.setdefault(topic, {})[partition] = (found.topic_id, epoch)\n",
        "",
        "tests/unit/metadata/test_metadata.py::test_a_hints_epoch_is_remembered",
    ),
    broken(
        "an answer without a cluster id makes it forgotten",
        "R-RB-5",
        METADATA,
        NO_ID,
        f"        self.cluster_id = snapshot.cluster_id\n{NO_ID}",
        case("kip_899", "an_answer_without_a_cluster_id_forgets_nothing"),
        "tests/unit/metadata/test_metadata.py::test_the_cluster_id_is_not_forgotten",
    ),
    broken(
        "failures in a row survive a good answer",
        "R-RB-3",
        UPDATER,
        "        self._failed_in_a_row.clear()\n",
        "",
        case("kip_899", "failures_before_a_good_answer_count_no_more"),
    ),
    broken(
        "a bootstrap address that failed as a broker sits the round out",
        "R-RB-3",
        UPDATER,
        "round_.failed.pop(address, None)",
        "pass",
        case("kip_899", "a_bootstrap_address_that_failed_as_a_broker_joins_the_round"),
    ),
    broken(
        "an address's first connection is trusted",
        "R-RB-5",
        "clients/cluster_check.py",
        ASKED,
        f"        connection.ours = True\n{ASKED}",
        case("kip_899", "an_address_is_asked_for_its_cluster_before_the_first_record"),
    ),
    broken(
        "an explicit reconnect backoff is overruled",
        "R-CS-8",
        CLIENT,
        "DialGovernor(rng, self.states.base if own else math.inf)",
        "DialGovernor(rng)",
        case("kip_144", "an_explicit_backoff_is_the_longest_spacing"),
    ),
    broken(
        "a lower epoch is believed without topic ids",
        "R-MD-7",
        "metadata/cluster.py",
        "if not anew and 0 <=",
        "if not anew and item.topic_id != NO_ID and 0 <=",
        case("metadata", "a_lower_epoch_is_not_believed_without_topic_ids"),
    ),
    broken(
        "topics are never forgotten",
        "R-MD-7",
        METADATA,
        "            self._forget_idle()\n",
        "            pass\n",
        case("metadata", "an_idle_topic_is_forgotten"),
    ),
    broken(
        "topics are forgotten though they are assigned",
        "R-MD-7",
        METADATA,
        "        for held in self.held_by:",
        "        for held in ():",
        case("metadata", "what_is_assigned_is_not_forgotten"),
    ),
    broken(
        "whatever changes is progress",
        "R-MD-7",
        METADATA,
        "progress = old is None or brings_progress(old, snapshot, names)",
        "progress = True",
        case("metadata", "equivalent_answers_wait_longer_each_time"),
    ),
    broken(
        "each answer costs a look at all partitions",
        "R-MD-7",
        UPDATER,
        "leaderless=snapshot.leaderless",
        "leaderless=sum(t.leaderless for t in snapshot.topics.values())",
        "tests/simulation/test_step_work.py",
    ),
    broken(
        "nobody asks whether a partition was added",
        "R-IN-1",
        "clients/producer/producer_engine.py",
        'self.metadata.request(f"topic {name} has no partition {partition} yet")',
        "pass",
        "tests/simulation/test_added_partitions.py",
    ),
)
