"""Connections without I/O: effects, flows, frames, connection states and the network client.

In: events that a host observed (connected, bytes received, closed, name resolved). Out: effects for
the host to carry out; responses for the packages above. Must not: read a clock, use another random
generator than the given one, or touch a socket.
"""
