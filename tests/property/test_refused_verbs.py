"""Commands whose brokers refuse one API that the command uses.

If the response or an item is an error, the exit status isn't 0, `--json` prints its document, and
both the document and the line on stderr name the error. Otherwise a script that reads the status
alone would be misled, and an error would look like an empty result.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest
from tests.property.test_lying_answers import Liar
from tests.verb_tree import verbs
from tests.volume import PART, some
from typer.main import get_command
from typer.testing import CliRunner

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.cli import build
from odradek.cli.frame import commands
from odradek.clients.admin.acls import AclBinding
from odradek.clients.admin.users import ClientQuotaEntity, UserScramCredentialUpsertion
from odradek.common.errors.kafka import ERRORS
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker import BrokerSession
from odradek.simulation.brokers.broker_handlers import HANDLERS
from odradek.simulation.brokers.cluster_state import Reply
from odradek.simulation.brokers.injected_errors import Injection

VERBS = """
topics list
topics describe
topics describe flights counts
topics create new --partitions 2
topics create new --partitions 2 --dry-run
topics alter flights --set retention.ms=6000000
topics create-partitions flights --partitions 5
topics delete-records flights=end --yes
topics delete-records flights:0=1 --dry-run
topics delete flights --yes
topics delete flights --dry-run
partitions list
partitions list flights --offsets
partitions reassign flights:0=1
partitions reassign flights:0=1 --dry-run
partitions reassignments
partitions elect-leaders flights:0
partitions elect-leaders
partitions elect-leaders --dry-run
configs describe topic
configs describe topic flights
configs describe broker
configs describe group
configs alter topic flights --set retention.ms=6000000
configs alter broker 1 --set num.io.threads=9
logdirs describe
logdirs describe --broker 1
logdirs alter flights:0:1=/simulated/d2 --dry-run
logdirs alter flights:0:1=/simulated/d2
cluster describe
cluster brokers
cluster brokers --fenced
cluster features
cluster quorum
cluster set-features transaction.version=1 --downgrade --yes
cluster unregister 3 --yes
cluster unregister 3 --dry-run
groups list
groups describe
groups describe billing
groups describe shares
groups members
groups members billing
groups lag
groups lag billing
groups lag shares
groups lag --watch --count 1
groups lag billing --watch --count 2 --interval 0.1
groups lag --prometheus 127.0.0.1:0 --count 1
groups delete idle --yes
groups delete idle --dry-run
groups remove-members billing --instance-id worker-1 --yes
groups remove-members billing --yes
groups delete-offsets idle --topic flights --yes
groups delete-offsets idle --topic flights:0 --dry-run
groups delete-offsets shares --topic flights --yes
groups reset-offsets idle --topic flights --to-earliest --yes
groups reset-offsets idle --all-topics --to-current --export
groups reset-offsets idle --all-topics --to-datetime 2020-01-01T00:00:00 --dry-run
groups reset-offsets shares --topic flights --to-latest --yes
offsets list flights
offsets list flights:0 --time earliest
acls list
acls create --allow-principal User:bob --operation read --topic flights
acls create --allow-principal User:bob --operation read --topic flights --dry-run
acls delete --topic flights --yes
acls delete --topic flights --dry-run
users list
users describe alice
users create bob --password-visible secret
users alter alice --password-visible secret
users delete alice --yes
quotas list
quotas describe --user alice
quotas alter --user alice --set producer_byte_rate=5
transactions list
transactions describe billing-1
transactions producers flights:0
transactions producers flights:0 --broker-id LEADER
transactions hanging --topic flights
transactions hanging --older-than 0
transactions abort billing-1 --yes
transactions abort billing-1 --dry-run
transactions abort --topic flights --partition 0 --start-offset 0 --yes
""".strip().splitlines()
ERROR_NAMES = ("CLUSTER_AUTHORIZATION_FAILED", "UNKNOWN_SERVER_ERROR", "COORDINATOR_NOT_AVAILABLE")
TREE = verbs()
CODES = {kind.name: code for code, kind in ERRORS.items()}
HANDLED: list[Any] = [*HANDLERS]
WHOLE = {k.API_NAME for k in HANDLED if hasattr(k.RESPONSE(), "error_code")}
"""APIs whose responses may consist of one error."""
OLD_ERRORS = {"FindCoordinator", "OffsetFetch"}
"""APIs whose responses have a top-level error only in versions that aren't used here."""
NAMES_ALONE = {"topics list", "configs describe topic"}
"""Commands that print topic names although brokers return errors for these topics."""
EACH = min(PART, 12)
"""Only each n-th combination of API and kind of refusal is tried."""
OF_ALL_BROKERS = (
    *("groups list", "groups lag billing", "logdirs describe", "transactions list"),
    *("offsets list flights", "partitions list flights --offsets"),
)
"""Commands that ask each broker for its own data."""
DONE_ALL_THE_SAME = {"partitions reassign flights:0=1"}
"""Commands that succeed although a lookup failed, which a line on stderr reports."""
BUILT, MADE = cache(build), cache(get_command)
"""Parsers, created once: creating one takes longer than a command."""


