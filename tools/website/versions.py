"""List the versions of the site that are in one folder.

In: the folder that has one folder for each version. Out: `versions.js` in it, which every page of
every version loads, so that old versions know newer versions and their pages; and `index.html`,
which leads to the newest version. Must not: touch any version's own folder.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

INDEX = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Odradek</title>
<meta http-equiv="refresh" content="0; url={0}/index.html">
<p><a href="{0}/index.html">Odradek {0}</a></p>
</html>
"""


def is_name(version: str) -> bool:
    """Return whether a version is a valid folder name, and no path or markup."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", version) is not None


def order(version: str) -> tuple[list[int], bool, list[tuple[int, str]]]:
    """Return the sort key of a version: 0.10 comes after 0.9, 1.0 after 1.0rc10, after 1.0rc9."""
    numbers = re.match(r"[\d.]*", version)
    digits = numbers[0].strip(".") if numbers else ""
    rest = [(int(a or 0), b) for a, b in re.findall(r"(\d+)|(\D+)", version[len(digits) :])]
    return [int(one) for one in digits.split(".") if one], digits == version, rest


def found(folder: Path) -> list[str]:
    """Return all versions, the newest release first, pre-releases last."""
    names = [one.parent.name for one in folder.glob("*/index.html")]
    names.sort(key=order, reverse=True)
    return sorted(names, key=lambda name: not order(name)[1])


def pages_of(version: Path) -> list[str]:
    """Return the pages of a version, as paths below it without their extension."""
    found = (page.relative_to(version).with_suffix("") for page in version.rglob("*.html"))
    return sorted(page.as_posix() for page in found)


def write(folder: Path) -> None:
    """Write versions.js, and index.html, which redirects to the newest version."""
    names = found(folder)
    pages = {name: pages_of(folder / name) for name in names}
    (folder / "versions.js").write_text(
        f"window.odradekVersions = {json.dumps(names)};\n"
        f"window.odradekPages = {json.dumps(pages, separators=(',', ':'))};\n"
    )
    if names:
        (folder / "index.html").write_text(INDEX.format(names[0]))
