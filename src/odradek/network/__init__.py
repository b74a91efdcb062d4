"""Hold the connections of a client, without doing I/O: connection states, frames and requests.

In: events that the I/O host (thread or event loop) observed, such as received bytes. Out: effects,
which are I/O operations for the host; responses for the packages that import this one. Must not:
read a clock, use another random generator than the given one, or touch a socket.
"""
