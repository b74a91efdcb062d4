"""Check the built site in a real browser, its look and the keyboard: `make site-check`.

In: `build/site`, a Chromium of this machine, the packages pinned in check_packages.lock (in a
separate venv). Out: a line for each fault (axe-core's rules for contrast, alternative texts, order
of headings and names of controls; errors of scripts; pages wider than a phone; elements that the
keyboard doesn't reach), screenshots in build/site-pictures, and the exit status: 0 no fault, 1
faults, 3 no browser or missing packages. Must not: load anything from elsewhere: pages are opened
as files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tools.website import versions

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
PICTURES = ROOT / "build" / "site-pictures"
TOOLS = ROOT / "build" / "site-tools"
LOCK = Path(__file__).with_name("check_packages.lock")
INSIDE = "ODRADEK_SITE_TOOLS"
"""Environment variable that is set if this file already runs in the venv with its packages."""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = 3
WIDTHS = {"phone": (360, 780), "desk": (1280, 900)}
SHOWN = (
    "index", "docs/start", "docs/what-happens", "docs/scorecard", "docs/guide", "docs/complaints",
    "docs/configuration", "docs/performance", "docs/features", "api/producer", "api/errors",
    "cli/topics", "DESIGN", "search", "tasks", "docs/monitoring", "docs/install", "docs/spark",
    "docs/recovery",
)  # fmt: skip
"""Pages that are checked in both widths and both colour schemes, with screenshots."""
Fault = tuple[str, str]
"""Where the fault is, and its description."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run this program again in the venv with the browser's packages, and check the site there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", default="", help="only pages with this in their names")
    parser.add_argument("--quick", action="store_true", help="only pages with screenshots")
    given = parser.parse_args(arguments)
    browser = os.environ.get("ODRADEK_CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    newest = sorted(SITE.glob("*/index.html"), key=lambda one: one.stat().st_mtime)
    if not newest:
        print("there is no site yet: make site", file=sys.stderr)
        return MISSING
    site = newest[-1].parent
    if not (names := pages(site, given.page, given.quick)):
        parser.error(f"no page of {site} has {given.page!r} in its name")
    if browser is None:
        print(
            "there is no Chromium here. On Debian: apt-get install chromium-headless-shell; "
            "elsewhere say where one is: ODRADEK_CHROMIUM=/path/to/chrome make site-check",
            file=sys.stderr,
        )
        return MISSING
    if os.environ.get(INSIDE) != str(TOOLS):
        if (status := install()) != 0:
            return status
        command = [str(TOOLS / "bin/python"), __file__, *sys.argv[1:]]
        environment = {**os.environ, INSIDE: str(TOOLS), "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=environment, check=False).returncode
    faults = look(site, browser, names)
    for where, what in faults:
        print(f"{where}: {what}")
    print(f"{len(faults)} faults; pictures are in {PICTURES}")
    return 1 if faults else 0


def install() -> int:
    """Install the pinned packages unless they are installed."""
    stamp = TOOLS / ".odradek-tools"
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return 0
    print(
        "installing what drives the browser (fifty megabytes where they aren't cached)", flush=True
    )
    venv.create(TOOLS, clear=True, with_pip=True)
    command = [
        str(TOOLS / "bin/python"), "-m", "pip", "install", "--quiet", "--require-hashes",
        "--no-deps", "--only-binary", ":all:", "-r", str(LOCK),
    ]  # fmt: skip
    if subprocess.run(command, check=False).returncode != 0:
        print("these packages are not available here, so nothing was checked", file=sys.stderr)
        return MISSING
    stamp.write_text(digest)
    return 0


def pages(site: Path, part: str, quick: bool) -> list[str]:
    """Return the names of the pages to check."""
    names = [p.relative_to(site).with_suffix("").as_posix() for p in sorted(site.rglob("*.html"))]
    return [name for name in names if part in name and (name in SHOWN or not quick)]


def look(site: Path, browser: str, names: Sequence[str]) -> list[Fault]:
    """Open these pages in a browser and return their faults."""
    import axe_playwright_python
    from playwright.sync_api import sync_playwright

    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    faults: list[Fault] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser)
        for device in WIDTHS:
            for colours in ("light", "dark"):
                page = new_page(chromium, faults, device, colours)
                for name in names:
                    if colours == "light" or name in SHOWN:
                        page.goto((site / f"{name}.html").as_uri())
                        where = f"{name} ({device}, {colours})"
                        faults += [(where, what) for what in too_wide(page)]
                        if device == "desk" or name in SHOWN:
                            faults += [(where, what) for what in broken_rules(page, axe)]
                    if name in SHOWN:
                        picture = f"{name.replace('/', '-')}-{device}-{colours}.png"
                        page.screenshot(path=str(PICTURES / picture))
                page.context.close()
        page = new_page(chromium, faults, "desk", "light")
        for check in KEYBOARD:
            if wrong := check(page, site):
                faults.append((check.__name__.replace("_", " "), wrong))
        chromium.close()
    return faults


def new_page(chromium: Any, faults: list[Fault], device: str, colours: str) -> Any:
    """Open a browser window of this size; record scripts' errors and requests to the network."""
    width, height = WIDTHS[device]
    size = {"width": width, "height": height}
    page = chromium.new_context(viewport=size, color_scheme=colours).new_page()

    def request(one: Any) -> None:
        if one.url.startswith("http"):
            faults.append((page.url, f"asks elsewhere: {one.url}"))

    page.on("pageerror", lambda error: faults.append((page.url, f"script: {error}")))
    page.on("requestfailed", lambda one: faults.append((page.url, f"not loaded: {one.url}")))
    page.on("request", request)
    return page


def too_wide(page: Any) -> Iterator[str]:
    """Yield the elements that make the page wider than the window."""
    width = page.viewport_size["width"]
    if page.evaluate("document.documentElement.scrollWidth") > width:
        wide = page.evaluate(
            """width => [...document.querySelectorAll('article *')]
                .filter(one => one.getBoundingClientRect().right > width + 1)
                .slice(0, 3).map(one => one.outerHTML.slice(0, 80))""",
            width,
        )
        yield f"is wider than {width} pixels: {wide}"


def broken_rules(page: Any, axe: str) -> Iterator[str]:
    """Yield axe-core's findings on the open page."""
    page.evaluate(axe)
    # `preload` would let axe fetch styles again, which a page that is opened as a file may not.
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    for violation in found["violations"]:
        for node in violation["nodes"][:3]:
            yield f"{violation['id']}: {violation['help']}: {node['html'][:140]}"


def the_slider_moves_by_keys(page: Any, site: Path) -> str:
    """Check that an arrow key on the timeline's slider changes the summary."""
    page.goto((site / "docs/what-happens.html").as_uri())
    slider = page.locator("#timeline-move")
    status = page.locator(".timeline[data-trace=move] .timeline-summary")
    slider.focus()
    before = status.inner_text()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    after = status.inner_text()
    page.keyboard.press("End")
    last = status.inner_text()
    page.locator(".timeline[data-trace=move]").screenshot(path=str(PICTURES / "timeline-end.png"))
    if before == after or "39 records sent, 39 acknowledged" not in last:
        return f"it said {before!r}, then {after!r}, at the end {last!r}"
    return ""


def the_picture_follows_the_slider_on_a_phone(page: Any, site: Path) -> str:
    """Check that the line of the chosen time is visible if the picture is wider than the window."""
    page.set_viewport_size({"width": 360, "height": 780})
    page.goto((site / "docs/what-happens.html").as_uri())
    place = page.locator(".timeline[data-trace=move]")
    page.locator("#timeline-move").focus()
    outside = []
    for key in ("End", "Home"):
        page.keyboard.press(key)
        frame = place.locator(".timeline-scroller").bounding_box()
        line = place.locator(".cursor").bounding_box()
        if not frame["x"] <= line["x"] <= frame["x"] + frame["width"]:
            outside.append(key)
        place.screenshot(path=str(PICTURES / f"timeline-phone-{key.lower()}.png"))
    page.set_viewport_size({"width": 1280, "height": 900})
    return f"after {' and '.join(outside)} it is out of sight" if outside else ""


def a_table_is_sorted_by_keys(page: Any, site: Path) -> str:
    """Check that Enter on a heading sorts the table and sets aria-sort."""
    page.goto((site / "docs/scorecard.html").as_uri())
    button = page.locator("article table th button").first
    button.focus()
    page.keyboard.press("Enter")
    order = page.locator("article table th").first.get_attribute("aria-sort")
    cells = page.locator("article table tbody tr td:nth-child(2)").all_inner_texts()
    figures = [float(cell.split()[0].replace(",", "")) for cell in cells if cell[:1].isdigit()]
    return "" if order == "ascending" and figures == sorted(figures) else f"{order}: {figures[:9]}"


def a_search_finds_something(page: Any, site: Path) -> str:
    """Check that the search box finds a word without a server."""
    page.goto((site / "index.html").as_uri())
    box = page.locator(".sidebar-search")
    box.fill("rebootstrap")
    box.press("Enter")
    from playwright.sync_api import TimeoutError as Late

    found = page.locator("#search-results li")
    with suppress(Late):  # results appear one after the other
        found.nth(4).wait_for(timeout=20_000)
    return "" if found.count() >= 5 else f"{found.count()} pages found"


def the_menu_of_a_phone_opens_by_keys(page: Any, site: Path) -> str:
    """Check that the keyboard opens a collapsed navigation."""
    page.set_viewport_size({"width": 360, "height": 780})
    page.goto((site / "index.html").as_uri())
    page.locator(".mobile-header .nav-overlay-icon").focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    box = page.locator(".sidebar-drawer").bounding_box()
    shown = page.locator(".sidebar-drawer a").first.is_visible()
    page.screenshot(path=str(PICTURES / "menu-phone.png"))
    page.set_viewport_size({"width": 1280, "height": 900})
    return "" if shown and box and box["x"] >= 0 else f"it stays outside: {box}"


def the_chooser_of_versions_knows_this_one(page: Any, site: Path) -> str:
    """Check that the version chooser lists the version that is shown, from versions.js."""
    page.goto((site / "docs/start.html").as_uri())
    values = page.locator("#site-version-chooser option").all_inner_texts()
    return "" if site.name in values else f"it has {values}"


def the_chooser_leads_to_the_same_page_of_another_version(page: Any, site: Path) -> str:
    """Check that the version chooser opens an older version's page, which links to the newest."""
    both, old = PICTURES / "versions", "0.0.1"
    shutil.copytree(site, both / site.name)
    shutil.copytree(site, both / old)
    for file in (both / old).rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(f'data-version="{site.name}"', f'data-version="{old}"'))
    versions.write(both)
    page.goto((both / site.name / "docs/start.html").as_uri())
    newest = page.locator(".site-older").count()
    page.locator("#site-version-chooser").select_option(old)
    page.wait_for_url(f"**/{old}/docs/start.html", timeout=10_000)
    said = page.locator(".site-older").inner_text()
    page.screenshot(path=str(PICTURES / "older-version.png"))
    page.locator(".site-older a").click()
    page.wait_for_url(f"**/{site.name}/docs/start.html", timeout=10_000)
    shutil.rmtree(both)
    right = f"This page is of {old}. The newest release is Odradek {site.name}."
    return "" if (newest, said) == (0, right) else f"{newest} lines on the newest; {said!r}"


KEYBOARD: tuple[Callable[[Any, Path], str], ...] = (
    the_slider_moves_by_keys,
    the_picture_follows_the_slider_on_a_phone,
    a_table_is_sorted_by_keys,
    a_search_finds_something,
    the_menu_of_a_phone_opens_by_keys,
    the_chooser_of_versions_knows_this_one,
    the_chooser_leads_to_the_same_page_of_another_version,
)

if __name__ == "__main__":
    sys.exit(main())
