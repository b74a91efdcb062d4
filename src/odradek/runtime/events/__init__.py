"""A client's events on their way out of it: to a topic, or to files."""
