"""The command `odradek events`."""
