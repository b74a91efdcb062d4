"""Record what clients do during faults of their cluster: the timelines of docs/what-happens.md.

    .venv/bin/python -m tools.website.traces

In: the stories below, run with the shipped clients in the simulation, with one seed. Out:
docs/what-happens.json, which the page's script draws, and the tables of docs/what-happens.md, for
readers without JavaScript. The same code writes the same files; a test runs the stories again. Must
not: help the clients; they know one bootstrap address and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from odradek.api.base import Client
from odradek.api.consumer import Consumer
from odradek.common.errors import KafkaError
from odradek.common.events import Event
from odradek.simulation.brokers.cluster_state import Misbehaviour
from odradek.testing import KafkaSimulation

DOCS = Path(__file__).resolve().parents[2] / "docs"
STORE, PAGE = DOCS / "what-happens.json", DOCS / "what-happens.md"
TOPIC = "flights"
SEED = 24
SENT_EVERY = 0.5
ASKED_EVERY = 2.0
"""Seconds between two calls of `explain()`."""
SEEN_EVERY = 0.1
"""Seconds between two records of the brokers' states; each change is also recorded at once."""
FRONT = "bootstrap address"
KILLED = "killed"
"""Name of the client that is killed."""
BEFORE = 4.0
"""Time at which the fault begins, in virtual seconds."""
Shown = dict[str, Any]
"""The data of one story, for the page's script."""


@dataclass(frozen=True)
class Story:
    """A story: a fault of a cluster of three brokers, and how many seconds the story lasts."""

    name: str
    seconds: float
    hurt: Callable[[KafkaSimulation], object]
    successor: bool = False
    """Whether the consumer starts with the fault; before it, another member of its group reads."""


def the_leader_dies(world: KafkaSimulation) -> None:
    """Kill the leader of the topic's only partition, and restart it ten seconds later."""
    leader = world.cluster.leader(TOPIC, 0)
    assert leader is not None  # noqa: S101 - all is well until now
    world.bounce(leader.id, after=10.0)


def all_die(world: KafkaSimulation) -> None:
    """Kill every broker, and restart them at the same addresses twenty seconds later."""
    for broker in world.brokers:
        world.bounce(broker, after=20.0)


def the_leader_hangs(world: KafkaSimulation) -> None:
    """Stop the leader's process for fifteen seconds, as with SIGSTOP."""
    leader = world.cluster.leader(TOPIC, 0)
    assert leader is not None  # noqa: S101 - all is well until now
    world.pause(leader.id)
    world.after(15.0, lambda: world.repair(leader.id))


def the_reader_is_killed(world: KafkaSimulation) -> None:
    """Stop the consumer's process permanently; as with SIGKILL, it doesn't leave the group."""
    world.world.hosts[KILLED].freeze()


STORIES = (
    Story("move", 20.0, lambda world: world.move()),
    Story("leader", 20.0, the_leader_dies),
    Story("hang", 26.0, the_leader_hangs),
    Story("outage", 30.0, all_die),
    Story("foreign", 12.0, lambda world: world.replace_with_foreign()),
    Story("member", 56.0, the_reader_is_killed, successor=True),
)


