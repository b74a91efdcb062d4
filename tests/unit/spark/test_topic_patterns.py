"""subscribePattern: Java's regular expressions converted to Python's, or rejected."""

from __future__ import annotations

import pytest

from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.topic_patterns import compiled


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("flights", ["flights", "old.flights-2"], ["Flights"]),  # matches a substring
        ("^flights$", ["flights"], ["flights2", "xflights"]),
        (r"\Qa.b\E.*c", ["a.bc", "xa.b_c"], ["axbc"]),
        (r"^\Qa.b", ["a.b1"], ["axb"]),
        (r"^\p{Lower}+-\p{IsDigit}{2}$", ["ab-12"], ["aB-12", "ab-1"]),
        (r"^[\p{Upper}_]+$", ["A_B"], ["A-B"]),
        (r"^\P{Alpha}", ["1a"], ["a1"]),
        (r"^(?<base>[a-z]+)-\k<base>$", ["ab-ab"], ["ab-ba"]),
        ("(?i)^FLIGHTS", ["flights"], ["xflights"]),
        ("^(?i:A)b", ["ab", "Ab"], ["aB"]),
        (r"^(?!old)[^-]++-\d+$", ["new-1"], ["old-1", "new-a"]),
        (r"^(?>a|ab)c$", ["ac"], ["abc"]),
        (r"\w\z", ["a"], ["a-"]),
        (r"\x{61}\0142\x63", ["abc"], ["ab"]),
        (r"^[&~|a]+$", ["aa"], ["b"]),
        (" spaced ", ["spaced"], ["other"]),
    ],
)
def test_patterns_match_the_same_topics_as_in_java(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    found = compiled(pattern)
    assert [name for name in matching + other if found.search(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("[a-z&&[^b]]", "&&"),
        ("[a[bc]]", "nested character class"),
        ("[ab", "unclosed character class"),
        (r"\p{IsGreek}", r"\p{IsGreek}"),
        (r"a\G", r"\G"),
        ("a(?i)b", "(?i)"),
        ("(?d)a", "(?d)"),
        ("(?@a)", "(?@a"),
        ("a\\", "backslash at the end"),
        ("a)", "isn't a valid regular expression"),
        ("*a", "isn't a valid regular expression"),
        ("", "is empty"),
    ],
)
def test_errors_name_the_unsupported_part_of_a_pattern(pattern: str, part: str) -> None:
    with pytest.raises(OptionError) as caught:
        compiled(pattern)
    assert "subscribePattern" in str(caught.value)
    assert part in str(caught.value)
