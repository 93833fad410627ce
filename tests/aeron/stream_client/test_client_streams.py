"""A Python program creates, lists, writes, reads and follows streams."""

from __future__ import annotations

import secrets
import time
import warnings
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

from aeron_spark.aeron.archive import archive_of
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError, DataFormatError, DataLossError, OptionError, RefusedError, UsageError
from aeron_spark.log.epochs import NoEpochWarning
from aeron_spark.server.server import Server
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.writer import Writer
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_requests import HeldBytes, PurgedPartition
from tests.aeron.stream_client.conftest import Connect
from tests.aeron.stream_client.following import FollowingReader

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def client(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def name(client: Client) -> str:
    made = f"s-{secrets.token_hex(4)}"
    client.create_stream(made, 2)
    return made


def numbers(first: int, last: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, last)), "text": [f"row {n}" for n in range(first, last)]})


def fail(out: Writer) -> None:
    out.write(numbers(5000, 6000))
    raise ZeroDivisionError


def read(reader: StreamReader) -> list[int]:
    return [n for batch in reader for n in batch.column("n").to_pylist()]


def read_values(reader: StreamReader) -> list[bytes]:
    return [value for batch in reader for value in batch.column("value").to_pylist()]


def test_streams_are_created_listed_and_deleted(client: Client) -> None:
    name = f"s-{secrets.token_hex(4)}"
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    made = client.create_stream(name, 3, retention="1g,7d")
    assert (made.name, made.content, made.schema, len(made.partitions)) == (name, "", None, 3)
    assert (made.retention_bytes, made.retention_seconds) == (1 << 30, 7 * 86_400)
    assert before < made.created < before + timedelta(seconds=TIMEOUT_S)
    with client.writer(name, partition=1) as out:
        out.write(numbers(0, 10))
    found = client.stream(name)
    assert found in client.streams()
    assert found.content == "arrow"
    assert found.schema == numbers(0, 1).schema
    assert [one.end > one.start for one in found.partitions] == [False, True, False]
    with pytest.raises(OptionError, match=f"(?s)unknown stream.*Did you mean '{name}'"):
        client.reader(name + "x")
    with pytest.raises(OptionError, match="already"):
        client.create_stream(name)
    client.delete_stream(name)
    assert name not in [one.name for one in client.streams()]


def test_a_block_is_a_transaction_and_an_exception_in_it_aborts(client: Client, name: str) -> None:
    with client.writer(name) as out:
        out.write(numbers(0, 1000))
        out.write(pa.Table.from_batches([numbers(1000, 1500), numbers(1500, 2000)]))
        assert read(client.reader(name)) == []
    assert read(client.reader(name)) == list(range(2000))
    with pytest.raises(ZeroDivisionError), client.writer(name) as out:
        fail(out)
    with client.writer(name) as out:
        assert out.last == -1
    assert read(client.reader(name)) == list(range(2000))
    with pytest.raises(UsageError, match="closed"):
        out.write(b"late")


