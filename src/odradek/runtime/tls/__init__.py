"""TLS: contexts from the configuration, and the stores with their keys."""
