"""Show results as tables in notebooks.

In: results of calls. Out: HTML.
"""
