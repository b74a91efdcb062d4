"""A picture as PNG, by matplotlib.

In: a `PanelPicture`. Out: the file. Must not: be imported where matplotlib isn't installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from odradek.cli.demo.picture import Panel, PanelPicture, labels

mpl.use("Agg")

WIDTH = 12.0
PANEL, TEXT = 3.2, 0.2
"""Inches: a panel and a line of text."""
SHADE = 0.14


def render(picture: PanelPicture, path: Path) -> None:
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
    axes[0, 0].set_title(picture.title, loc="left", pad=24, fontweight="bold")
    axes[0, 0].annotate(
        picture.subtitle, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points"
    )
    axes[-1, 0].set_xlim(0, picture.end)
    axes[-1, 0].set_xlabel(picture.x_label)
    if not any(panel.lanes for panel in picture.panels):
        figure.align_ylabels()
    _legend(picture, figure)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def _panel(picture: PanelPicture, panel: Panel, axis: Any) -> None:
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
        axis.set_ylim(0, panel.top)
        for share, named in labels(panel, TEXT / (PANEL * panel.height)):
            axis.annotate(
                named.label,
                (1.01, share),
                xycoords="axes fraction",
                va="center",
                color=named.colour,
            )
        axis.set_ylabel(panel.label)
        axis.grid(alpha=0.3)
    for band in picture.bands:
        axis.axvspan(band.start, band.stop, color=band.colour, alpha=SHADE, linewidth=0)
    for mark in picture.marks:
        axis.axvline(mark.at, color=mark.colour, linewidth=0.9, linestyle=":")


def _legend(picture: PanelPicture, figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for entry in picture.legend():
        look: dict[str, Any] = {"color": entry.colour, "label": entry.label}
        if entry.kind == "mark":
            handles.append(Line2D([], [], linestyle=":", **look))
        else:
            handles.append(Patch(alpha=SHADE if entry.kind == "band" else 1.0, **look))
    if handles:
        figure.legend(
            handles=handles,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.04),
            ncols=len(handles),
            frameon=False,
        )
