"""Hosts run engines over sockets: in the caller's thread, or in one of their own."""
