"""Random schedules of faults: how they are drawn, run, searched and made short."""
