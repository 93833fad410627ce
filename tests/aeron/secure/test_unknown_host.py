"""The error for a host name that cannot be resolved, over a real driver."""

from __future__ import annotations

import pytest

from aeron_spark.errors import ConnectError
from aeron_spark.transport.api import ServerAddress
from tests.aeron.secure.endpoints import World


def test_an_unknown_host_is_named_in_one_sentence_without_java_words(world: World) -> None:
    address = ServerAddress("udp", "no-such-host.invalid", 20121, 20122)  # RFC 6761: no resolver knows it
    client = world.client(address)
    with pytest.raises(ConnectError) as caught:
        client.connect(1.0)
    assert "the host name 'no-such-host.invalid' cannot be resolved to an address" in caught.value.what
    for word in ("Exception", "java", "errorCode", "ERROR"):
        assert word not in str(caught.value)
    assert caught.value.remedy
