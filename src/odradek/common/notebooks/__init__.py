"""Show results as tables in notebooks.

In: results of API calls. Out: HTML.
"""