@dataclass(slots=True, eq=False)
class WholeRefusal(Injection):
    """A response with one error and no items, for requests that brokers can't handle at all."""

    def answering(self, body: Any, reply: Reply) -> Reply:
        self.left -= 1
        return lambda _: reply(body.RESPONSE(error_code=self.code))

    def does(self, body: Message) -> bool:
        return False


class Scene:
    """A cluster that contains something for each command."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.world = World(seed=1)
        self.cluster = SimulatedCluster(self.world, brokers=3)
        self.cluster.create_topic("flights", 3)
        self.cluster.create_topic("counts", 1)
        at = {"bootstrap.servers": self.cluster.bootstrap_servers}
        producer = on_host(
            self.world.host("writer", mode="messages"),
            Producer,
            {**at, "transactional.id": "billing-1"},
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("flights", b"v", partition=0).result(5.0)
        member = on_host(
            self.world.host("reader", mode="messages"),
            Consumer,
            {**at, "group.id": "billing", "group.instance.id": "worker-1"},
        )
        member.subscribe(["flights"])
        while not member.assignment():
            member.poll(1.0)
        for place in member.assignment():
            member.position(place)
        member.commit()
        setting = on_host(self.world.host("setting", mode="messages"), Admin, at)
        first = TopicPartition("flights", 0)
        setting.alter_group_offsets("idle", {first: 0})
        setting.alter_share_group_offsets("shares", {first: 0})
        setting.create_acls([AclBinding("TOPIC", "flights", "User:alice", "READ")])
        setting.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "secret")]
        )
        setting.alter_client_quotas({ClientQuotaEntity("alice"): {"producer_byte_rate": 1.0}})
        self._others = (producer, member, setting)
        self.asked: dict[str, None] = {}
        self.described = False
        """Whether Metadata was requested for topics, and not for brokers only."""
        self.cluster.observers.append(self._note)
        patch.setattr("typer.testing._get_command", MADE)
        self._patch = patch

    def close(self) -> None:
        for client in self._others:
            client.close(0.0)

    def refuse(self, api: str, code: int, *, whole: bool, by: int | None = None) -> None:
        kind = WholeRefusal if whole else Injection
        for broker in self.cluster.brokers.values():
            if by in (None, broker.id):
                broker.injections.append(kind(api, code, 1 << 60))

    def answer_again(self) -> None:
        """Let the brokers answer the API again."""
        for broker in self.cluster.brokers.values():
            broker.injections.clear()

    def coordinator(self, group: str) -> int:
        """Return the coordinator of the group."""
        place = self.cluster.groups.index(group)
        leader = self.cluster.leader("__consumer_offsets", place)
        assert leader is not None
        return leader.id

    def spelt(self, line: str) -> list[str]:
        """Return the words of the line, with LEADER replaced by the leader's broker id."""
        if "LEADER" not in line:
            return line.split()
        leader = self.cluster.leader("flights", 0)
        assert leader is not None
        return line.replace("LEADER", str(leader.id)).split()

    def run(self, line: str, timeout: float = 5.0) -> Any:
        """Run a command with its own client."""
        made = partial(on_host, self.world.host("verb"), Admin)
        self._patch.setattr(commands, "Admin", made)
        words = [*self.spelt(line), "--json", "--timeout", str(timeout)]
        words += ["--bootstrap-server", self.cluster.bootstrap_servers]
        return CliRunner().invoke(BUILT(words[0]), words)

    def _note(self, broker: Any, client: str, request: Any) -> None:
        body = request.body
        if client == "verb" and body is not None:
            self.asked[body.API_NAME] = None
            self.described = self.described or (body.API_NAME == "Metadata" and body.topics != [])


def run(line: str, patch: pytest.MonkeyPatch, *refused: Any, **how: Any) -> Any:
    """Run a command in its own cluster, where one API is refused; return it and the scene."""
    scene = Scene(patch)
    try:
        if refused:
            scene.refuse(*refused, **how)
        return scene.run(line), scene
    finally:
        scene.close()


def names(text: str, error: str) -> bool:
    """Return whether a text contains an error's name: Kafka's, or that of our class."""
    words = set(re.findall(r"\w+", text))
    return bool(words & {error, ERRORS[CODES[error]].__name__})


