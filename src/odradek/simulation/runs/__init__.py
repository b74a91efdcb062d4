"""Random schedules of faults: drawing, running, searching and shortening schedules.

In: seeds or schedule files. Out: results of runs, with violations.
"""
