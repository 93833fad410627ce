"""The texts of requests in errors."""

from __future__ import annotations

from aeron_spark.protocol.rpc_messages import Call, describe_request


def test_an_error_names_the_peers_own_service_and_no_number() -> None:
    """An error had "handle() of object 4611686018427387906", which a user cannot know."""
    described = [describe_request(Call(target, "handle")) for target in (2**62 + 2, 7, "catalog")]
    assert described == [
        "the call of handle() of the peer's own service",
        "the call of handle() of object 7",
        "the call of handle() of 'catalog'",
    ]
