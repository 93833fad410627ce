"""An endpoint that has ended keeps nothing, and runs nothing more."""

from __future__ import annotations

import pytest

from aeron_spark.errors import EndedError
from tests.unit.endpoint.endpoints import World


def test_a_job_for_an_event_loop_that_has_ended_fails_and_is_not_kept(world: World) -> None:
    _, client = world.pair()
    client.close()
    with pytest.raises(EndedError):
        client._endpoint.loop.call(lambda: None).result(0)
    client._endpoint.loop.run_soon(lambda: None)
    assert client._endpoint.loop.jobs == []
