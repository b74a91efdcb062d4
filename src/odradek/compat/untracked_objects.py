"""Records as objects instead of tuples, created by the thousand.

In: a class. Out: objects to fill, which the garbage collector doesn't track, as a record's fields
(bytes, texts, numbers) can't refer back to it; it does once a program changes one. Must not: be
used for objects that hold a program's own objects.
"""

from odradek.record import become, blanks, collectable

__all__ = ["become", "blanks", "collectable"]
