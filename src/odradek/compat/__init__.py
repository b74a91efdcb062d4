"""The APIs of aiokafka and confluent-kafka, implemented with Odradek's clients.

A program switches by changing its imports, or by calling `install`. Each library has a package:
`odradek.compat.aiokafka` and `odradek.compat.confluent_kafka`.
"""

from odradek.compat.import_hook import install

__all__ = ["install"]
