"""Random schedules of faults: drawing, running, searching and shortening them."""
