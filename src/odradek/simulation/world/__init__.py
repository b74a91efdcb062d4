"""Time, names, links and hosts of the virtual world, and what a client did in it."""
