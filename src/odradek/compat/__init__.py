"""Other clients' classes over this package's: a program switches by its import line.

In: names, arguments and callbacks as those clients have them. Out: their results and errors. One
folder a library. Must not: decide anything that Kafka decides; the asyncio and sync facades do.
"""
