"""Draw docs/state-machines.md from the transition tables: `tools/state_diagrams.py`.

One diagram (Mermaid, which GitHub draws) for each table. A transition from four or more states to
the same one is a sentence below the diagram instead, and a transition to the same state is omitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from odradek.clients.consumer.group import member_states
from odradek.clients.producer import transaction_state
from odradek.network import connection_state

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "state-machines.md"
BEGIN, END = "<!-- states: tools/state_diagrams.py writes what follows -->", "<!-- states: end -->"
MANY = 4
"""From this number of source states on, a sentence describes transitions to one state."""
Table = Mapping[tuple[Any, Any], StrEnum]
MACHINES: dict[str, tuple[str, Table]] = {
    "A connection": ("resolving", connection_state.TRANSITIONS),
    "A member of a classic group": ("unjoined", member_states.CLASSIC),
    "A member of a KIP-848 group": ("unjoined", member_states.CONSUMER),
    "A transactional producer": ("uninitialized", transaction_state.TRANSITIONS),
}


def diagram(first: str, table: Table) -> Iterator[str]:
    """Yield one state machine as a Mermaid diagram, and the sentences below it."""
    ways: dict[tuple[str, str], list[str]] = defaultdict(list)  # sources by (event, target)
    for (state, what), after in table.items():
        if state is not after:
            ways[what.value, after.value].append(state.value)
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (event, target), sources in ways.items():
        for source in sources if len(sources) < MANY else ():
            edges[source, target].append(event)
    yield "```mermaid\nstateDiagram-v2"
    yield f"    [*] --> {first}"
    for (source, target), events in edges.items():
        yield f"    {source} --> {target} : {', '.join(events)}"
    yield "```\n"
    shared = [(sources, *way) for way, sources in ways.items() if len(sources) >= MANY]
    for sources, event, target in shared:
        states = ", ".join(f"`{source}`" for source in sources)
        yield f"- *{event}* leads to `{target}` from {states}."
    if shared:
        yield ""


def diagrams() -> str:
    """Return the text of all diagrams."""
    lines = []
    for title, (first, table) in MACHINES.items():
        lines += [f"## {title}", "", *diagram(first, table)]
    return "\n".join(lines)


def updated(page: str) -> str:
    """Return the page with the diagrams of the present tables."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{diagrams()}{END}{rest.partition(END)[2]}"


def main() -> None:
    """Write the diagrams into the page."""
    PAGE.write_text(updated(PAGE.read_text()))


if __name__ == "__main__":
    main()
