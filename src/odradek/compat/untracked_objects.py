"""Fast creation of record objects that the garbage collector doesn't track.

In: a class. Out: empty objects of it. A record's fields (bytes, texts, numbers) can't refer to the
record, so it needs no tracking until the program changes a field. Must not: be used for objects
that hold a program's objects.
"""

from odradek.record import become, blanks, collectable

__all__ = ["become", "blanks", "collectable"]
