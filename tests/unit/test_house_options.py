"""Each option is read by code where it has an effect.

`common` declares, translates and checks options; that alone is no effect. A name counts as read if
a room of the client looks it up: as an index, an argument, or an item of a list of names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from tests.source_trees import PACKAGE, parsed

from odradek.cli.options import CHANGES_NOTHING
from odradek.common.options.table import OPTIONS

ROOMS = ("api", "clients", "metadata", "network", "record", "runtime")
ACCEPTED = {
    "all addresses of a name are tried with each value": ("client.dns.lookup",),
    "a store's content says what it is": ("ssl.truststore.type", "ssl.keystore.type"),
    "the other token options determine the grant": ("sasl.oauthbearer.grant.type",),
    "Java's own class may be named, any other is refused": (
        *("ssl.engine.factory.class", "sasl.client.callback.handler.class", "sasl.login.class"),
        "sasl.oauthbearer.jwt.retriever.class",
    ),
}
"""Options accepted for compatibility, by the reason why their values have no effect."""
ELSEWHERE = {
    "common/security.py translates it into other options, which are read": (
        "sasl.login.callback.handler.class",
        "enable.sasl.oauthbearer.unsecure.jwt",
    ),
    "its name is derived from that of a location": ("ssl.truststore.password", "https.ca.password"),
    "its name is derived from that of a codec": tuple(
        f"compression.{c}.level" for c in ("gzip", "lz4", "zstd")
    ),
}
"""Options that are read, by the reason why this test doesn't find it."""


def listed(*tables: dict[str, tuple[str, ...]]) -> set[str]:
    return {name for table in tables for names in table.values() for name in names}


def looked_up(tree: ast.Module) -> Iterator[str]:
    """Yield the option names that a module looks up; `backoff` looks up two options at once."""
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=index, ctx=ast.Load()):
                given: list[ast.expr] = [index]
            case ast.Call(args=inside) | ast.Tuple(elts=inside):
                given = inside
            case _:
                continue
        for one in given:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield from (one.value, f"{one.value}.ms", f"{one.value}.max.ms")
            elif isinstance(one, ast.JoinedStr):
                yield from _put_together(one, constants, texts)


def _put_together(
    text: ast.JoinedStr, constants: Mapping[str, object], texts: AbstractSet[object]
) -> Iterator[str]:
    """Yield the names that an f-string may produce if the module's strings are its values."""
    pattern = ""
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            known = constants.get(part.value.id) if isinstance(part.value, ast.Name) else None
            pattern += "(.+)" if known is None else re.escape(str(known))
        elif isinstance(part, ast.Constant):
            pattern += re.escape(str(part.value))
    for name in OPTIONS:
        found = re.fullmatch(pattern, name)
        if found and set(found.groups()) <= texts:
            yield name


def test_every_option_is_read_by_code_where_it_has_an_effect() -> None:
    read = {
        name
        for room in ROOMS
        for path in (PACKAGE / room).rglob("*.py")
        for name in looked_up(parsed(path))
    }
    unread = listed(ACCEPTED, ELSEWHERE)
    promised = {name for name, one in OPTIONS.items() if one.parse.kind != CHANGES_NOTHING}
    assert promised - read - unread == set(), "options without an effect"
    assert unread <= promised - read, "options that are read after all, or are gone"
    assert not (read & OPTIONS.keys()) - promised, "options that are said to change nothing"


def test_options_without_an_effect_are_documented_as_such() -> None:
    for name in listed(ACCEPTED):
        assert re.search("ha(s|ve) no effect|the only value", OPTIONS[name].doc), name
