"""A year of flights through a cluster that moves away: `command`; without: `minimal_demo`."""
