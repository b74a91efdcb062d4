"""Test the messages of authorization errors."""

from __future__ import annotations

import copy
import pickle

import pytest

from odradek.clients.explain.causes import cure_of
from odradek.clients.producer.transaction_errors import abortable
from odradek.clients.producer.uncertain_writes import saying
from odradek.common.errors import AbortableTransactionError, AuthorizationError
from odradek.common.errors import kafka as kafka_errors


@pytest.mark.parametrize(
    ("code", "operation", "name", "words"),
    [
        (29, "WRITE", "orders", "WRITE on topic 'orders'"),
        (30, "READ", "billing", "READ on group 'billing'"),
        (53, "WRITE", "shop-1", "WRITE on transactional id 'shop-1'"),
        (31, "IDEMPOTENT_WRITE", "", "IDEMPOTENT_WRITE on the cluster"),
    ],
)
def test_the_error_message_names_the_missing_acl(
    code: int, operation: str, name: str, words: str
) -> None:
    error = kafka_errors.error_for(code, "no").needing(operation, name)
    assert isinstance(error, AuthorizationError)
    implied = f" ({operation} implies DESCRIBE)" if operation in ("READ", "WRITE") else ""
    needs = f"This client's user needs {words}: add an ACL that allows it{implied}."
    assert str(error).endswith(f"no. {needs}")
    assert str(saying(error, f"record 7: {error}")) == f"record 7: {error}"
    assert cure_of(error) == f"Add an ACL that allows {words}."
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert str(other) == str(error)
    assert f"no. User 'alice' needs {words}" in str(error.of("alice"))


def test_the_error_keeps_the_first_operation_and_resource_that_were_set() -> None:
    error = kafka_errors.TopicAuthorizationError("no").needing("WRITE", "a").needing("READ", "b")
    assert isinstance(error, AuthorizationError)
    assert (error.operation, error.resource) == ("WRITE", "topic 'a'")


def test_errors_other_than_authorization_errors_name_no_acl() -> None:
    error = kafka_errors.error_for(3, "no such topic")
    assert error.needing("READ", "a") is error
    assert "READ" not in str(error)


def test_a_transaction_error_names_the_missing_acl() -> None:
    error = abortable(kafka_errors.TopicAuthorizationError("no").needing("WRITE", "a"))
    assert isinstance(error, AbortableTransactionError)
    assert isinstance(error, kafka_errors.TopicAuthorizationError)
    assert "needs WRITE on topic 'a'" in str(error)


def test_each_authorization_code_maps_to_an_authorization_error() -> None:
    found = {c.name for c in kafka_errors.ERRORS.values() if issubclass(c, AuthorizationError)}
    assert found == {c.name for c in kafka_errors.ERRORS.values() if "AUTHORIZATION" in c.name}
    assert len(found) == 5


def test_an_operation_on_another_resource_type_than_the_errors_is_ignored() -> None:
    error = kafka_errors.GroupAuthorizationError("no").needing("READ", "orders", "topic")
    assert "needs" not in str(error)
    assert "needs READ on group 'g'" in str(error.needing("READ", "g", "group"))
