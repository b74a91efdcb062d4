"""Write the tables of metrics into docs/monitoring.md, from the catalogue.

In: the catalogue. Out: the text between the two marks of the page. Must not: add facts that aren't
in the catalogue.
"""

from __future__ import annotations

from pathlib import Path

from odradek.clients.metrics.catalogue import SCOPES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "monitoring.md"
BEGIN = "<!-- metrics: tools/metrics_page.py writes what follows -->\n"
END = "<!-- metrics: end -->\n"


def tables() -> str:
    """Return a table of metrics for each kind of object; groups with the same metrics share one."""
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for scope in SCOPES:
        alike.setdefault((scope.tags, scope.names), []).append(scope.group)
    shown: set[str] = set()
    lines: list[str] = []
    for (tags, names), groups in alike.items():
        tagged = "".join(f", `{tag}`" for tag in tags)
        which = ", ".join(f"`{group}`" for group in groups)
        lines += [f"{which}, by `client-id`{tagged}:", ""]
        new = [name for name in names if name not in shown]
        old = [name for name in names if name in shown]
        if old and len(old) < len(names):
            lines += [f"{', '.join(f'`{name}`' for name in old)} as above, and:", ""]
        elif old:
            lines += [f"{', '.join(f'`{name}`' for name in old)}.", ""]
        if new:
            lines += ["| metric | unit | meaning |", "|---|---|---|"]
            meanings = {scope.group: scope.meanings for scope in SCOPES if scope.names == names}
            for name in new:
                unit, kind, text = meanings[groups[0]][name]
                lines.append(f"| `{name}` | {unit or kind} | {text} |")
            lines.append("")
        shown.update(names)
    return "\n".join(lines)


def page() -> str:
    """Return the page with up-to-date tables."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + tables() + END + after


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.name}: {sum(len(scope.names) for scope in SCOPES)} metrics")
