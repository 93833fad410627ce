"""A Python program alters, renames, ends and reopens streams; its readers and writers continue with the new name."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from aeron_spark.client.client import Client
from aeron_spark.errors import DataFormatError, OptionError, RefusedError
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_requests import AlterStream, CreateStream, DescribeStream
from tests.aeron.stream_client.conftest import Connect
from tests.aeron.stream_client.following import FollowingReader

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def client(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def name(client: Client) -> str:
    made = f"s-{secrets.token_hex(4)}"
    client.create_stream(made)
    return made


def write(client: Client, name: str, *numbers: int, writer_id: str | None = None) -> None:
    with client.writer(name, writer_id=writer_id) as out:
        out.write(pa.record_batch({"n": list(numbers)}))


def read(reader: StreamReader) -> list[int]:
    return [n for batch in reader for n in batch.column("n").to_pylist()]


def test_a_following_reader_ends_after_the_last_row_of_an_ended_stream(client: Client, name: str) -> None:
    write(client, name, 1)
    following = FollowingReader(client, name)
    following.await_rows(1)
    write(client, name, 2, 3)
    ended = client.end_stream(name)
    assert ended.state == "ended"
    assert ended.ended is not None
    following.await_end()
    assert (following.numbers, following.error) == ([1, 2, 3], None)
    assert read(client.reader(name, follow=True)) == [1, 2, 3]  # ends at once
    assert client.reopen_stream(name).state == "ok"
    write(client, name, 4)
    assert read(client.reader(name, start=following.reader.positions)) == [4]


def test_writers_of_an_ended_stream_are_refused_and_continue_after_it_is_reopened(client: Client, name: str) -> None:
    with client.writer(name, writer_id="w") as out:
        out.write(pa.record_batch({"n": [1]}))
        out.commit()
        out.write(pa.record_batch({"n": [2]}))
        client.end_stream(name)
        with pytest.raises(RefusedError, match="was ended at") as error:
            out.commit()
        assert error.value.reason == "ended"
        with pytest.raises(RefusedError, match="was ended at"):
            client.writer(name, writer_id="v")
        client.reopen_stream(name)
        assert out.commit() == 1
    assert read(client.reader(name)) == [1, 2]


def test_readers_and_writers_continue_under_the_new_name(client: Client, name: str) -> None:
    write(client, name, 1, writer_id="w")
    reader = client.reader(name)
    assert read(reader) == [1]
    new = f"{name}-new"
    renamed = client.rename_stream(name, new)
    assert (renamed.name, renamed.former_names) == (new, (name,))
    for use in (lambda: write(client, name, 2), lambda: client.reader(name), lambda: client.stream(name)):
        with pytest.raises(OptionError, match=f"stream '{name}' was renamed to '{new}'"):
            use()
    with client.writer(new, writer_id="w") as out:
        assert out.last == 0
        out.write(pa.record_batch({"n": [2]}))
        assert out.commit() == 1
    assert read(client.reader(new, start=reader.positions.to_json())) == [2]


def test_a_buffer_folder_belongs_to_the_renamed_stream(client: Client, name: str, tmp_path: Path) -> None:
    with client.writer(name, buffer=tmp_path / "buffer") as out:
        out.write(pa.record_batch({"n": [1]}))
        out.commit()
        wait_for(lambda: out.unsent == 0, TIMEOUT_S, "the first transaction to be sent")
    new = f"{name}-new"
    client.rename_stream(name, new)
    with pytest.raises(OptionError, match="was renamed to"):
        client.writer(name, buffer=tmp_path / "buffer")
    client.create_stream("other")
    with pytest.raises(OptionError, match=f"transactions of stream '{name}', not 'other'"):
        client.writer("other", buffer=tmp_path / "buffer")
    for number in (2, 3):  # the second time the folder has the new name
        with client.writer(new, buffer=tmp_path / "buffer") as out:
            out.write(pa.record_batch({"n": [number]}))
            assert out.commit() == number - 1
            wait_for(lambda: out.unsent == 0, TIMEOUT_S, "the transaction to be sent")
    assert read(client.reader(new)) == [1, 2, 3]


def test_an_alteration_has_the_properties_before_and_after(client: Client, name: str) -> None:
    write(client, name, *range(1000))
    (part,) = client.stream(name).partitions
    write(client, name, *range(1000))
    preview = client.alter_stream(name, retention="1KiB", schema_policy="additive", dry_run=True)
    assert (preview.before.retention_bytes, preview.after.retention_bytes) == (0, 1024)
    assert (preview.before.schema_policy, preview.after.schema_policy) == ("strict", "additive")
    assert preview.unreadable_bytes == (part.end,)  # the last transaction stays, though it is larger
    assert client.stream(name).retention_bytes == 0
    changed = client.alter_stream(name, retention="7d")
    assert (changed.after.retention_bytes, changed.after.retention_seconds) == (0, 604_800.0)
    assert changed.unreadable_bytes == (0,)
    assert client.alter_stream(name, retention="none").after.retention_seconds == 0
    with pytest.raises(OptionError, match="the schema policy 'loose'"):
        client.alter_stream(name, schema_policy="loose")


def test_a_column_is_added_by_a_writer_that_may_evolve_the_schema(client: Client, name: str) -> None:
    write(client, name, 1)
    wide = pa.record_batch({"n": [2], "city": ["Oslo"]})
    with pytest.raises(RefusedError, match="the data adds the columns 'city'") as error, client.writer(name) as out:
        out.write(wide)
    assert error.value.reason == "schema"
    with client.writer(name, evolve_schema=True) as out:
        out.write(wide)
    found = pa.Table.from_batches(list(client.reader(name))).to_pylist()
    assert found == [{"n": 1, "city": None}, {"n": 2, "city": "Oslo"}]


def test_a_stream_has_the_schema_that_its_creation_gives(client: Client) -> None:
    name = f"s-{secrets.token_hex(4)}"
    made = client.create_stream(name, schema=pa.schema({"n": pa.int64()}), schema_policy="additive")
    assert (made.content, made.schema, made.schema_policy) == ("arrow", pa.schema({"n": pa.int64()}), "additive")
    assert client.reader(name).schema == pa.schema({"n": pa.int64()})
    write(client, name, 1)
    assert read(client.reader(name)) == [1]


@pytest.mark.parametrize("value", [float("nan"), -1, True, False, 0, "64m", "-7d", "nan"])
def test_a_retention_that_is_no_size_or_time_is_refused(client: Client, value: object) -> None:
    with pytest.raises(OptionError, match="retention"):
        client.create_stream("never", retention=value)
    assert "never" not in [one.name for one in client.streams()]


def test_the_server_refuses_retentions_that_another_client_might_send(session: StreamSession, name: str) -> None:
    for size, seconds in ((-1, 0.0), (0, float("nan")), (0, float("inf")), (0, -1.0)):
        for request in (CreateStream("never", 1, size, seconds, 0), AlterStream(name, size, seconds)):
            with pytest.raises(OptionError, match=r"cannot have a retention of|its retention_seconds is"):
                session.call(request)
    with pytest.raises(DataFormatError, match="these bytes are not a request"):
        session.call(CreateStream("never", 1, True, 0.0, 0))
    assert session.call(DescribeStream(name)).retention_seconds == 0


def test_a_number_of_partitions_that_is_no_number_is_refused(client: Client) -> None:
    for value in (True, 1.5, "2"):
        with pytest.raises(OptionError, match="partitions must be a whole number"):
            client.create_stream("never", value)
    with pytest.raises(OptionError, match="cannot have 0 partitions"):
        client.create_stream("never", 0)


def test_the_stages_of_a_transaction_are_listed_until_it_is_committed(client: Client, name: str) -> None:
    assert client.stream_stages(name) == []
    write(client, name, 1, writer_id="desk-7")
    with client.writer(name, writer_id="desk-7") as out:
        out.write(pa.record_batch({"n": np.arange(1_000_000)}))  # more than a commit request carries: it is staged
        (stage,) = client.stream_stages(name)
        assert (stage.writer, stage.transaction, stage.partition, stage.finished) == ("desk-7", 1, 0, False)
        assert stage.bytes > 1_000_000
        assert 3_500 < stage.expires_in <= 3_600
        assert stage.owner == client.stream_writers(name)[0].owner
        assert client.stream_usage(name).stages == 1
    assert client.stream_stages(name) == []


def test_writer_ids_and_leases_are_listed_and_released(client: Client, name: str) -> None:
    for writer in ("a", "b"):
        write(client, name, 1, writer_id=writer)
    assert [(one.id, one.last, one.single_use) for one in client.stream_writers(name)] == [
        ("a", 0, False), ("b", 0, False),
    ]  # fmt: skip
    with pytest.raises(OptionError, match="does not know the writer id 'c'"):
        client.release_writer(name, "c")
    rows = iter(client.reader(name, follow=True))
    next(rows)
    (lease,) = client.stream_leases(name)
    client.release_lease(name, lease.reader)
    assert client.stream_leases(name) == []
    rows.close()
