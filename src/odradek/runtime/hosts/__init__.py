"""Hosts that run engines over sockets: in the caller's thread, a daemon thread or an event loop."""
