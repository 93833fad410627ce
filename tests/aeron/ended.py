"""Fixtures that check the endpoints of this process that have ended. A package uses them by importing both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from aeron_spark.endpoint.endpoint import EndpointCore
from aeron_spark.waiting import wait_for
from tests.remains import remains_in

__all__ = ["check_ended_endpoints", "ended_endpoints"]

TIMEOUT_S: Final = 60.0  # of listeners that run after the end; an idle machine needs milliseconds


@pytest.fixture(scope="module", autouse=True)
def ended_endpoints() -> Iterator[list[EndpointCore]]:
    """Note each endpoint of this process that ends, and check those that end after the tests of a module."""
    ended: list[EndpointCore] = []
    stop = EndpointCore.stop

    def stop_and_note(endpoint: EndpointCore) -> None:
        stop(endpoint)
        ended.append(endpoint)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(EndpointCore, "stop", stop_and_note)
        yield ended
    check_remains(ended)


@pytest.fixture(autouse=True)
def check_ended_endpoints(ended_endpoints: list[EndpointCore]) -> Iterator[None]:
    """Check that the endpoints that end with a test keep nothing of what came and went."""
    yield
    check_remains(ended_endpoints)


def check_remains(ended: list[Any]) -> None:
    """Check that ended endpoints, with their connections, services and stores, keep nothing, and forget them."""
    checked, ended[:] = list(ended), []
    wait_for(
        lambda: not remains_in(*checked), TIMEOUT_S, "ended endpoints to keep nothing",
        state=lambda: str(remains_in(*checked)),
    )  # fmt: skip
