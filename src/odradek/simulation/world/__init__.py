"""Time, names, links and hosts of the virtual world, and traces of clients."""