@pytest.mark.parametrize("line", VERBS)
def test_an_error_response_to_a_command_is_reported(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(monkeypatch)
    done = scene.run(line)
    assert done.exit_code == 0, done.output
    changes = TREE[" ".join(line.split()[:2])] and "--dry-run" not in line
    ways = [(api, False) for api in scene.asked if api != "Metadata" or scene.described]
    ways += [(api, True) for api in scene.asked if api in WHOLE - OLD_ERRORS]
    first = VERBS.index(line)
    begin = first % min(EACH, len(ways))  # at least one refusal per command
    for turn, (api, whole) in enumerate(ways[begin::EACH], first):
        error = ERROR_NAMES[turn % len(ERROR_NAMES)]
        if changes:
            scene.close()
            scene = Scene(monkeypatch)
        scene.refuse(api, CODES[error], whole=whole)
        done = scene.run(line)
        scene.answer_again()
        what = f"{api} {error} {'whole' if whole else 'items'}: {done.output}"
        assert done.exception is None or isinstance(done.exception, SystemExit), what
        assert [json.loads(each) for each in done.stdout.splitlines()], what
        if api == "Metadata" and not whole and line in NAMES_ALONE:
            assert done.exit_code == 0, what
            continue
        assert names(done.stderr, error), what
        if api == "Metadata" and not whole and line in DONE_ALL_THE_SAME:
            assert done.exit_code == 0, what
            continue
        assert done.exit_code == 1, what
        assert names(done.stdout, error), what
    scene.close()


@pytest.mark.parametrize("line", OF_ALL_BROKERS)
def test_an_error_of_one_broker_is_avoided_or_reported(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that another broker is asked, with the same result, or the error is reported."""
    good, scene = run(line, monkeypatch)
    error = "UNKNOWN_SERVER_ERROR"
    refused = 0
    brokers = [*scene.cluster.brokers]
    for turn, api in enumerate(scene.asked):
        for broker in brokers if PART == 1 else brokers[turn % 3 :: 3]:
            whole = api in WHOLE - OLD_ERRORS and api != "Metadata"
            done, _ = run(line, monkeypatch, api, CODES[error], whole=whole, by=broker)
            if done.exit_code == 0:
                assert done.stdout == good.stdout, (api, broker)
            else:
                assert (done.exit_code, names(done.stdout, error)) == (1, True), done.output
                refused += 1
    assert refused


def test_a_silent_broker_does_not_delay_groups_of_other_coordinators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that only a group's coordinator is asked for the group."""
    seen = 0
    for broker in (1, 2, 3):
        scene = Scene(monkeypatch)
        coordinator = scene.coordinator("billing")
        if broker != coordinator:
            scene.cluster.pause(broker)
            done = scene.run("groups members billing shares")
            found = json.loads(done.stdout)["groups"]
            assert found["billing"]["members"], (broker, done.output)
            seen += done.exit_code == 0
        scene.close()
    assert seen


@pytest.mark.parametrize(
    ("line", "thing", "name"),
    [
        ("groups list", "groups", "group_id"),
        ("transactions list", "transactions", "transactional_id"),
    ],
)
def test_a_silent_broker_is_reported_with_the_results_of_other_brokers(
    line: str, thing: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {one[name] for one in json.loads(run(line, monkeypatch)[0].stdout)[thing]}
    told = set()
    for broker in (1, 2, 3):
        scene = Scene(monkeypatch)
        scene.cluster.go_silent(broker)
        done = scene.run(line)
        scene.close()
        document = json.loads(done.stdout)
        assert (done.exit_code, list(document["failed"])) == (1, [str(broker)]), done.output
        assert f"broker {broker}" in done.stderr
        told |= {one[name] for one in document[thing]}
    assert told == every != set()


@pytest.mark.parametrize("line", some(VERBS, len(VERBS) // 6))
def test_a_command_that_gets_false_responses_ends_with_an_error(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the error is a JSON document, never a traceback."""
    scene, liar, usual = Scene(monkeypatch), Liar(VERBS.index(line)), BrokerSession.answer

    def answer(self: BrokerSession, request: Any, response: Message | None, version: int) -> None:
        lied = response is not None and self.peer.client == "verb"
        usual(self, request, liar.of(response) if lied and response else response, version)

    monkeypatch.setattr(BrokerSession, "answer", answer)
    try:
        done = scene.run(line)
    finally:
        scene.close()
    assert done.exception is None or isinstance(done.exception, SystemExit), liar.said
    assert [json.loads(each) for each in done.stdout.splitlines()], liar.said
    assert done.exit_code in (0, 1), (done.output, liar.said)
