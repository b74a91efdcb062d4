"""Run the part of a query that runs once: its start, the ends of the log, and the next batch."""
