"""A micro-batch is written only if the query's servers have the one before it."""

from __future__ import annotations

import random
import uuid

import pytest

from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.spark.writer import NONE, Progress, check_follows, tag_of, token_of
from aeron_spark.wire.field_bounds import check_token

RUN = "run-1"


def check(batch: int, progress: dict[str, Progress], *, run: str = RUN, accept_gap: bool = False) -> None:
    check_follows(batch, run, progress, query="q", stream="stream 's' of a:1", accept_gap=accept_gap)


class Servers:
    """The progress of a query on each of its servers."""

    def __init__(self, *names: str) -> None:
        self.progress = dict.fromkeys(names, Progress(NONE))

    def write(self, batch: int, *, run: str = RUN, accept_gap: bool = False) -> None:
        names = list(self.progress)
        server = names[batch % len(names)]
        check(batch, self.progress, run=run, accept_gap=accept_gap)
        token = token_of(batch, server, run, self.progress)
        self.progress = {**self.progress, server: Progress.parse(batch, token)}

    def assert_refused(self, batch: int, message: str, **more: str) -> None:
        with pytest.raises(RefusedError, match=message) as caught:
            self.write(batch, **more)
        assert caught.value.reason == "diverged"
        assert "acceptGap=true" in caught.value.remedy
        assert not caught.value.retriable


def test_micro_batches_follow_each_other_on_one_server() -> None:
    servers = Servers("a")
    for batch in range(5):
        servers.write(batch)
    for batch in (6, 57):
        servers.assert_refused(
            batch, f"micro-batch {batch} of query q does not follow 4, the last of this query in stream 's'"
        )
    servers.write(5)


def test_the_first_micro_batch_of_a_query_is_number_0() -> None:
    Servers("a", "b").write(0)
    Servers("a", "b").assert_refused(
        1, "micro-batch 1 of query q follows micro-batch 0, but stream 's' of a:1 has none"
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_next_micro_batch_is_refused_after_a_restored_server_lost_one(count: int) -> None:
    """The next micro-batch is refused on every server, even if another server lost only the last one."""
    rng = random.Random(count)
    for _ in range(200):
        servers = Servers(*"abc"[:count])
        copies = [servers.progress]
        for batch in range(rng.randint(1, 9)):
            servers.write(batch)
            copies.append(servers.progress)
        next_batch = len(copies) - 1
        name, copy = rng.choice(list(servers.progress)), rng.choice(copies)
        lost = copy[name] != servers.progress[name]
        servers.progress = {**servers.progress, name: copy[name]}
        if lost:
            servers.assert_refused(next_batch, "micro-batch")
        else:
            servers.write(next_batch)


def test_the_next_micro_batch_is_refused_after_all_servers_were_restored_to_one_moment() -> None:
    servers = Servers("a", "b")
    for batch in range(4):
        servers.write(batch)
    copy = servers.progress
    for batch in range(4, 9):
        servers.write(batch)
    servers.progress = copy
    servers.assert_refused(9, "micro-batch 9 of query q does not follow 3")


def test_the_error_names_the_server_that_lost_micro_batches() -> None:
    servers = Servers("a", "b")
    for batch in range(3):
        servers.write(batch)
    copy = servers.progress["b"]
    for batch in range(3, 7):
        servers.write(batch)
    servers.progress = {**servers.progress, "b": copy}
    servers.assert_refused(7, "the server b had micro-batch 5 of this query, and now has 1 as the last")
    servers.progress = {**servers.progress, "b": Progress(NONE)}
    servers.assert_refused(7, "the server b had micro-batch 5 of this query, and now has none")


def test_servers_may_be_added_to_and_removed_from_a_query() -> None:
    servers = Servers("a")
    for batch in range(3):
        servers.write(batch)
    servers.progress = {**servers.progress, "b": Progress(NONE)}
    for batch in range(3, 8):
        servers.write(batch)
    last = max(servers.progress, key=lambda name: servers.progress[name].last)
    servers.progress = {
        name: one for name, one in servers.progress.items() if name != last
    }  # removes the server with micro-batch 7
    servers.assert_refused(9, "does not follow 6")
    servers.write(8)
    servers.write(9)
    servers.assert_refused(11, "does not follow 9")


def test_a_query_continues_on_a_server_under_another_name() -> None:
    servers = Servers("old", "b")
    for batch in range(4):
        servers.write(batch)
    servers.progress = {"new": servers.progress["old"], "b": servers.progress["b"]}
    for batch in range(4, 8):
        servers.write(batch)


def test_a_gap_is_accepted_once_per_run() -> None:
    servers = Servers("a")
    for batch in range(3):
        servers.write(batch)
    with pytest.raises(RefusedError):
        servers.write(7, accept_gap=True)  # this run wrote the last micro-batch
    servers.write(7, run="run-2", accept_gap=True)
    servers.write(8, run="run-2", accept_gap=True)
    with pytest.raises(RefusedError):
        servers.write(10, run="run-2", accept_gap=True)


def test_after_an_accepted_loss_the_next_run_writes_without_accept_gap() -> None:
    servers = Servers("a", "b")
    for batch in range(7):
        servers.write(batch)
    servers.progress = {**servers.progress, "b": Progress(NONE)}
    servers.assert_refused(7, "server b")
    for batch in range(7, 11):
        servers.write(batch, run="run-2", accept_gap=True)
    servers.write(11, run="run-3")


def test_a_query_of_an_earlier_release_may_have_one_gap() -> None:
    servers = Servers("a")
    servers.progress = {"a": Progress.parse(41, "")}
    servers.write(45)
    servers.assert_refused(47, "does not follow 45")


def test_the_token_of_a_query_with_a_hundred_servers_is_short_enough_for_each_server() -> None:
    servers = Servers(*(f"feeds-{number:03}.prices.example.com:20121" for number in range(100)))
    for batch in range(1_000_000, 1_000_150):
        server = list(servers.progress)[batch % 100]
        token = token_of(batch, server, str(uuid.uuid4()), servers.progress)
        check_token("q", batch, token)
        servers.progress = {**servers.progress, server: Progress.parse(batch, token)}
    last = servers.progress[server].servers
    assert last == {tag_of(name): one.last for name, one in servers.progress.items()}


@pytest.mark.parametrize(
    "token",
    [
        *("x", "[]", "{}", '{"run":"r","servers":{"a":1}}', '{"servers":"abcdef1"}', '{"run":"r","servers":"abcdefx"}'),
        *("[" * 100_000, '{"run":"\\ud800","servers":""}', '{"run":"r","servers":"abcdef-7"}'),
    ],
)
def test_an_invalid_token_is_an_error(token: str) -> None:
    with pytest.raises(DataFormatError, match="the token of micro-batch 3 was not written by a sink"):
        Progress.parse(3, token)
