"""`explain()`, `health()`: the state of a client's engine as text and data, for every facade.

In: an engine, read from any thread. Out: frozen dataclasses that print as text.
"""
