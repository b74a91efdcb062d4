"""A picture as PNG, by matplotlib.

In: a `Picture`. Out: the file. Must not: be imported where matplotlib isn't installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from odradek.cli.demo.picture import Panel, Picture

mpl.use("Agg")

WIDTH = 12.0
PANEL = 3.2
"""Inches."""
SHADE = 0.14


def render(picture: Picture, path: Path) -> None:
    """Draw it into a file."""
    from matplotlib import pyplot as plt

    heights = [panel.height for panel in picture.panels]
    figure, axes = plt.subplots(
        len(heights),
        1,
        figsize=(WIDTH, PANEL * sum(heights)),
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": heights, "hspace": 0.1},
    )
    for panel, axis in zip(picture.panels, axes[:, 0], strict=True):
        _panel(picture, panel, axis)
    axes[0, 0].set_title(picture.title, loc="left")
    axes[-1, 0].set_xlim(0, picture.end)
    axes[-1, 0].set_xlabel(picture.x_label)
    if not any(panel.lanes for panel in picture.panels):
        figure.align_ylabels()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def _panel(picture: Picture, panel: Panel, axis: Any) -> None:
    for line in panel.lines:
        if line.points:
            axis.plot(*zip(*line.points, strict=True), color=line.colour, linewidth=line.width)
    for row, lane in enumerate(panel.lanes):
        for start, stop, colour in lane.spans:
            axis.barh(row, stop - start, left=start, height=0.5, color=colour)
        axis.annotate(
            lane.note,
            (1.01, row),
            xycoords=("axes fraction", "data"),
            va="center",
            annotation_clip=False,
        )
    if panel.lanes:
        axis.set_yticks(range(len(panel.lanes)), [lane.name for lane in panel.lanes])
        axis.invert_yaxis()
    else:
        axis.set_ylim(bottom=0)
        axis.set_ylabel(panel.label)
        axis.grid(alpha=0.3)
    for band in picture.bands:
        axis.axvspan(band.start, band.stop, color=band.colour, alpha=SHADE, linewidth=0)
    for mark in picture.marks:
        axis.axvline(mark.at, color=mark.colour, linewidth=0.9, linestyle=":")
    _legend(picture, panel, axis)


def _legend(picture: Picture, panel: Panel, axis: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for entry in picture.legend(panel):
        look: dict[str, Any] = {"color": entry.colour, "label": entry.label}
        if entry.kind in ("band", "box"):
            handles.append(Patch(alpha=SHADE if entry.kind == "band" else 1.0, **look))
        else:
            look |= {"linestyle": ":" if entry.kind == "mark" else "-", "linewidth": entry.width}
            handles.append(Line2D([], [], **look))
    if handles:
        axis.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0,
            frameon=False,
            fontsize=9,
        )
