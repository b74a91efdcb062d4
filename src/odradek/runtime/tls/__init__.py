"""Create TLS contexts from the configuration, and read the key and trust stores that they load.

In: options, files. Out: `ssl.SSLContext`s, recreated when a file changes.
"""
