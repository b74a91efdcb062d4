"""Other Kafka clients' APIs on Odradek: a program switches by changing its imports.

In: names, arguments and callbacks of those clients. Out: their results and errors. One folder for
each library. Must not: decide anything that Kafka decides; the asyncio and sync clients do.
"""

from odradek.compat.under_their_names import install

__all__ = ["install"]
