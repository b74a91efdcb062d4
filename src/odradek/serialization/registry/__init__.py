"""Schema registries: their clients, their settings and cached schemas."""
