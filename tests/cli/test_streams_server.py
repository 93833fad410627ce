"""A server's named streams on the command line, and rows that 'send' and 'receive' carry on both routes."""

from __future__ import annotations

import datetime
import itertools
import json
import random
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.cli.conftest import BytesResult, Result, begin, pipe, run
from tests.cli.running_servers import TIMEOUT_S, LoggedServer, home_of, running_server
from tests.ports import free_ports
from tests.waiting import poll_until

ROWS = pa.table({"city": ["Oslo", "Bergen", None], "n": [1, 2, 3], "x": [0.5, 1.5, -2.0]})


class ServerCommands:
    """Runs commands with --server and the keys of one client."""

    def __init__(self, address: str, environ: dict[str, str]) -> None:
        self.address = address
        self.environ = environ

    def __call__(self, *arguments: str) -> Result:
        return run(*arguments, "--server", self.address, **self.environ)

    def done(self, *arguments: str) -> list[Any]:
        """Run a command with --json, which has to succeed. Return its JSON objects."""
        result = self(*arguments, "--json")
        assert result.code == 0, result.err
        return result.lines

    def piped(self, given: bytes, *arguments: str) -> BytesResult:
        return pipe(given, *arguments, "--server", self.address, **self.environ)

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        return begin(*arguments, "--server", self.address, **self.environ)


@pytest.fixture(scope="module")
def on_server(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerCommands]:
    home = tmp_path_factory.mktemp("homes")
    address = f"127.0.0.1:{free_ports()[0]}"
    client = home_of(home / "client", shared)
    with running_server(home / "server", shared, address, "--handshakes-per-second", "0") as server:
        server.wait("listening")
        yield ServerCommands(address, client)
        assert isinstance(server, LoggedServer)
        assert server.stop() == 0


def test_streams_are_created_listed_described_and_deleted(on_server: ServerCommands) -> None:
    (made,) = on_server.done("streams", "create", "made", "--partitions", "3", "--retention", "1g,7d")
    assert (made["name"], made["partitions"], made["retention_bytes"]) == ("made", 3, 1 << 30)
    assert made in on_server.done("streams", "list")
    shown = on_server("streams", "list")
    assert "made" in shown.out
    assert "1.0 GiB of each partition and 7 d" in shown.out
    (described,) = on_server.done("streams", "describe", "made")
    assert [part["start"] for part in described["details"]] == [0, 0, 0]
    assert "retention" in on_server("streams", "describe", "made").out
    wrong = on_server("streams", "describe", "mdae")
    assert wrong.code == 1
    assert "Did you mean 'made'?" in wrong.err
    again = on_server("streams", "create", "made")
    assert again.code == 1
    unsure = on_server("streams", "delete", "made")
    assert unsure.code == 2
    assert "--yes" in unsure.err
    assert on_server.done("streams", "delete", "made", "--yes") == [{"name": "made", "bytes": 0, "deleted": True}]
    assert "made" not in [one["name"] for one in on_server.done("streams", "list")]


def test_commit_rows_makes_several_transactions(on_server: ServerCommands) -> None:
    on_server.done("streams", "create", "lines")
    lines = b"".join(b"line %d\n" % number for number in range(11))
    sent = on_server.piped(lines, "send", "--stream", "lines", "--commit-rows", "4", "--writer-id", "w", "--json")
    assert sent.code == 0, sent.err
    assert (sent.lines[0]["rows"], sent.lines[0]["transactions"]) == (11, 3)
    assert on_server.piped(b"", "receive", "--stream", "lines").out == lines
    later = on_server.piped(b"", "receive", "--stream", "lines", "--start", "-1h", "--metadata", "--json", "-n", "1")
    assert later.lines[0]["_aeron_writer"] == "w"


@dataclass(frozen=True)
class Route:
    """A stream of one route, and the commands for it. ``writer`` is how the name of a writer without a name begins."""

    flags: list[str]
    describing: list[str]
    writer: str

    def send(self, given: bytes, *more: str) -> BytesResult:
        done = pipe(given, "send", *self.flags, *(["--record", "--ack", "archive"] if self.writer else []), *more)
        assert done.code == 0, done.err
        return done

    def receive(self, *more: str) -> BytesResult:
        return pipe(b"", "receive", *self.flags, *more)

    def follow(self, *more: str) -> subprocess.Popen[bytes]:
        return begin("receive", "--follow", "--start", "earliest", *self.flags, *more)


