"""Write a client's events (R-EV-1), such as lost connections, to a topic or to files.

In: events, as a listener of a client's `EventLog`. Out: records of a topic, or lines of a file.
"""
