"""Each remote call of named streams is served to the grants that admit it, and refused to all others."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

import pytest

from aeron_spark.errors import RefusedError
from aeron_spark.protocol.access import Grant
from aeron_spark.server.streaming import StreamService
from aeron_spark.stream_client.service import METHODS
from aeron_spark.streams.store import Condition

READ, WRITE, MANAGE = "read", "write", "manage"
ACTIONS: Final = (READ, WRITE, MANAGE)
NAME: Final = "flights"
STAGE: Final = (NAME, "w", "run", 0, 0, 0, "raw", b"", True, "author", 1, 1)

# For each call: its arguments, and the actions of which a client's key needs one.
CALLS: Final[dict[str, tuple[tuple[Any, ...], frozenset[str]]]] = {
    "describe": ((NAME,), frozenset(ACTIONS)),
    "inspect": ((NAME,), frozenset(ACTIONS)),
    "create": ((NAME, 1, 0, 0.0, 0), frozenset({MANAGE})),
    "delete": ((NAME,), frozenset({MANAGE})),
    "purge": ((NAME, -1, -1, -1), frozenset({MANAGE})),
    "states": ((NAME,), frozenset({READ, WRITE})),
    "boundary": ((NAME, 0, 0, 64, 64, -1, False), frozenset({READ})),
    "position_at": ((NAME, 0), frozenset({READ})),
    "wait_beyond": ((NAME, [0], 0.0), frozenset({READ})),
    "lease": ((NAME, "reader", {"0": 0}, 60.0), frozenset({READ})),
    "read": ((NAME, 0, 0, 64, 1, 1), frozenset({READ})),
    "last": ((NAME, "w", "author"), frozenset({WRITE})),
    "last_with_token": ((NAME, "w", "author"), frozenset({WRITE})),
    "enter": ((NAME, "w", "run", 0, True, "author"), frozenset({WRITE})),
    "first_lost": ((NAME, "w", 0, "stamp"), frozenset({WRITE})),
    "open_stage": (STAGE, frozenset({WRITE})),
    "finish_stage": ((NAME, "1", 0, 0.0), frozenset({WRITE})),
    "commit": ((NAME, "w", "run", 0, [], "author", 0, 0.0), frozenset({WRITE})),
    "commit_empty": ((NAME, "w", "run", 0, "author", 0.0), frozenset({WRITE})),
    "abort": ((NAME, "w", "run", 0), frozenset({WRITE})),
}
WITHOUT_A_STREAM: Final = {"list_all", "stop"}  # a list has what the client may see; a stop is of its own branch


class Admitted(Exception):
    """The call came as far as the store."""


class Desk:
    """What a service needs of a server; its store admits to being asked, and does nothing."""

    def __init__(self, grant: Grant | None) -> None:
        self._grant = grant

    def grant_of(self, connection: object) -> Grant | None:
        return self._grant

    def store(self) -> Any:
        raise Admitted


def call(method: str, grant: Grant | None) -> None:
    service = StreamService(Desk(grant), object())  # type: ignore[arg-type]
    getattr(service, method)(*CALLS[method][0])


def test_the_table_has_each_call_that_names_a_stream() -> None:
    assert {*CALLS, *WITHOUT_A_STREAM} == set(METHODS)


@pytest.mark.parametrize("method", CALLS)
def test_a_call_is_served_to_the_keys_that_may_do_its_action_and_to_no_others(method: str) -> None:
    """Finding: no test noticed that a key with `read` alone could delete what is in a stream."""
    needed = CALLS[method][1]
    for count in range(len(ACTIONS) + 1):
        for granted in combinations(ACTIONS, count):
            grant = Grant(streams=((NAME, frozenset(granted)), ("another", frozenset(ACTIONS))))
            if needed & set(granted):
                with pytest.raises(Admitted):
                    call(method, grant)
            else:
                with pytest.raises(RefusedError, match=f"your key may not .* stream '{NAME}'"):
                    call(method, grant)


@pytest.mark.parametrize("method", CALLS)
def test_a_call_is_served_to_a_key_without_limits_and_to_a_client_of_an_open_server(method: str) -> None:
    for grant in (Grant(), None):
        with pytest.raises(Admitted):
            call(method, grant)


class Store:
    """Two streams, both damaged, so that there is little to say of them."""

    failed: Final = {NAME: "damaged", "secret": "damaged"}

    def all(self) -> list[object]:
        return []

    def condition(self, name: str) -> Condition:
        return Condition("damaged", self.failed[name])

    def definition(self, name: str) -> None:
        return None


@pytest.mark.parametrize("granted", ACTIONS)
def test_a_list_has_the_streams_that_a_key_may_do_something_with(granted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "store", lambda _: Store())
    seen = {
        grant: [one["name"] for one in StreamService(Desk(grant), object()).list_all()]  # type: ignore[arg-type]
        for grant in (Grant(streams=((NAME, frozenset({granted})), ("secret", frozenset()))), Grant(), None)
    }
    assert list(seen.values()) == [[NAME], [NAME, "secret"], [NAME, "secret"]]
