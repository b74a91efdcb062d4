"""TLS: contexts as the configuration wants them, and the stores that their keys come from."""
