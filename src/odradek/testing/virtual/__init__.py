"""Event loops and sockets in the virtual time of a simulation."""