ROUTES = itertools.count(1)


@pytest.fixture(params=["direct", "server"])
def route(request: pytest.FixtureRequest, on_server: ServerCommands, monkeypatch: pytest.MonkeyPatch) -> Route:
    """An empty stream of each route."""
    number = next(ROUTES)
    for name, value in on_server.environ.items():
        monkeypatch.setenv(name, value)
    if request.param == "direct":
        flags = ["--channel", "aeron:ipc", "--stream-id", str(4000 + number)]
        return Route(flags, flags, "send-")
    stream, server = f"rows-{number}", ["--server", on_server.address]
    on_server.done("streams", "create", stream)
    return Route([*server, "--stream", stream], [stream, *server], "")


def test_lines_are_received_byte_for_byte(route: Route, rng: random.Random) -> None:
    lines = [b"one", b"", "zwölf".encode(), bytes(range(128, 256)), b"\r", rng.randbytes(500).replace(b"\n", b".")]
    text = b"\n".join(lines)
    assert route.send(text, "--json").lines[0]["rows"] == 6
    assert route.receive().out == text + b"\n"
    assert route.receive("--count", "2").out == b"one\n\n"
    assert [one["value"] for one in route.receive("--count", "2", "--json").lines] == ["one", ""]


def test_rows_of_json_are_received_unchanged(route: Route) -> None:
    rows = [
        {"id": 1, "name": "ä", "list": [1, 2], "deep": {"x": 0.5}, "flag": True, "gone": None},
        {"id": 2**53 + 1, "name": None, "list": [], "deep": {"x": -1.0}, "flag": False, "gone": None},
    ]
    route.send("".join(json.dumps(row) + "\n" for row in rows).encode(), "--format", "json")
    assert route.receive().lines == rows
    with_metadata = route.receive("--metadata").lines
    assert [row["_aeron_row"] for row in with_metadata] == [0, 1]
    assert with_metadata[0]["_aeron_writer"].startswith(route.writer)
    assert with_metadata[0]["_aeron_timestamp"].endswith("Z")


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_a_file_of_rows_is_received_equal(form: str, route: Route, tmp_path: Path, rng: random.Random) -> None:
    table = many_rows(rng) if form in ("parquet", "arrow") else ROWS
    given, got = tmp_path / f"given.{form}", tmp_path / f"got.{form}"
    write(table, given)
    (sent,) = route.send(b"", str(given), str(given), "--json").lines
    assert (sent["rows"], sent.get("transactions", 2)) == (2 * len(table), 2)
    assert route.receive("--output", str(got)).code == 0
    assert read(got).equals(pa.concat_tables([table, table]))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([given.name, got.name])
    (described,) = pipe(b"", "streams", "describe", *route.describing, "--json").lines
    assert described["payload"] == "arrow"
    assert [column["name"] for column in described["schema"]] == table.schema.names


def many_rows(rng: random.Random) -> pa.Table:
    count = 5_000
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": pa.array([None if i % 7 == 0 else f"name {i}" for i in range(count)]),
            "at": pa.array([datetime.datetime(2026, 3, 1) + datetime.timedelta(microseconds=i) for i in range(count)]),
            "price": pa.array([rng.random() for _ in range(count)], pa.float64()),
            "bytes": pa.array([rng.randbytes(i % 40) for i in range(count)], pa.binary()),
            "tags": pa.array([["a", None][: i % 3] for i in range(count)], pa.list_(pa.string())),
        }
    )


def write(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            pyarrow.parquet.write_table(table, path)
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".arrow":
            pyarrow.feather.write_feather(table, str(path))
        case _:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))


def read(path: Path) -> pa.Table:
    match path.suffix:
        case ".parquet":
            return pyarrow.parquet.read_table(path)
        case ".csv":
            options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
            return pyarrow.csv.read_csv(path, convert_options=options)
        case ".arrow":
            return pyarrow.feather.read_table(str(path))
        case _:
            return pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    return process.stdout.readline()


def test_follow_receives_new_messages_and_ends_at_its_count(route: Route) -> None:
    route.send(b"old\n")
    with route.follow("--count", "3") as follower:
        assert read_line(follower) == b"old\n"
        route.send(b"new 1\nnew 2\nnew 3\n")
        out, err = follower.communicate(timeout=TIMEOUT_S)
    assert (follower.returncode, out, err) == (0, b"new 1\nnew 2\n", b"")