def test_transactions_take_turns_over_the_partitions_and_each_stays_in_one(client: Client, name: str) -> None:
    with client.writer(name, writer_id="w") as out:
        for number in range(6):
            for part in range(3):
                out.write(numbers(100 * number + 10 * part, 100 * number + 10 * part + 10))
            out.commit()
            assert out.last == number
    halves = [read(client.reader(name, partitions=[at])) for at in (0, 1)]
    assert sorted(halves[0] + halves[1]) == [100 * number + n for number in range(6) for n in range(30)]
    for half in halves:
        assert len(half) == 90
        assert half == sorted(half)
        assert len({n // 100 for n in half}) == 3
    with client.writer(name) as out:
        out.write(numbers(700, 710), partition=1)
        out.write(numbers(710, 720), partition=0)
    assert read(client.reader(name, partitions=[1]))[-10:] == list(range(700, 710))
    for wrong in (2, -1):
        with pytest.raises(OptionError, match="no partition"), client.writer(name) as out:
            out.write(numbers(0, 1), partition=wrong)


def test_a_writer_id_continues_its_numbers_and_fences_the_earlier_run(client: Client, name: str) -> None:
    first = client.writer(name, writer_id="edge")
    first.write(numbers(0, 5))
    first.commit()
    assert first.last == 0
    first.write(numbers(500, 505))
    with client.writer(name, writer_id="edge") as second:
        assert second.last == 0
        with pytest.raises(RefusedError, match="fenced"):
            first.commit()
        second.write(numbers(5, 10))
    assert second.last == 1
    with pytest.raises(RefusedError, match="fenced"):
        first.write(numbers(510, 515), partition=1)
    first.close()
    assert sorted(read(client.reader(name))) == list(range(10))


def test_a_large_transaction_is_recorded_while_it_is_written(client: Client, name: str, server: Server) -> None:
    stream = server.streams.get(name)
    recording = stream.states()[0].shape.recording_id
    archive = archive_of(stream._parts.address)
    row = b"x" * 100_000
    with client.writer(name, partition=0, payload="framed") as out:
        for _ in range(200):
            out.write([row])
        wait_for(lambda: archive.position(recording) > 10_000_000, TIMEOUT_S, "the archive to record the rows")
        assert read_values(client.reader(name)) == []
        assert [state.end for state in stream.states()] == [0, 0]
    assert read_values(client.reader(name)) == [row] * 200
    assert archive.position(recording) == stream.states()[0].end


@pytest.mark.parametrize("payload", ["auto", "raw", "framed"])
def test_bytes_are_values(client: Client, name: str, payload: str) -> None:
    values = [b"", b"one", bytes(range(256)), b"x" * 100_000]
    with client.writer(name, payload=payload, partition=0) as out:
        out.write(b"first")
        out.write(values)
        out.write((bytearray(b"a"), memoryview(b"b")))  # accepted like bytes
    reader = client.reader(name)
    found = pa.Table.from_batches(list(reader), reader.schema)
    assert found.column("value").to_pylist() == [b"first", *values, b"a", b"b"]
    assert reader.payload == ("framed" if payload == "auto" else payload)
    assert ("position" in found.schema.names) == (payload == "raw")
    # further bytes are written with the payload of the stream
    with client.writer(name, partition=0) as out:
        out.write(b"more")
    assert read_values(client.reader(name))[-1] == b"more"
    with pytest.raises(DataFormatError, match="the stream has"), client.writer(name) as out:
        out.write(numbers(0, 1))


def test_values_of_any_size_are_written_and_other_data_is_refused(client: Client, name: str) -> None:
    large = bytes(5 << 20)
    with client.writer(name, partition=0) as out:
        out.write([large, b"small", large])
    assert read_values(client.reader(name)) == [
        large, b"small", large,
    ]  # fmt: skip
    wrong: list[object] = ["text", [b"a", None], [b"a", "text"], 7]
    with client.writer(name, partition=0) as out:
        for one in wrong:
            with pytest.raises(DataFormatError):
                out.write(one)
        out.write(b"other rows")
    last = list(client.reader(name))
    assert last[-1].column("value").to_pylist()[-1] == b"other rows"
    raw = f"s-{secrets.token_hex(4)}"
    short = client.create_stream(raw, segment_bytes=1 << 20)
    assert (short.segment_bytes, short.file_bytes) == (1 << 20, 16 << 20)  # the node of the test has longer ones
    with client.writer(raw, payload="raw") as out:
        out.write(b"kept")
        with pytest.raises(DataFormatError, match="the longest message"):
            out.write(bytes((1 << 17) + 1))  # more than an eighth of a segment
    assert [batch.column("value").to_pylist() for batch in client.reader(raw)] == [[b"kept"]]


def test_a_following_reader_gets_added_columns(client: Client, name: str) -> None:
    old = pa.record_batch({"n": [1, 2]})
    new = pa.record_batch({"n": [3], "city": ["Oslo"]})
    with client.writer(name, partition=0) as out:
        out.write(old)
        out.write(new)
        out.write(old)
    found = pa.Table.from_batches(list(client.reader(name)))
    assert found.to_pylist() == [{"n": n, "city": "Oslo" if n == 3 else None} for n in (1, 2, 3, 1, 2)]
    only = client.reader(name, schema=pa.schema({"n": pa.int64()}))
    assert pa.Table.from_batches(list(only)).column("n").to_pylist() == [1, 2, 3, 1, 2]
    following = client.reader(name, follow=True)
    rows = iter(following)
    for _ in range(3):
        assert next(rows).schema.names == ["n", "city"]
    with client.writer(name, partition=0, evolve_schema=True) as out:
        out.write(pa.record_batch({"n": [4], "zip": ["0150"]}))
    assert next(rows).to_pylist() == [{"n": 4, "city": None, "zip": "0150"}]
    following.stop()
    assert list(rows) == []  # which ends the reader's lease
    with pytest.raises(DataFormatError, match="int64"), client.writer(name) as out:
        out.write(pa.record_batch({"n": ["text"]}))


def test_a_reader_starts_and_ends_at_the_given_positions(client: Client, name: str) -> None:
    moments = []
    for number in range(3):
        moments.append(datetime.now(timezone.utc))
        time.sleep(0.02)
        with client.writer(name, partition=0) as out:
            out.write(numbers(10 * number, 10 * number + 10))
    assert read(client.reader(name, start=moments[1])) == list(range(10, 30))
    assert read(client.reader(name, start=moments[1].isoformat(), end=moments[2])) == list(range(10, 20))
    assert read(client.reader(name, start="-1h")) == list(range(30))
    assert read(client.reader(name, start="latest")) == []
    first = client.reader(name)
    rows = iter(first)
    assert next(rows).column("n").to_pylist() == list(range(10))
    kept = first.positions.to_json()
    assert read(client.reader(name, start=kept)) == list(range(10, 30))
    assert read(client.reader(name, end=kept)) == list(range(10))
    assert read(first) == list(range(10, 30))  # the same reader continues as well
    end = client.stream(name).partitions[0].end
    for wrong, error in (
        ("yesterday", OptionError), ({7: 0}, OptionError), ({0: end + 32}, OptionError), ({0: 32}, OptionError),
        ({0: -32}, OptionError), ({"a": 0}, OptionError), ({0: "x"}, OptionError), (5, OptionError),
    ):  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEpochWarning)  # positions without epochs get it first
            with pytest.raises(error):
                client.reader(name, start=wrong)
    with pytest.raises(OptionError, match="no partition 9"):
        client.reader(name, partitions=[9])


def test_positions_kept_after_each_batch_give_every_row_once(client: Client, name: str) -> None:
    with client.writer(name) as out:
        for number in range(40):
            out.write([b"%d" % number * (number * 400 % 9000)] * 7)
            if number % 4 == 3:
                out.commit()
    whole = [value for batch in client.reader(name, partitions=[0]) for value in batch.column("value").to_pylist()]
    positions, found = None, []
    while True:
        reader = client.reader(name, partitions=[0], start=positions or "earliest")
        batch = next(iter(reader), None)
        if batch is None:
            break
        found += batch.column("value").to_pylist()
        positions = reader.positions
    assert found == whole


@pytest.mark.parametrize("rows", [3, 40], ids=["shorter than before", "longer than before"])
def test_positions_are_refused_for_another_stream_and_for_a_recreated_one(client: Client, name: str, rows: int) -> None:
    """Regression: the reader delivered rows of the other stream, without an error."""
    with client.writer(name, writer_id="w", partition=0) as out:
        out.write(numbers(0, 10))
    first = client.reader(name)
    assert read(first) == list(range(10))
    kept = first.positions.to_json()
    other = f"{name}-other"
    client.create_stream(other, 2)
    client.delete_stream(name)
    client.create_stream(name, 2)
    for stream in (name, other):
        with client.writer(stream, partition=0) as out:
            out.write(numbers(100, 100 + rows))
        with pytest.raises(
            DataLossError, match=rf"positions of partitions 0, 1 do not belong to stream '{stream}'"
        ) as caught:
            client.reader(stream, start=kept)
        assert caught.value.reason == "replaced"
        assert read(client.reader(stream, start=caught.value.positions)) == list(range(100, 100 + rows))
    client.delete_stream(other)


def test_a_following_reader_gets_later_commits(client: Client, name: str, connect: Connect) -> None:
    other = connect()
    following = FollowingReader(other, name, start="latest")
    with client.writer(name) as out:
        for number in range(20):
            out.write(numbers(10 * number, 10 * number + 10))
            out.commit()
    following.await_rows(200)
    following.stop()
    other.close()
    assert sorted(following.numbers) == list(range(200))
    began = time.monotonic()
    assert read(client.reader(name, start="latest", follow=True, timeout=0.3)) == []
    assert 0.3 <= time.monotonic() - began < TIMEOUT_S


def test_a_following_reader_reads_on_in_the_new_recordings_of_its_partitions(
    client: Client, name: str, connect: Connect, server: Server
) -> None:
    stream = server.streams.get(name)
    other = connect()
    following = FollowingReader(other, name)
    with client.writer(name) as out:
        for round_number in range(4):
            first = 10 * round_number
            out.write(numbers(first, first + 10))
            out.commit()
            following.await_rows(first + 10)
            _move_to_new_recordings(stream)
    following.stop()
    other.close()
    assert sorted(following.numbers) == list(range(40))


def _move_to_new_recordings(stream: Stream) -> None:
    """Purge all rows, also those under leases, and check that each partition with rows continues in a new recording."""
    for reader in [lease.reader for lease in stream.live_leases()]:
        stream.release_lease(reader)
    before = stream.states()
    stream.purge(before_position=1 << 40)
    for old, new in zip(before, stream.states(), strict=True):
        assert (new.shape.recording_id != old.shape.recording_id) == (old.recording.start < old.end)
        assert new.start == new.end == new.recording.start == old.end


def test_a_reader_holds_a_lease_while_it_reads(client: Client, name: str, server: Server) -> None:
    with client.writer(name) as out:
        out.write(numbers(0, 10))
    stream = server.streams.get(name)
    rows = iter(client.reader(name))
    next(rows)
    assert len(stream.space.leases) == 1
    assert list(rows) == []
    assert len(stream.space.leases) == 0


def test_a_purge_reports_what_is_freed_now_and_later(client: Client, name: str) -> None:
    begins = []
    for _ in range(4):
        begins.append(client.stream(name).partitions[0].end)
        with client.writer(name, partition=0, payload="raw") as out:
            out.write([bytes(1 << 20)] * 10)
    purged, other = client.purge_stream(name, begins[3] + 64)
    start, segment = begins[3], 16 << 20
    assert purged == PurgedPartition(0, 0, start, start - start % segment, (HeldBytes(start % segment, "segment"),))
    assert (other, other.has_changed) == (PurgedPartition(1, 0, 0, 0), False)
    assert (purged.unreadable_bytes, purged.held[0].sentence) == (start, "segment in use")
    assert [one.start for one in client.stream(name).partitions] == [start, 0]
    (again,) = client.purge_stream(name, "-1h", partition=0, wait=1.0)  # a segment in use needs no wait
    assert (again.start, again.freed_bytes, again.held) == (start, 0, purged.held)
    assert sum(batch.num_rows for batch in client.reader(name)) == 10
    with pytest.raises(DataLossError, match="was purged"):
        client.reader(name, start={0: 0})


def test_ambiguous_retentions_are_refused(client: Client) -> None:
    for wrong in ("64m", "100", "10x", "1g,2g", "-7d", 0, timedelta(0)):
        with pytest.raises(OptionError, match="retention"):
            client.create_stream("never", retention=wrong)
    assert "never" not in [one.name for one in client.streams()]


def test_a_closed_client_refuses_stream_calls(connect: Connect, name: str) -> None:
    client = connect()
    out = client.writer(name)
    reader = client.reader(name, follow=True)
    client.close()
    with pytest.raises(AeronSparkError):
        out.write(numbers(0, 1))
    with pytest.raises(AeronSparkError):
        next(iter(reader))
    out.close()
