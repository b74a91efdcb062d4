"""Every error that Odradek raises; the commonest ones are in `odradek`, too.

    from odradek.errors import BrokerError, TopicAuthorizationError

All are subclasses of `KafkaError`. An answer of a broker with an error code is a `BrokerError`,
with a subclass for each code of Kafka (`NotLeaderOrFollowerError`). Every error has `retriable`
(the same call may succeed later) and `fatal` (the client can't be used any more). Errors of schemas
and serializers, of Arrow columns and of Spark's source and sink are here as well; those of the
clusters that `odradek.testing` starts are in that module.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
