"""Connections without I/O: effects, flows, frames, connection states and the network client.

In: what a host observed (connected, bytes, closed, resolved). Out: effects for the host, replies
for the rooms above. Must not: read a clock, draw from a generator of its own, touch a socket.
"""
