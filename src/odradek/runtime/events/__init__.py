"""Write a client's events (R-EV-1) to a topic or to files.

In: events, as a listener of a client's `EventLog`. Out: records or lines.
"""
