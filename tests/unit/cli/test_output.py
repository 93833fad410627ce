"""How commands print: tables on a terminal, plain lines to a pipe, one JSON object a line with ``--json``."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from aeron_spark.aeron.counters import DriverInfo, StreamBacklog
from aeron_spark.cli import output
from aeron_spark.cli.driver_stats import Sample, _print_lines, rates_between
from aeron_spark.cli.main import cli
from aeron_spark.cli.outputs import CsvOutput, JsonOutput
from aeron_spark.errors import DataFormatError
from aeron_spark.keys import parse_server, read_identity
from aeron_spark.keys.clients_file import read_clients
from aeron_spark.protocol.keypair import public_text

BOX = "┏━┃┡╇│└─┘\x1b"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AERON_SPARK_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)
    return result.stdout


def test_keys_show_prints_a_line_for_authorized_keys_to_a_pipe(home: Path, tmp_path: Path) -> None:
    """Regression: ``keys show > clients`` made a file that the server refused."""
    made = run("keys", "new")
    pair = read_identity(home / "identity")
    assert made == run("keys", "show") == f"{public_text(pair.public)}\n"
    clients = tmp_path / "clients"
    clients.write_text(run("keys", "show"))
    assert [one.key for one in read_clients(clients).entries] == [pair.public]


def test_keys_show_prints_a_whole_key_to_a_narrow_terminal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("keys", "new")
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    lines = dict(line.split(maxsplit=1) for line in run("keys", "show").splitlines())
    assert lines.keys() == {"public", "fingerprint", "identity"}
    assert lines["public"] == public_text(read_identity(home / "identity").public)


def test_a_table_to_a_pipe_has_one_line_per_row_with_tabs() -> None:
    """No borders, no header, no separators in numbers, no folded cells, one line per row."""
    long = "x" * 300
    rows = [(1, 1_234_567, None, True, long), (2, 0, "a\tb\nc\x1b[31m\u202e", False, "")]
    printed = printed_of(rows)
    assert printed == f"1\t1234567\t-\tyes\t{long}\n2\t0\ta\\tb\\nc\\x1b[31m\\u202e\tno\t\n"
    assert printed_of(rows, kind="row").startswith("row\t1\t1234567\t")


def printed_of(rows: list[tuple[object, ...]], *arguments: str, kind: str | None = None) -> str:
    return table_of(("a#", "b#", "c", "d", "e"), rows, *arguments, kind=kind)


def table_of(columns: Sequence[str], rows: list[tuple[object, ...]], *arguments: str, **more: Any) -> str:
    """Return the output of a command with one table."""
    import click

    @click.command()
    @output.table_options
    def one(as_json: bool) -> None:
        output.print_table("title", columns, rows, empty="nothing", **more)

    return CliRunner().invoke(one, arguments, catch_exceptions=False).stdout


def test_a_header_line_names_the_columns_of_a_table_to_a_pipe() -> None:
    assert printed_of([(1, 2, "c", "d", "e")], "--header") == "a\tb\tc\td\te\n1\t2\tc\td\te\n"
    assert printed_of([(1, 2, "c", "d", "e")], "--header", kind="row").startswith("row\ta\tb\t")
    assert printed_of([], "--header") == ""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make standard output a terminal with so many columns."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    return lambda columns: monkeypatch.setenv("COLUMNS", str(columns))


COLUMNS = ("id#", "channel", "state", "began", "started by")
LONG = "aeron:udp?endpoint=224.20.30.39:24326|interface=192.0.2.7"
ROWS: list[tuple[object, ...]] = [
    (1, LONG, "active", "2026-11-23T18:30:00.000Z", "a query\nof many lines"),
    (1_234_567, "aeron:ipc", "\u4f60\u597d", None, "x" * 400),
]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 150, 600])
def test_a_row_has_one_line_on_a_terminal_of_any_width(terminal: Callable[[int], None], width: int) -> None:
    """Regression: a recording took 24 lines of 80 characters."""
    terminal(width)
    lines = table_of(COLUMNS, ROWS, optional=("started by", "began")).splitlines()
    assert len(lines) == 1 + 3 + len(ROWS) + 1  # the title, the header, the rows and the lower border
    assert max(map(cell_len, lines)) <= width
    assert "1,234,567" in lines[5]


def test_columns_are_left_out_by_importance_and_the_title_counts_them(terminal: Callable[[int], None]) -> None:
    """Long texts are cut off first, to the length of a time, and get the room that the other columns leave."""

    def shown(width: int) -> list[str]:
        terminal(width)
        return table_of(COLUMNS, ROWS, optional=("started by", "began")).splitlines()

    begin = "title (2 columns hidden, texts cut off: --wide shows all)"
    assert shown(60)[0] == begin
    assert "│ aeron:udp?endpoint=224.20.30.39:24… │ active" in shown(60)[4]
    assert shown(90)[0] == "title (1 column hidden, texts cut off: --wide shows all)"
    assert "2026-11-23T18:30:00.000Z" in shown(90)[4]
    assert shown(150)[0] == "title (texts cut off: --wide shows all)"
    assert LONG in shown(150)[4]
    terminal(60)
    assert table_of(COLUMNS[:3], [(1, "aeron:ipc", "active")]).startswith("title\n")


@pytest.mark.parametrize(("width", "columns"), [(15, ["id", "state"]), (14, ["id"])])
def test_a_column_is_left_out_at_the_first_width_that_is_too_small(
    terminal: Callable[[int], None], width: int, columns: list[str]
) -> None:
    terminal(width)
    header = table_of(("id#", "state"), [(1, "active")], optional=("state",)).splitlines()[2]
    assert header.replace("┃", " ").split() == columns


def test_wide_shows_all_columns_and_whole_cells(terminal: Callable[[int], None]) -> None:
    terminal(40)
    lines = table_of(COLUMNS, ROWS, "--wide", optional=("started by", "began")).splitlines()
    assert lines[0] == "title"
    assert "x" * 400 in lines[6]
    assert LONG in lines[4]
    assert "of many lines" in lines[5]


def test_an_empty_table_prints_its_sentence_to_standard_error() -> None:
    """A program that reads the lines must not take "no known servers" for a row."""
    result = CliRunner().invoke(cli, ["keys", "list"], catch_exceptions=False)
    assert result.stdout == ""
    assert result.stderr.startswith("no known servers in ")


def test_known_servers_are_printed_to_a_pipe_as_lines_of_cells() -> None:
    run("keys", "trust", "feeds.example:20121", public_text(bytes(range(32))), "--comment", "my own")
    (line,) = run("keys", "list").splitlines()
    server, mark, key, comment = line.split("\t")
    assert (str(parse_server(server)), key, comment) == (server, public_text(bytes(range(32))), "my own")
    assert mark.startswith("SHA256:")


@pytest.mark.parametrize("arguments", [("doctor",), ("node", "status"), ("keys", "list"), ("keys", "show")])
def test_no_command_prints_borders_to_a_pipe(arguments: tuple[str, ...]) -> None:
    """``FORCE_COLOR`` in the environment changes nothing: only a terminal gets colours and boxes."""
    run("keys", "new")
    run("keys", "trust", "feeds.example:20121", public_text(bytes(range(32))))
    result = CliRunner(env={"FORCE_COLOR": "1", "COLUMNS": "40"}).invoke(cli, arguments)
    assert result.stdout.strip()
    assert not set(BOX) & set(result.stdout)
    as_json = CliRunner().invoke(cli, [*arguments, "--json"]).stdout
    assert all(isinstance(json.loads(line), dict) for line in as_json.splitlines())


def test_top_to_a_pipe_is_a_line_for_each_counter_and_stream(capsys: pytest.CaptureFixture[str]) -> None:
    driver = DriverInfo(4711, 0.0, 0.1, "/dev/shm/x", "0.2.0")
    before = Sample(0.0, driver, {"Bytes sent": 0, "Errors": 0}, [], 0.0)
    streams = [StreamBacklog("aeron:ipc", 1001, 7, 96, None, None, None, None, ())]
    _print_lines(
        rates_between(before, Sample(2.0, driver, {"Bytes sent": 5000, "Errors": 0}, streams, 1_795_458_600.0))
    )
    assert capsys.readouterr().out.splitlines() == [
        "counter\t2026-11-23T18:30:00.000Z\tBytes sent\t5000\t2500",
        "stream\t2026-11-23T18:30:00.000Z\taeron:ipc\t1001\t7\t96\t-\t-\t-\t0\t0",
    ]


def test_printed_times_are_iso_with_t_and_z() -> None:
    assert output.time_cell(1_795_458_600.25) == "2026-11-23T18:30:00.250Z"
    assert output.time_cell(None) == "-"


def test_times_in_json_rows_are_iso_with_t_and_z() -> None:
    """Also within lists, in other zones, and with nanoseconds; a time without a zone gets none."""
    ns = 1_795_458_600_123_456_789
    at = datetime(2026, 11, 23, 19, 30, tzinfo=timezone(timedelta(hours=1)))
    batch = pa.record_batch(
        {
            "utc": pa.array([ns], pa.timestamp("ns", "UTC")),
            "there": pa.array([ns // 1000], pa.timestamp("us", "Europe/Berlin")),
            "local": pa.array([ns // 1_000_000_000], pa.timestamp("s")),
            "list": pa.array([[at]], pa.list_(pa.timestamp("us", "Europe/Berlin"))),
        }
    )
    to = io.BytesIO()
    JsonOutput(to).write("arrow", batch)
    assert json.loads(to.getvalue()) == {
        "utc": "2026-11-23T18:30:00.123456789Z",
        "there": "2026-11-23T18:30:00.123456Z",
        "local": "2026-11-23T18:30:00",
        "list": ["2026-11-23T18:30:00Z"],
    }


def test_a_time_zone_that_python_does_not_know_is_named() -> None:
    for name in ("Mars/Base", "+99:99"):
        times = pa.array([[0]], pa.list_(pa.timestamp("us", name)))
        with pytest.raises(DataFormatError, match=f"unknown time zone '{re.escape(name)}'. Write Parquet or Arrow."):
            JsonOutput(io.BytesIO()).write("arrow", pa.record_batch({"times": times}))


AFTER_US = 1_763_600_000_000_000_000  # nanoseconds of 2025 that were taken for microseconds


def test_times_after_the_year_32767_print_their_year() -> None:
    """Regression: a time of the year 57856 was printed as ``"-9696-11-08..."``, because Arrow has 16 bits for years."""
    at = pa.timestamp("us", "UTC")
    nested = pa.list_(pa.struct([("at", at)]))
    batch = pa.record_batch(
        {
            "at": pa.array([0, None, AFTER_US], at),
            "local": pa.array([0, None, AFTER_US], pa.timestamp("us")),
            "quotes": pa.array([[{"at": 0}, None], None, [{"at": AFTER_US}]], nested),
        }
    )
    printed = io.BytesIO()
    JsonOutput(printed).write("arrow", batch.slice(1))
    empty, late = (json.loads(line) for line in printed.getvalue().splitlines())
    assert empty == {"at": None, "local": None, "quotes": None}
    assert late["at"] == "57856-04-05T00:53:20.000000Z"
    assert late["local"] == "57856-04-05T00:53:20.000000"
    assert late["quotes"] == [{"at": "57856-04-05 00:53:20.000000Z"}]
    table = io.BytesIO()
    CsvOutput(table).write("arrow", batch.select(["at", "local"]))
    assert table.getvalue().decode().splitlines()[3] == ('"57856-04-05 00:53:20.000000Z","57856-04-05 00:53:20.000000"')


def test_a_zero_price_and_numbers_that_json_lacks_are_written_as_users_read_them() -> None:
    price = pa.array([Decimal("0.00000000"), Decimal("-1.50000000"), None], pa.decimal128(20, 8))
    rate = pa.array([float("inf"), float("-inf"), float("nan")], pa.float64())
    printed, table = io.BytesIO(), io.BytesIO()
    JsonOutput(printed).write("arrow", pa.record_batch({"price": price, "rate": rate}))
    assert [json.loads(line) for line in printed.getvalue().splitlines()] == [
        {"price": "0.00000000", "rate": "Infinity"},
        {"price": "-1.50000000", "rate": "-Infinity"},
        {"price": None, "rate": "NaN"},
    ]
    CsvOutput(table).write("arrow", pa.record_batch({"price": price}))
    assert table.getvalue().decode().splitlines()[1:] == ['"0.00000000"', '"-1.50000000"', ""]
