"""A server's named streams on the command line: create, list, send from files, receive into files, delete."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from aeron_spark.waiting import wait_for
from tests.cli.conftest import CONNECTOR, BytesResult, Result, pipe, run
from tests.cli.test_server_cli import TIMEOUT_S, ServerProcess, running_server
from tests.ports import free_ports

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
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "aeron_spark", *arguments, "--server", self.address],
            env={**os.environ, "PYTHONPATH": str(CONNECTOR), **self.environ}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


@pytest.fixture(scope="module")
def on_server(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerCommands]:
    home = tmp_path_factory.mktemp("homes")
    address = f"127.0.0.1:{free_ports()[0]}"
    client = {"AERON_SPARK_CONFIG_HOME": str(home / "client"), "AERON_SPARK_AERON_DIR": str(shared)}
    with running_server(home / "server", shared, address, "--handshakes-per-second", "0") as server:
        server.wait("listening")
        yield ServerCommands(address, client)
        assert isinstance(server, ServerProcess)
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


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_a_received_file_has_the_rows_of_the_sent_files(on_server: ServerCommands, tmp_path: Path, form: str) -> None:
    stream = f"files-{form}"
    on_server.done("streams", "create", stream)
    given, copy = tmp_path / f"given.{form}", tmp_path / f"copy.{form}"
    write(ROWS, given)
    (sent,) = on_server.done("send", str(given), str(given), "--stream", stream)
    assert (sent["rows"], sent["transactions"]) == (6, 2)
    assert on_server("receive", "--stream", stream, "--output", str(copy)).code == 0
    assert read(copy) == ROWS.to_pylist() * 2
    if form == "parquet":
        (described,) = on_server.done("streams", "describe", stream)
        assert described["payload"] == "arrow"
        assert [column["name"] for column in described["schema"]] == ROWS.schema.names


def write(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            pyarrow.parquet.write_table(table, path)
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".arrow":
            with pa.ipc.new_file(str(path), table.schema) as file:
                file.write_table(table)
        case _:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))


def read(path: Path) -> list[Any]:
    match path.suffix:
        case ".parquet":
            return pyarrow.parquet.read_table(path).to_pylist()
        case ".csv":
            options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
            return pyarrow.csv.read_csv(path, convert_options=options).to_pylist()
        case ".arrow":
            with pa.ipc.open_file(str(path)) as file:
                return file.read_all().to_pylist()
        case _:
            return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_messages_and_commit_rows_makes_several_transactions(on_server: ServerCommands) -> None:
    on_server.done("streams", "create", "lines")
    lines = b"".join(b"line %d\n" % number for number in range(10)) + b"\xff\xfe\n"
    sent = on_server.piped(lines, "send", "--stream", "lines", "--commit-rows", "4", "--writer-id", "w", "--json")
    assert sent.code == 0, sent.err
    assert (sent.lines[0]["rows"], sent.lines[0]["transactions"]) == (11, 3)
    received = on_server.piped(b"", "receive", "--stream", "lines")
    assert received.out == lines
    few = on_server.piped(b"", "receive", "--stream", "lines", "-n", "2", "--json")
    assert few.lines == [{"value": "line 0"}, {"value": "line 1"}]
    later = on_server.piped(b"", "receive", "--stream", "lines", "--start", "-1h", "--metadata", "--json", "-n", "1")
    assert later.lines[0]["_aeron_writer"] == "w"


def test_follow_receives_new_rows_and_ends_at_a_signal(on_server: ServerCommands) -> None:
    on_server.done("streams", "create", "followed")
    with on_server.begin("receive", "--stream", "followed", "--follow", "--start", "earliest", "--json") as following:
        assert following.stdout is not None
        for text in (b"one", b"two"):
            assert on_server.piped(text, "send", "--stream", "followed").code == 0
            assert json.loads(following.stdout.readline()) == {"value": text.decode()}
        following.send_signal(signal.SIGINT)
        assert wait_for(lambda: following.poll() is not None, TIMEOUT_S, "the end of receive")
        assert following.returncode == 0, following.stderr.read() if following.stderr else ""
    early = on_server("receive", "--stream", "followed", "--follow", "-n", "1", "--timeout", "0.5")
    assert early.code == 1
    assert "received 0 of 1 rows" in early.err


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


def test_wrong_command_lines_end_with_2(on_server: ServerCommands, tmp_path: Path) -> None:
    on_server.done("streams", "create", "wrong")
    given = tmp_path / "given.csv"
    given.write_text("a,b\n1,2\n")
    for wrong, text in (
        (["send", str(given), "--stream", "wrong", "--ack", "archive"], "direct route"),
        (["send", str(given), "--commit-rows", "3"], "--stream"),
        (["send", str(tmp_path / "none.csv"), "--stream", "wrong"], "cannot be read"),
        (["receive", "--stream", "wrong", "--payload", "raw"], "--payload"),
        (["receive", "--stream", "wrong", "--start", "latest"], "--follow"),
        (
            ["receive", "--stream", "wrong", "--start", "yesterday"],
            "expected earliest, latest, a position or an ISO time",
        ),
        (["receive", "--stream", "wrong", "--timeout", "3"], "--follow"),
        (["receive", "--stream", "wrong", "--channel", "aeron:ipc"], "exclude each other"),
        (["streams", "create", "x", "--retention", "64m"], "may be a size or a time"),
        (["streams", "create", "no/name"], "invalid stream name"),
        (["streams", "describe"], "name of the server's stream is missing"),
        (["streams", "purge", "wrong", "--keep", "x", "--yes"], "--keep"),
        (["streams", "purge", "wrong", "--keep", "1m", "--wait", "soon", "--yes"], "--wait"),
        (["streams", "create", "wrong2", "--segment", "3MiB"], "Choose a power of two from 1MiB to 1GiB"),
        (["streams", "create", "wrong2", "--segment", "64KiB"], "--segment"),
        (["streams", "creat", "x"], "Did you mean 'create'?"),
    ):
        refused = on_server(*wrong)
        assert refused.code == 2, (wrong, refused.out, refused.err)
        assert text in refused.err
    missing = on_server("send", str(given), "--stream", "nowhere")
    assert (missing.code, "unknown stream 'nowhere'" in missing.err) == (1, True)
    alone = run("send", str(given), "--stream", "wrong", **on_server.environ)
    assert alone.code == 2
    assert "--server" in alone.err
