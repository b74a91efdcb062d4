"""The command `odradek explain`."""
