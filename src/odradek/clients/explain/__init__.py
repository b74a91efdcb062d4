"""`explain()`: what a client's engine says of itself in words, for every facade alike.

In: an engine and its time. Out: pictures that print as text and convert to plain data. Must not:
do I/O, wait, or change anything.
"""
