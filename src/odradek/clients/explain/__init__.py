"""`explain()` and `health()` of all clients, sync and asyncio: a client's state as text and data.

In: a client's engine, read from any thread. Out: frozen dataclasses that print as text.
"""
