"""Checks that a call returns, for a reason other than its timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

T = TypeVar("T")

LONG_TIMEOUT_S: Final = 3600.0  # a timeout that must not be the reason why a call returns
TIMEOUT_S: Final = 60.0  # for calls that take milliseconds on an idle machine


def call_in_time(call: Callable[[], T], what: str) -> T:
    """Return the value of ``call()``, or raise its exception; fail the test if the call does not return in time.

    Give the call a timeout of ``LONG_TIMEOUT_S``: its return then has another cause, on a machine of any speed.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=f"call: {what}", daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if thread.is_alive():
        pytest.fail(f"waited {TIMEOUT_S:g} s for {what} to end")
    if raised:
        raise raised[0]
    return returned[0]
