"""A program for tests: many threads of one process use the endpoint's types for the first time at once.

``python -m tests.unit.client.first_connections connections 200`` prints how many of them did it without an error.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import typing
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import msgspec

from aeron_spark.client.client import Client

SECONDS: Final = 120.0  # for all threads together
STEP: Final = 90.0  # seconds for a step of a handshake, beside hundreds of others


def pause_while_types_are_built(pauses: int, seconds: float) -> None:
    """Let other threads run while msgspec analyses a class, which hashes the annotations of its fields.

    Without this, other threads rarely run at that moment.
    """
    alias = type(Annotated[int, msgspec.Meta(ge=0)])
    unpaused, calls = alias.__hash__, itertools.count()

    def paused(self: typing.Any) -> int:
        if next(calls) < pauses:  # later threads do not pause
            time.sleep(seconds)
        return unpaused(self)

    alias.__hash__ = paused  # type: ignore[method-assign]


def at_once(work: list[Callable[[], object]], *, pauses: int, seconds: float) -> int:
    """Run each work on a thread, after all threads have started; return how many did not fail."""
    barrier = threading.Barrier(len(work))
    done = []

    def run(one: Callable[[], object]) -> None:
        barrier.wait(SECONDS)
        one()
        done.append(one)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    pause_while_types_are_built(pauses, seconds)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return len(done)


def connections(count: int) -> int:
    """Connect ``count`` clients with one server over the in-memory network."""
    from aeron_spark.protocol.server_handshake import ServerTiming
    from tests.unit.endpoint.endpoints import World, client_options, server_options

    slow = {"setup_timeout": STEP, "expiry": 50.0, "session_timeout": 60.0, "linger": 0.0}
    timing = ServerTiming(hello_s=STEP, admitting_s=STEP, path_s=STEP, done_s=STEP, authenticating_s=STEP)
    world = World()
    world.server(server_options(**slow, timing=timing))
    mine = client_options(**slow, step_timeout=STEP)
    clients = [world.client(mine, connect=False) for _ in range(count)]
    work = [partial(client.connect, SECONDS) for client in clients]
    connected = at_once(work, pauses=sys.maxsize, seconds=0.001)
    world.close()
    return connected


class Inner(msgspec.Struct):
    """A field of a message of the program's own."""

    bounded: Annotated[int, msgspec.Meta(ge=0)] = 1
    texts: Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=9)]], msgspec.Meta(max_length=9)] = {}


class Message(msgspec.Struct):
    """A message of the program's own."""

    inner: Inner
    small: Annotated[int, msgspec.Meta(le=9)] = 2


def messages(count: int) -> int:
    """Register a class with ``count`` clients, and decode a message of it, on one thread for each."""
    from tests.unit.endpoint.endpoints import World

    world = World()
    data = bytes.fromhex("0040") + msgspec.msgpack.encode(Message(Inner()))

    def receive(client: Client) -> None:
        client.register_type(Message, 64)
        assert client._endpoint.types.decode(data) == Message(Inner())

    done = at_once([partial(receive, world.client(connect=False)) for _ in range(count)], pauses=20, seconds=0.1)
    world.close()
    return done


if __name__ == "__main__":
    print(globals()[sys.argv[1]](int(sys.argv[2])))