class Recorder:
    """Runs one story, and records what its brokers and clients do."""

    def __init__(self, story: Story, world: KafkaSimulation) -> None:
        self.story, self.world = story, world
        world.create_topic(TOPIC)
        self.producer = world.producer(linger_ms=0)
        self.consumer = self.member("consumer")
        self.reader = self.member(KILLED) if story.successor else self.consumer
        self.clients: dict[str, Client[Any]] = {
            "producer": self.producer,
            "consumer": self.consumer,
        }
        self.events: list[list[Any]] = []
        self.says: dict[str, list[list[Any]]] = {name: [] for name in self.clients}
        self.records: list[list[float | None]] = []
        self.errors: list[list[Any]] = []
        self.lanes: dict[str, list[list[Any]]] = {}
        for name, client in self.clients.items():
            client.listen(partial(self.note, name))
        for change in ("listen", "unlisten"):
            setattr(world.world, change, partial(self.seen, getattr(world.world, change)))

    def seen(self, change: Callable[..., None], *arguments: Any) -> None:
        """Call `change`, which starts or stops a broker's listener, and record all states."""
        change(*arguments)
        self.look()

    def member(self, name: str) -> Consumer:
        """Create a consumer that is a member of the group."""
        return self.world.consumer(group_id="board", auto_offset_reset="earliest", name=name)

    def play(self) -> Shown:
        """Run the story and return its data."""
        world, story = self.world, self.story
        self.reader.subscribe([TOPIC])
        self.look()
        world.every(SENT_EVERY, self.send)
        world.every(SEEN_EVERY, self.look)
        world.every(ASKED_EVERY, self.ask)
        world.after(BEFORE, self.hurt)
        while world.now < story.seconds:
            if self.reader is not self.consumer and world.now >= BEFORE:
                self.reader = self.consumer
                words = "is started, as the other consumer of its group was killed"
                self.events.append([at(world.now), "consumer", KILLED, "", words])
                self.reader.subscribe([TOPIC])
            try:
                for record in self.reader.poll(SENT_EVERY / 2):
                    number = int(record.value or b"")
                    self.records[number][2] = self.records[number][2] or at(world.now)
            except KafkaError as error:
                self.refused("consumer", error)
                world.advance(SENT_EVERY)
        return {
            "name": story.name,
            "seconds": story.seconds,
            "lanes": [{"address": one, "states": self.lanes[one]} for one in self.lanes],
            "events": [one for one in self.events if one[0] <= story.seconds],
            "says": self.says,
            "records": self.records,
            "errors": self.errors,
        }

    def hurt(self) -> None:
        """Start the fault."""
        self.story.hurt(self.world)
        self.look()

    def send(self) -> None:
        """Send the next record, and record when it completes."""
        if self.world.now > self.story.seconds - SENT_EVERY:
            return  # too late for its outcome to be part of the story
        number = len(self.records)
        self.records.append([at(self.world.now), None, None])

        def done(error: BaseException | None, _: object) -> None:
            if error is None:
                self.records[number][1] = at(self.world.now)

        try:
            self.producer.send(TOPIC, str(number).encode(), on_delivery=done)
        except KafkaError as error:
            self.refused("producer", error)

    def refused(self, name: str, error: KafkaError) -> None:
        """Record the first error that a call of a client raised."""
        if all(one[1] != name for one in self.errors):
            self.errors.append([at(self.world.now), name, f"{type(error).__name__}: {error}"])

    def look(self) -> None:
        """Record the state of each broker."""
        reached = self.world.front_door.brokers
        alive = [broker for broker in reached.values() if broker.alive]
        foreign = "" if reached is self.world.brokers else " of the other cluster"
        front = self.world.bootstrap_servers
        self.state(front, "up" if alive else "down", FRONT)
        for broker in alive:
            hangs = broker.fault is not Misbehaviour.NONE
            who = f"broker {broker.id}{foreign}"
            self.state(str(broker.address), "hangs" if hangs else "up", who)
        for address in self.lanes.keys() - {front, *(str(broker.address) for broker in alive)}:
            self.state(address, "down", self.lanes[address][-1][2])

    def state(self, address: str, state: str, who: str) -> None:
        """Record a broker's state if it has changed; of several at one time, keep the last."""
        lane = self.lanes.setdefault(address, [])
        if lane and lane[-1][0] == at(self.world.now):
            lane.pop()
        if not lane or lane[-1][1:] != [state, who]:
            lane.append([at(self.world.now), state, who])

    def ask(self) -> None:
        """Record the text of each client's `explain()` if it has changed."""
        for name, client in self.clients.items():
            text = str(client.explain())
            said = self.says[name]
            if not said or said[-1][1] != text:
                said.append([at(self.world.now), text])

    def note(self, name: str, event: Event) -> None:
        """Record an event, with its text, if its kind is shown."""
        words = in_words(event)
        if words:
            address = event.fields.get("address")
            self.events.append([at(event.at), name, event.kind, address or "", words])


WORDS = {
    "dial": "connects to {address}",
    "ready": "{address} is ready",
    "dial_failed": "can't connect to {address}: {error}; tries again in {backoff} s or later",
    "disconnected": "the connection to {address} ends: {error}",
    "metadata": "{address} returns metadata with {brokers} brokers",
    "metadata_failed": "the metadata refresh at {address} fails: {error}",
    "round_failed": "no broker answered the metadata request: waits {backoff} s",
    "silent": "no byte from {address} for {seconds} s: asks other brokers",
    "heard": "{address} answers again",
    "rebootstrap": "starts again from bootstrap.servers: {why}",
    "rebootstrapped": "found its cluster again through {address}, {seconds} s after starting again",
    "foreign_cluster": "refuses {address}: it belongs to {found}, not to {expected}",
    "retry": "tries again: {what} ({error})",
    "coordinator": "{what}: {why}",
    "group": "the member is {state}: {why}",
    "first_ack": "records are acknowledged",
    "first_record": "records arrive",
    "broken": "stops, and all its calls raise an error",
}
"""Texts for the kinds of events that are shown."""


def in_words(event: Event) -> str:
    """Return an event as text; empty if its kind isn't shown."""
    pattern = WORDS.get(event.kind)
    known = event.fields
    if pattern is None or known.get("what") == "dial" or known.get("backoff", 0) is None:
        return ""  # the attempt's failure is an event, too
    return pattern.format_map({name: one_field(v) for name, v in known.items()})


