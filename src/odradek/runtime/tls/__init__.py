"""TLS contexts from the configuration, and the key and trust stores that they load.

In: options, files. Out: `ssl.SSLContext`s, created again when a file changes.
"""