def test_follow_fails_if_its_count_is_not_reached(route: Route) -> None:
    route.send(b"one\n")
    follow = ("-f", "--start", "earliest", "--timeout", "0.5")
    done = route.receive(*follow, "-n", "2")
    assert (done.code, done.out) == (1, b"one\n")
    assert "received 1 of 2 rows, then no further row within 0.5 s. Check that a program publishes" in done.err
    from_now = route.receive("-f", "--timeout", "0.5", "-n", "1")
    assert (from_now.code, from_now.out) == (1, b"")
    assert "received 0 of 1 rows" in from_now.err
    without = route.receive(*follow)
    assert (without.code, without.out, without.err) == (0, b"one\n", "")


@pytest.mark.parametrize("output", [None, "got.parquet"])
def test_sigint_ends_follow_after_writing_all_received_rows(output: str | None, route: Route, tmp_path: Path) -> None:
    # both rows of the file in one read: a second one would not change the size of the temporary file
    route.send(b"a\n" if output is None else b"a\nb\n")
    with route.follow(*(["--json"] if output is None else ["--output", str(tmp_path / output)])) as follower:
        if output is None:
            assert json.loads(read_line(follower))["value"] == "a"
            route.send(b"b\n")
            assert json.loads(read_line(follower))["value"] == "b"
        else:
            # the temporary file, when it has a row
            poll_until(lambda: any(path.stat().st_size for path in tmp_path.iterdir()), TIMEOUT_S, "a row in the file")
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=TIMEOUT_S)
    assert (follower.returncode, out, err) == (0, b"", b"")
    if output is not None:
        assert pyarrow.parquet.read_table(tmp_path / output).column("value").to_pylist() == [b"a", b"b"]
        assert [path.name for path in tmp_path.iterdir()] == [output]


def test_the_segments_of_a_stream_are_chosen_by_an_option_or_its_retention(on_server: ServerCommands) -> None:
    for name, more, chosen in (("m", ["--retention", "64MiB"], 8), ("n", ["--segment", "32MiB"], 32), ("o", [], 16)):
        (made,) = on_server.done("streams", "create", name, *more)
        assert (made["segment_bytes"], made["file_bytes"]) == (chosen << 20, chosen << 20)
    assert "segment: 2.0 MiB, schema" in on_server("streams", "create", "p", "--segment", "2MiB").out
    assert "segment\t32.0 MiB\n" in on_server("streams", "describe", "n").out


def test_a_purge_says_what_it_freed_and_why_the_rest_stays(on_server: ServerCommands) -> None:
    on_server.done("streams", "create", "purged")
    empty = on_server("streams", "purge", "purged", "--before", "-1h", "--yes")
    assert (empty.code, empty.out) == (0, "nothing to purge: no partition has rows\n")
    rows, ends = b"x" * 1000 + b"\n", [0]
    for _ in range(2):
        assert on_server.piped(rows * 20_000, "send", "--stream", "purged", "--payload", "raw").code == 0
        (described,) = on_server.done("streams", "describe", "purged")
        ends.append(described["details"][0]["end"])
    for asked, why in (
        (["--before", "-1h"], "no transaction was committed before -1h"),
        (["--before", str(ends[1] - 32)], f"no transaction ends before position {ends[1] - 32:,}"),
        (["--keep", "1GiB"], "no partition has a transaction before its last 1,073,741,824 bytes"),
    ):
        nothing = on_server("streams", "purge", "purged", *asked, "--yes")
        assert (nothing.code, nothing.out) == (0, f"nothing to purge: {why}\n")
    (cut,) = on_server.done("streams", "purge", "purged", "--keep", str(ends[2] - ends[1]), "--yes", "--wait")
    in_segment = ends[1] % (16 << 20)
    held = {"bytes": in_segment, "why": "segment", "holder": None, "reader": None, "until": None}
    assert cut == {
        "partition": 0, "start": 0, "new_start": ends[1], "bytes": ends[1], "freed": ends[1] - in_segment,
        "held": [held],
    }  # fmt: skip
    (rest,) = on_server.done("streams", "purge", "purged", "--before", str(ends[2]), "--yes", "--wait", "1min")
    assert (rest["start"], rest["new_start"], rest["held"]) == (ends[1], ends[2], [])
    lost = on_server("receive", "--stream", "purged", "--start", "0")
    assert lost.code == 1
    assert "was purged" in lost.err