def one_field(value: Any) -> str:
    """Return an event's field as text: numbers with two decimals, an error without its class."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return re.sub(r"^\w+(Error|Exception): ", "", str(value))


def at(seconds: float) -> float:
    """Return a time rounded to milliseconds."""
    return round(seconds, 3)


def recorded() -> list[Shown]:
    """Run all stories and return their data."""
    found = []
    for story in STORIES:
        with KafkaSimulation(seed=SEED) as world, suppress(KafkaError):
            found.append(Recorder(story, world).play())
    return found


def as_text(stories: list[Shown]) -> str:
    """Return the text of the JSON file, with one event in each line."""
    lines = []
    for story in stories:
        parts = [f"{json.dumps(name)}:{lined(value)}" for name, value in story.items()]
        lines.append("{" + ",\n".join(parts) + "}")
    return "[" + ",\n".join(lines) + "]\n"


def lined(value: Any) -> str:
    """Return JSON with each entry of a list in its own line."""
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in value) + "]"
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}:{lined(one)}" for name, one in value.items()]
        return "{" + ",\n".join(parts) + "}"
    return json.dumps(value)


def table(story: Shown) -> Iterator[str]:
    """Yield a story as a table; repeated events of one kind have at most two rows."""
    yield from ("| seconds | who | what |", "|---|---|---|")
    for when, who, words in rows(story):
        yield f"| {when:.2f} | {who} | {words.replace('|', chr(92) + '|')} |"


def rows(story: Shown) -> list[tuple[float, str, str]]:
    """Return a table's rows: brokers' states, clients' events after the fault, errors, the end."""
    found = [
        (when, "cluster", f"{who} {lane['address']} {CHANGES[state]}")
        for lane in story["lanes"]
        for when, state, who in lane["states"]
        if when > 0
    ]
    told: dict[tuple[str, str], int] = {}
    for when, who, kind, address, words in story["events"]:
        key = (who, f"{kind} {address}" if kind in ("dial", "dial_failed", "metadata") else words)
        told[key] = told.get(key, 0) + 1
        if when >= BEFORE and kind not in ("dial", "ready") and told[key] <= 2:
            found.append((when, who, words))
    found += [(when, who, f"a call raises {words}") for when, who, words in story["errors"]]
    found.append((story["seconds"], "end", outcome(story)))
    return sorted(found, key=lambda row: row[0])


CHANGES = {"up": "is up", "down": "is down", "hangs": "hangs"}


def outcome(story: Shown) -> str:
    """Return the last row: the records' outcome, and the number of connection attempts.

    Recovery is measured from the brokers' return, not from when a client noticed it.
    """
    records = story["records"]
    acknowledged = [one for one in records if one[1] is not None]
    waited = max(one[1] - one[0] for one in acknowledged)
    attempts = {
        name: sum(e[1] == name and e[2] == "dial" and e[0] >= BEFORE for e in story["events"])
        for name in story["says"]
    }
    read = sum(one[2] is not None for one in records)
    return (
        f"{len(records)} records sent, {len(acknowledged)} acknowledged, {read} read; the longest "
        f"wait for an acknowledgement was {waited:.2f} s; {recovery(story)}"
        f"connection attempts since second "
        f"{BEFORE:g}: producer {attempts['producer']}, consumer {attempts['consumer']}"
    )


def recovery(story: Shown) -> str:
    """Return the time from the brokers' return to the next record; "" if some brokers stayed up."""
    front = next(lane["states"] for lane in story["lanes"] if lane["states"][0][2] == FRONT)
    back = next((when for when, state, _ in front if when > BEFORE and state == "up"), None)
    if back is None:
        return ""
    acknowledged, read = (
        min(one[n] for one in story["records"] if (one[n] or 0.0) >= back) - back for n in (1, 2)
    )
    return (
        f"after the brokers' return, the first acknowledgement took {acknowledged:.2f} s and the "
        f"first record read {read:.2f} s; "
    )


def page(text: str, stories: list[Shown]) -> str:
    """Return the page with up-to-date tables."""
    for story in stories:
        mark, end = f"<!-- timeline: {story['name']} -->\n", "<!-- timeline: end -->"
        before, found, rest = text.partition(mark)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"the page has no place for the timeline {story['name']!r}")
        lines = "\n".join(table(story))
        text = f"{before}{mark}\n{lines}\n\n{end}{after}"
    return text


def main() -> None:
    """Record the timelines; write the JSON file and the page's tables."""
    stories = recorded()
    STORE.write_text(as_text(stories), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stories), encoding="utf-8")
    print(f"{STORE.name}: {len(stories)} stories, {STORE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
