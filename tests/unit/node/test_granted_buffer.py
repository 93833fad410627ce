"""A node uses the buffer size that the system grants a socket."""

from __future__ import annotations

import socket

import pytest

from aeron_spark.node.settings import granted_buffer

BOTH_OPTIONS = pytest.mark.parametrize("option", [socket.SO_RCVBUF, socket.SO_SNDBUF])


@BOTH_OPTIONS
def test_each_system_grants_64_kib(option: int) -> None:
    assert granted_buffer(option, 64 * 1024) == 64 * 1024


@BOTH_OPTIONS
def test_the_granted_size_is_limited(option: int) -> None:
    limit = granted_buffer(option, 2**30)
    assert 64 * 1024 < limit < 2**30
    assert granted_buffer(option, limit) == limit
