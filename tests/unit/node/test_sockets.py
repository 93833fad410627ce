"""What the system gives a socket is what a node counts on."""

from __future__ import annotations

import socket

import pytest

from aeron_spark.node.settings import granted_buffer

BOTH = pytest.mark.parametrize("which", [socket.SO_RCVBUF, socket.SO_SNDBUF])


@BOTH
def test_what_every_system_has_is_granted(which: int) -> None:
    assert granted_buffer(which, 64 * 1024) == 64 * 1024


@BOTH
def test_no_system_gives_everything(which: int) -> None:
    most = granted_buffer(which, 2**30)
    assert 64 * 1024 < most < 2**30
    assert granted_buffer(which, most) == most
