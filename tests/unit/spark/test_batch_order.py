"""Finding C3: a micro-batch is written only behind the one before it, wherever the query's servers have that."""

from __future__ import annotations

import random

import pytest

from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.spark.batch_order import NONE, Progress, check_follows, token_of

RUN = "run-1"


def check(batch: int, progress: dict[str, Progress], *, run: str = RUN, accept_gap: bool = False) -> None:
    check_follows(batch, run, progress, query="q", stream="stream 's' of a:1", accept_gap=accept_gap)


class Servers:
    """What each server of a query has, as the servers keep it."""

    def __init__(self, *names: str) -> None:
        self.has = dict.fromkeys(names, Progress(NONE))

    def write(self, batch: int, *, run: str = RUN, accept_gap: bool = False) -> None:
        names = list(self.has)
        server = names[batch % len(names)]
        check(batch, self.has, run=run, accept_gap=accept_gap)
        token = token_of(batch, server, run, self.has)
        self.has = {**self.has, server: Progress.parse(batch, token)}

    def refused(self, batch: int, said: str, **more: str) -> None:
        with pytest.raises(RefusedError, match=said) as caught:
            self.write(batch, **more)  # type: ignore[arg-type]
        assert caught.value.reason == "diverged"
        assert "acceptGap=true" in caught.value.remedy
        assert not caught.value.retriable


def test_micro_batches_follow_each_other_on_one_server() -> None:
    servers = Servers("a")
    for batch in range(5):
        servers.write(batch)
    for batch in (6, 57):
        servers.refused(
            batch, f"micro-batch {batch} of query q does not follow 4, the last of this query in stream 's'"
        )
    servers.write(5)


def test_the_first_micro_batch_of_a_query_is_number_0() -> None:
    Servers("a", "b").write(0)
    Servers("a", "b").refused(1, "micro-batch 1 of query q follows micro-batch 0, but stream 's' of a:1 has none")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_server_that_was_restored_is_noticed_before_the_next_micro_batch(count: int) -> None:
    """Whichever server it is, and however little it lost: the next micro-batch is refused on every server."""
    rng = random.Random(count)
    for _ in range(200):
        servers = Servers(*"abc"[:count])
        copies = [servers.has]
        for batch in range(rng.randint(1, 9)):
            servers.write(batch)
            copies.append(servers.has)
        next_batch = len(copies) - 1
        name, copy = rng.choice(list(servers.has)), rng.choice(copies)
        lost = copy[name] != servers.has[name]
        servers.has = {**servers.has, name: copy[name]}
        if lost:
            servers.refused(next_batch, "micro-batch")
        else:
            servers.write(next_batch)


def test_all_servers_restored_to_one_moment_are_noticed() -> None:
    servers = Servers("a", "b")
    for batch in range(4):
        servers.write(batch)
    copy = servers.has
    for batch in range(4, 9):
        servers.write(batch)
    servers.has = copy
    servers.refused(9, "micro-batch 9 of query q does not follow 3")


def test_the_server_that_lost_micro_batches_is_named() -> None:
    servers = Servers("a", "b")
    for batch in range(3):
        servers.write(batch)
    copy = servers.has["b"]
    for batch in range(3, 7):
        servers.write(batch)
    servers.has = {**servers.has, "b": copy}
    servers.refused(7, "the server b had micro-batch 5 of this query, and now has 1 as the last")
    servers.has = {**servers.has, "b": Progress(NONE)}
    servers.refused(7, "the server b had micro-batch 5 of this query, and now has none")


def test_a_server_may_be_added_and_removed_while_the_query_goes_on() -> None:
    servers = Servers("a")
    for batch in range(3):
        servers.write(batch)
    servers.has = {**servers.has, "b": Progress(NONE)}
    for batch in range(3, 8):
        servers.write(batch)
    last = max(servers.has, key=lambda name: servers.has[name].last)
    servers.has = {name: one for name, one in servers.has.items() if name != last}  # the one with micro-batch 7
    servers.refused(9, "does not follow 6")
    servers.write(8)
    servers.write(9)
    servers.refused(11, "does not follow 9")


def test_a_gap_is_accepted_once_a_run() -> None:
    servers = Servers("a")
    for batch in range(3):
        servers.write(batch)
    with pytest.raises(RefusedError):
        servers.write(7, accept_gap=True)  # the run that wrote the last one has not ended
    servers.write(7, run="run-2", accept_gap=True)
    servers.write(8, run="run-2", accept_gap=True)
    with pytest.raises(RefusedError):
        servers.write(10, run="run-2", accept_gap=True)


def test_an_accepted_loss_of_one_server_is_not_asked_about_again() -> None:
    servers = Servers("a", "b")
    for batch in range(7):
        servers.write(batch)
    servers.has = {**servers.has, "b": Progress(NONE)}
    servers.refused(7, "server b")
    for batch in range(7, 11):
        servers.write(batch, run="run-2", accept_gap=True)
    servers.write(11, run="run-3")


def test_a_query_of_an_earlier_release_is_taken_once() -> None:
    servers = Servers("a")
    servers.has = {"a": Progress.parse(41, "")}
    servers.write(45)
    servers.refused(47, "does not follow 45")


@pytest.mark.parametrize("token", ["x", "[]", "{}", '{"run":"r","servers":{"a":"x"}}', '{"servers":{"a":1}}'])
def test_a_token_of_another_program_is_an_error(token: str) -> None:
    with pytest.raises(DataFormatError, match="the token of micro-batch 3 was not written by a sink"):
        Progress.parse(3, token)
