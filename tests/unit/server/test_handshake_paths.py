"""Tests how often the paths of half-open handshakes are looked at."""

from __future__ import annotations

from typing import Final

from aeron_spark.protocol.server_events import PathFailed, PathReady, ServerEvent
from aeron_spark.server.handshake_paths import LOOK_SHARE, HandshakePaths
from aeron_spark.transport.api import OfferResult

TURN_S: Final = 0.005  # of the event loop
PATH_S: Final = 10.0  # until the server gives up a path
PATHS: Final = 128  # of addresses that are not known


class Reply:
    """A response publication that counts the looks at it."""

    session_id, max_message, ready, failure, local_address = 1, 1152, True, "", ""

    def __init__(self) -> None:
        self.looks = 0
        self.is_connected = self.closed = False

    @property
    def connected(self) -> bool:
        self.looks += 1
        return self.is_connected

    def offer(self, *parts: object, timeout_s: float = 0.0) -> OfferResult | None:
        return None

    def stop_waiting(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_paths_that_never_connect_are_looked_at_ever_less_often() -> None:
    replies = [Reply() for _ in range(PATHS)]
    fed: list[ServerEvent] = []
    paths = HandshakePaths(lambda event, _: fed.append(event))
    for number, reply in enumerate(replies):
        paths.open(number, lambda reply=reply: reply, 0.0)  # type: ignore[misc]
    turns = int(PATH_S / TURN_S)
    for turn in range(turns):
        paths.work(turn * TURN_S)
    assert fed == []
    assert max(reply.looks for reply in replies) < turns / 25


def test_a_path_that_connects_late_is_noticed_soon() -> None:
    for connected_at in (0.0, 0.01, 0.1, 1.0, 8.0):
        reply = Reply()
        fed: list[tuple[ServerEvent, float]] = []
        paths = HandshakePaths(lambda event, now, fed=fed: fed.append((event, now)))  # type: ignore[misc]
        paths.open(7, lambda reply=reply: reply, 0.0)  # type: ignore[misc]
        now = 0.0
        while not fed:
            reply.is_connected = now >= connected_at
            paths.work(now)
            now += TURN_S
        [(event, noticed_at)] = fed
        assert event == PathReady(7)
        assert noticed_at <= connected_at * (1 + 1 / LOOK_SHARE) + 2 * TURN_S


def test_a_path_whose_publication_fails_is_reported() -> None:
    reply = Reply()
    fed: list[ServerEvent] = []
    paths = HandshakePaths(lambda event, _: fed.append(event))
    paths.open(7, lambda: reply, 0.0)
    reply.closed = True
    paths.work(0.0)
    assert fed == [PathFailed(7)]
