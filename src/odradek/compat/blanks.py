"""Records that are objects and not tuples, made by the thousand.

In: a class. Out: objects to be filled that the garbage collector doesn't see, as what a record has
(bytes, texts, numbers) can't refer back to it; once a program changes one, it does. Must not: be
used for what holds a program's own objects.
"""

from odradek.record import become, blanks, collectable

__all__ = ["become", "blanks", "collectable"]
