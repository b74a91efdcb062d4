"""How Sphinx makes the site; `make site` runs it on what tools/site lays beside this file."""

import os
from pathlib import Path

from sphinx.application import Sphinx

project = "Odradek"
copyright = "the Odradek developers; Apache-2.0"  # noqa: A001 - Sphinx' name
version = release = os.environ["ODRADEK_SITE_VERSION"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
source_suffix = {".md": "markdown"}
exclude_patterns = ["_templates"]
templates_path = ["_templates"]
highlight_language = "none"  # blocks without a language are commands and what they print
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures have no pages
autodoc_preserve_defaults = True
default_role = "code"  # docstrings have code in single backquotes
smartquotes = False  # pages choose their characters themselves

myst_heading_anchors = 6
myst_links_external_new_tab = False
suppress_warnings = [
    "myst.header",  # a page may skip a level where its tables are written by tools
    "ref.python",  # several classes have an attribute `type`
]

html_theme = "furo"
html_title = f"Odradek {release}"
html_baseurl = ""
html_use_index = False  # names are found by the search
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
html_search_scorer = str(Path(__file__).parent / "_static/scorer.js")  # switches on excerpts, too
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [
    (name, {"defer": "defer"}) for name in ("tables.js", "menu.js", "chooser.js", "tabs.js")
]
html_permalinks_icon = "#"
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {
        "color-brand-primary": "#0b5f6b",
        "color-brand-content": "#0b5f6b",
        "color-brand-visited": "#5a3f8a",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fd3de",
        "color-brand-content": "#7fd3de",
        "color-brand-visited": "#c3b1ec",
    },
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def timeline_is_drawn(app: Sphinx, page: str, *_: object) -> None:
    """Load what draws timelines, on the one page that has some."""
    if page == "docs/what-happens":
        app.add_js_file("traces.js", loading_method="defer")
        app.add_js_file("timeline.js", loading_method="defer")


LANDMARKS = {
    '<aside class="sidebar-drawer"': "All pages",
    '<aside class="toc-drawer"': "On this page",
    '<aside class="toc-drawer no-toc"': "On this page",
}
"""Names of the theme's landmarks, so that users of screen readers can tell them apart."""


def landmarks_are_named(app: Sphinx, error: Exception | None) -> None:
    """Name the theme's landmarks; what is no heading, of the menu or of a column, is none."""
    for file in Path(app.outdir).rglob("*.html") if error is None else ():
        text = file.read_text(encoding="utf-8")
        for start, name in LANDMARKS.items():
            text = text.replace(f"{start}>", f'{start} aria-label="{name}">')
        text = text.replace('<p class="caption" role="heading">', '<p class="caption">')
        file.write_text(text.replace('<th class="head"><p></p></th>', "<td></td>"))


def indented_is_code(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Turn an indented block after an empty line into code, which it is in Markdown."""
    for n in reversed(range(len(lines))):
        indented = lines[n].startswith("    ")
        begins = indented and n > 0 and not lines[n - 1].strip()
        before = next((line for line in reversed(lines[:n]) if line.strip()), "")
        if begins and not before.startswith("    ") and not before.startswith((">>>", "- ")):
            lines[n:n] = ["::", ""]


def setup(app: Sphinx) -> None:
    """Say which node is changed when."""
    app.connect("autodoc-process-docstring", indented_is_code)
    app.connect("html-page-context", timeline_is_drawn)
    app.connect("build-finished", landmarks_are_named)
