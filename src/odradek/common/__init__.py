"""Share types, errors, configuration, backoff and events between all packages."""
