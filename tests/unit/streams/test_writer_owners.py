"""Tests of the owners of writer ids: an id belongs to the first key that uses it."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError, RefusedError, Retry
from aeron_spark.streams.journal_records import WriterOwned, WriterReleased, WriterState
from aeron_spark.streams.writers import MAX_WRITERS, MAX_WRITERS_OF_OWNER, WriterOwners
from aeron_spark.wire.stream_requests import StreamWriterId


def test_an_id_belongs_to_the_first_key_that_uses_it() -> None:
    owners = WriterOwners()
    record = owners.prepare("w", "alice", 5)
    assert record == WriterOwned("w", "alice", 5)
    owners.check("w", "mallory")  # a record that was not applied changes nothing
    owners.apply(record)
    assert owners.prepare("w", "alice", 6) is None
    for attempt in (owners.check, lambda writer, owner: owners.prepare(writer, owner, 7)):
        with pytest.raises(RefusedError, match="the writer id 'w' belongs to another key") as refused:
            attempt("w", "mallory")
        assert (refused.value.reason, refused.value.retry) == ("not-permitted", Retry.NEVER)


def test_owners_are_the_same_after_a_restart_from_their_records() -> None:
    owners = WriterOwners()
    for number in range(3):
        owners.apply(WriterOwned(f"w{number}", "alice", number))
    again = WriterOwners(owners.records())
    assert again.records() == owners.records()
    with pytest.raises(RefusedError):
        again.check("w1", "mallory")


def test_an_id_that_never_wrote_is_forgotten_after_a_time() -> None:
    owners = WriterOwners([WriterOwned("used", "a", 1), WriterOwned("old", "a", 1), WriterOwned("new", "a", 9)])
    unused = owners.unused({"used": None}, before_ns=5)
    assert unused == ["old"]
    owners.forget([*unused, "unknown"])
    assert owners.prepare("old", "b", 10) == WriterOwned("old", "b", 10)
    assert [one.writer for one in owners.records()] == ["used", "new"]


def test_a_released_id_belongs_to_the_next_key_that_uses_it() -> None:
    owners = WriterOwners([WriterOwned("w", "alice", 1)])
    assert owners.prepare_release("w", {}) == WriterReleased("w")
    owners.forget(["w"])
    assert owners.prepare_release("w", {"w": WriterState("run")}) is None
    with pytest.raises(OptionError, match=r"does not know the writer id 'v'\. Did you mean 'v1'\?"):
        owners.prepare_release("v", {"v1": WriterState("run")})
    assert owners.prepare("w", "bob", 2) == WriterOwned("w", "bob", 2)


def test_the_list_has_ids_with_a_run_and_ids_with_an_owner() -> None:
    owners = WriterOwners([WriterOwned("owned", "alice", 1), WriterOwned("both", "bob", 2)])
    writers = {"both": WriterState("run", last=7, time_ns=9), "free": WriterState("run", time_ns=5, single_use=True)}
    assert owners.known_writers(writers) == [
        StreamWriterId("both", 7, 9, "bob", False), StreamWriterId("free", -1, 5, "", True),
        StreamWriterId("owned", -1, 1, "alice", False),
    ]  # fmt: skip


def test_a_stream_has_a_limit_of_ids() -> None:
    owners = WriterOwners(WriterOwned(f"w{number}", f"key-{number % 3}", 1) for number in range(MAX_WRITERS))
    assert owners.prepare("w0", "key-0", 2) is None
    with pytest.raises(RefusedError, match=f"the stream has {MAX_WRITERS} writer ids") as refused:
        owners.prepare("another", "alice", 2)
    assert (refused.value.reason, refused.value.retry) == ("limit", Retry.NEVER)


def test_a_key_leaves_writer_ids_for_other_keys() -> None:
    owners = WriterOwners(WriterOwned(f"w{number}", "alice", 1) for number in range(MAX_WRITERS_OF_OWNER))
    with pytest.raises(RefusedError, match=f"your key owns {MAX_WRITERS_OF_OWNER} writer ids"):
        owners.prepare("another", "alice", 2)
    record = owners.prepare("another", "bob", 2)
    assert record is not None
    owners.apply(record)
    owners.forget(["w0"])
    assert owners.prepare("w0", "alice", 2) == WriterOwned("w0", "alice", 2)


def test_an_id_that_is_granted_by_name_belongs_to_its_first_key_and_both_may_use_it() -> None:
    owners = WriterOwners()
    record = owners.prepare("edge", "alice", 1, is_granted=True)
    assert record == WriterOwned("edge", "alice", 1)
    owners.apply(record)
    assert owners.prepare("edge", "granted", 2, is_granted=True) is None
    with pytest.raises(RefusedError, match="belongs to another key"):
        owners.prepare("edge", "bob", 2)
