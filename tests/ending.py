"""A call that must end by itself, for a reason other than its own time-out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

T = TypeVar("T")

FOR_EVER: Final = 3600.0  # seconds: a time-out that must not be what ends a call
PATIENCE: Final = 60.0  # seconds for what takes milliseconds on an idle machine


def ends(call: Callable[[], T], what: str) -> T:
    """Return what ``call`` returns, or raise what it raises; fail where it has not ended in time.

    Give the call a time-out of ``FOR_EVER``: that it ends then shows the cause, on a machine of any speed.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=f"ends: {what}", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        pytest.fail(f"waited {PATIENCE:g} s for {what} to end")
    if raised:
        raise raised[0]
    return returned[0]
