"""The output of ``streams``, ``send`` and ``receive`` on both routes stays as it is, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet
import pytest

from aeron_spark.cli.main import cli
from aeron_spark.direct import catalog
from aeron_spark.errors import OptionError, TransportError
from aeron_spark.log.api import StreamContent
from aeron_spark.wire.stream_requests import RenewLease
from tests.unit.cli.transcripts import COLUMNS, SERVER, Transcript, catalogue, publish, record, serve, transcript
from tests.unit.stream_client.conftest import world
from tests.unit.stream_client.joined import World

__all__ = ["transcript", "world"]

KEY = "aeron-spark:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
HELP = ("send", "receive", "streams")


def subcommands(command: click.Command) -> list[str]:
    return command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []


def test_the_helps_are_the_same(transcript: Transcript, tmp_path: Path) -> None:
    for name in HELP:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for line in (name, *(f"{name} {one}" for one in subcommands(command))):
            transcript.run(f"{line} --help")
    for wrong in ("streems", "recieve", "sned"):
        transcript.run(wrong)
    transcript.check("help.txt", tmp_path)


def test_streams_on_the_direct_route_print_the_same(
    transcript: Transcript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = catalogue(monkeypatch)
    one = "--channel aeron:ipc --stream-id 1001"
    for line in ("list", "list --json", f"list {one}", "list --stream-id 40 --json", "list --stream-id 9"):
        transcript.run(f"streams {line}")
    transcript.run("streams list", on_terminal=True)
    transcript.run("streams list --stream-id 9", on_terminal=True)
    transcript.run(f"streams describe {one}")
    transcript.run(f"streams describe {one} --json")
    transcript.run("streams describe --channel aeron:udp?endpoint=224.20.30.39:40123 --stream-id 40")
    with monkeypatch.context() as patched:
        patched.setattr(catalog, "content_of", lambda *_: StreamContent("arrow", COLUMNS))
        patched.setattr(catalog, "repeated_bytes", lambda *_: 4096)
        transcript.run("streams describe prices")
        transcript.run("streams describe prices --json")
        transcript.run("streams describe prices", on_terminal=True)
    with monkeypatch.context() as patched:
        patched.setattr(catalog, "content_of", lambda *_: None)
        transcript.run("streams describe prices --json")
    for line in (
        "describe", "describe --channel aeron:ipc", "describe --channel aeron:ipc --stream-id 9", "describe prises",
        "describe other", "describe --option archvie=x --channel aeron:ipc --stream-id 9", "list --stream-id one",
        "lits", "describe --chanel x", "delete --channel aeron:ipc --stream-id 1", "create flights",
        "alter flights --retention 7d", "rename flights a", "end flights", "reopen flights",
        "writers flights", "leases flights", "usage flights", "rename a/b c", "describe prices --identity me.key",
        "list extra",
        "list --archive embedded,aeron:ipc?stream-id=7 --channel aeron:icp",
    ):  # fmt: skip
        transcript.run(f"streams {line}")
    for line in (
        f"purge {one}", f"purge {one} --before 1 --keep 1", f"purge {one} --keep much", f"purge {one} --before noon",
        f"purge {one} --before 200000 --partition 3 --yes", f"purge {one} --before 200000 --wait --yes",
        "purge --before 1 --yes", f"purge {one} --before 200000", f"purge {one} --before 200000 --recording 9 --yes",
        f"purge {one} --before 200000 --dry-run", f"purge {one} --before 200000 --dry-run --json",
        f"purge {one} --before 2200-01-01 --dry-run", f"purge {one} --keep 100KiB --recording 1 --dry-run",
        f"purge {one} --before 1 --yes",
    ):  # fmt: skip
        transcript.run(f"streams {line}")
    transcript.run(f"streams purge {one} --before 200000", answer="n")
    transcript.run(f"streams purge {one} --before 200000", answer="y")
    transcript.run(f"streams purge {one} --keep 0 --recording 1 --yes --json")
    transcript.run("streams purge prices --keep 64KiB --dry-run", on_terminal=True)
    for line in (
        "delete --yes", f"delete {one}", f"delete {one} --yes", f"delete {one} --recording 9 --yes",
        f"delete {one} --recording 1 --yes --json", "delete prises --yes",
    ):  # fmt: skip
        transcript.run(f"streams {line}")
    transcript.run("streams delete prices", answer="n")
    transcript.run("streams delete prices", answer="y")
    assert sorted(archive.kept) == [2, 7]
    transcript.check("streams-direct.txt", tmp_path)


CHANGES = (
    "alter quotes", "alter quotes --retention 64m", "alter quotes --schema-policy loose", "edn quotes", "end quots",
    "writers quotes free w", "alter quotes --retention none --dry-run",
    "alter quotes --retention 2g --schema-policy strict --json", "end quotes", "end quotes --json",
    "describe quotes", "list", "reopen quotes", "reopen quotes --json", "rename quotes a/b", "rename quotes prices",
    "rename prices quotes --json", "describe quotes", "describe prices", "writers quotes", "writers quotes --json",
    "writers quotes release", "writers quotes release desk-7", "leases quotes", "leases quotes --json",
    "leases quotes release", "leases quotes release 3f0c9a",
)  # fmt: skip


def test_streams_through_a_server_print_the_same(
    transcript: Transcript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    serve(world, monkeypatch)
    pyarrow.parquet.write_table(pa.table({"id": [1, 2], "name": ["a", None]}, COLUMNS), tmp_path / "rows.parquet")
    (tmp_path / "lines.txt").write_text("".join(f"{number:0999d}\n" for number in range(200)))

    def run(*lines: str, **how: Any) -> None:
        for line in lines:
            transcript.run(f"streams {line} --server {SERVER}", **how)

    run(
        "list", "create flights", "create flights", "create flights --if-not-exists",
        "create quotes --partitions 3 --retention 1g,7d --segment 2MiB --schema-policy additive --json",
        "create typed --schema rows.parquet --retention 36h --json", "create a/b", "create x --retention 64m",
        "create x --retention -1", "create x --retention nan", "creat x",
        "create x --segment 3MiB", "create x --segment 64KiB", "create x --schema lines.txt",
        "create x --schema none.parquet", "list", "list --json",
    )  # fmt: skip
    run("list", on_terminal=True)
    transcript.run(f"send lines.txt lines.txt --stream flights --payload raw --server {SERVER}")
    transcript.run(f"send rows.parquet --stream typed --server {SERVER} --json")
    run("describe flights", "describe flights --json", "describe typed", "describe typed --json", "describe s")
    run("describe typed", on_terminal=True)
    run(
        "describe", "describe flihgts", "describe a/b", "describe flights --option taag=x",
        "describe flights --channel aeron:ipc", "list --option payload=raw", "list --option ack=driver",
        "purge flights", "purge flights --keep x", "purge flights --before 1 --wait soon",
        "purge flights --before 1 --wait soon --yes",
        "purge flights --before soon --yes",
        "purge flights --before 1 --recording 3", "purge flights --before 1 --dry-run", "purge --before 1 --yes",
        "purge flights --before 1", "purge flights --before 1 --partition 7 --yes", "purge nowhere --keep 0 --yes",
        "purge typed --before -1h --yes", "purge s --keep 0 --yes", "purge flights --before 32 --yes",
        "purge flights --keep 1GiB --yes", "purge flights --before 0 --yes --json",
    )  # fmt: skip
    run("purge flights --before 211200", answer="n")
    run("purge flights --before 211200", answer="y")
    transcript.run(f"send lines.txt --stream flights --payload raw --server {SERVER}")
    transcript.run(f"send lines.txt --stream flights --payload raw --server {SERVER}")
    run("purge flights --keep 211200 --yes --json", "purge typed --keep 0 --wait --yes")
    run("purge quotes --keep 0 --yes", on_terminal=True)
    run(*CHANGES)
    transcript.run(f"send lines.txt --stream s --writer-id desk-7 --server {SERVER}")
    run("writers s", "writers s --json", "writers s release desk-7", "writers s release desk-7 --json")
    world.stream_session().call(RenewLease("s", "3f0c9a", ((0, 64), (1, 0)), 60.0))
    run("usage s", "usage s --json", "usage quotes", "usage other")
    run("leases s", "leases s --json", "purge s --before 112000 --yes", "purge s --keep 0 --yes --json")
    run("purge s --keep 0 --yes")
    run("leases s release 3f0c9a", "leases s", on_terminal=True)
    world.kill()
    (world.folder / "typed" / "journal").write_bytes(b"no journal")
    run("list", "describe typed", "describe typed --json", "purge typed --keep 0 --yes")
    run("delete flights", "delete --yes", "delete flights --recording 1 --yes", "delete flihgts --yes")
    run("delete flights", answer="n")
    run("delete flights", answer="y")
    run("delete typed --yes --json", "delete s --yes", "delete quotes --yes", "list", "list --json")
    transcript.check("streams-server.txt", tmp_path)


def files(folder: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"id": [1, 2], "name": ["a", None]}, COLUMNS), folder / "rows.parquet")
    (folder / "lines.txt").write_text("one\ntwo\nthree\n")
    (folder / "one.txt").write_text("one\n")
    (folder / "long.txt").write_text("short\n" + 9_000 * "x" + "\n")
    (folder / "odd.jsonl").write_text('{"id": 1}\n{"id": \n')


WRONG_SENDS = (
    "none.txt", "/", "lines.txt --payload row", "lines.txt --payload sbe", "lines.txt --option offerTimout=3s",
    "rows.parquet --payload sbe --sbe-schema none.xml", "lines.txt --identity me.key",
)  # fmt: skip


def test_send_on_the_direct_route_prints_the_same(
    transcript: Transcript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = publish(monkeypatch)
    files(tmp_path)
    one = "--channel aeron:ipc --stream-id 1001"
    for line in (
        "one.txt", "lines.txt", "lines.txt --json", "rows.parquet", "rows.parquet --payload raw", "long.txt",
        "long.txt lines.txt --payload framed", "odd.jsonl", "lines.txt --ack driver", *WRONG_SENDS,
        "lines.txt --commit-rows 3", "lines.txt --stream flights", "lines.txt --evolve-schema",
    ):  # fmt: skip
        transcript.run(f"send {line} {one}")
    transcript.run("send lines.txt --channel aeron:ipc")
    transcript.run("send lines.txt")
    transcript.run("send lines.txt --chanel aeron:ipc")
    transcript.run("send lines.txt --channel aeron:icp --stream-id 1")
    transcript.run("send lines.txt --channel aeron:ipc --stream-id one")
    published.dropped = 2
    transcript.run(f"send lines.txt {one}")
    transcript.run(f"send lines.txt {one} --json")
    published.error = TransportError("the driver ended", remedy="Start it.")
    transcript.run(f"send lines.txt {one}")
    published.error = OptionError("an odd option", remedy="Correct it.")
    transcript.run(f"send lines.txt {one}")
    transcript.check("send-direct.txt", tmp_path)


def test_send_through_a_server_prints_the_same(
    transcript: Transcript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    serve(world, monkeypatch)
    files(tmp_path)
    for line in (
        "one.txt", "lines.txt lines.txt", "lines.txt --json", "lines.txt --commit-rows 2", "rows.parquet",
        "rows.parquet --payload raw", "long.txt", "odd.jsonl", "lines.txt --evolve-schema", *WRONG_SENDS,
        "lines.txt --ack driver", "lines.txt --record", "lines.txt --channel aeron:ipc",
        "lines.txt --option evolveSchema=maybe", "odd.jsonl --commit-rows 1 --payload raw",
        "lines.txt odd.jsonl",
    ):  # fmt: skip
        transcript.run(f"send {line} --stream s --server {SERVER}")
    for line in (
        "--stream a/b", "--stream nowhere", "--commit-rows 3", "--evolve-schema", "--writer-id w", "--payload raw",
        "--ack driver", "--option tagg=x", "--cluster log", "", "--json", "--record", "rows.parquet",
    ):  # fmt: skip
        transcript.run(f"send lines.txt {line} --server {SERVER}")
    transcript.check("send-server.txt", tmp_path)


WRONG_RECEIVES = (
    "--start yesterday", "--start latest", "--timeout 3", "--json --format csv", "--format parquet",
    "--output no/such/folder/file", "--identity me.key", "--payload sbe", "--payload sbe --sbe-schema none.xml",
    "--count 0", "--json --format text", "--option idleTimeout",
)  # fmt: skip


def test_receive_on_the_direct_route_prints_the_same(
    transcript: Transcript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(monkeypatch, "one", "two", "three")
    one = "--channel aeron:ipc --stream-id 1001"
    for line in (
        "", "--json", "--count 2", "--start 64 --json", "--start earliest", "--format csv", "--output rows.jsonl",
        "--follow --start earliest --timeout 0.01", "--follow --start earliest --timeout 0.01 --count 4",
        "--follow --start 128 --count 1 --json", "--payload raw", *WRONG_RECEIVES, "--stream flights",
        "--option idelTimeout=3s", "--cluster log", "--option STREAMID=3", "--option ack=driver", f"--server-key {KEY}",
        "--option identity=me.key",
    ):  # fmt: skip
        transcript.run(f"receive {line} {one}")
    transcript.run("receive --stream-id 1")
    transcript.run("receive --channel aeron:ipc")
    transcript.run("receive --chanel aeron:ipc")
    transcript.run("receive --channel aeron:icp --stream-id 1")
    transcript.run("receive --channel aeron:ipc --stream-id 10")
    transcript.run(f"receive {one}", "--start", '{"0": ')
    transcript.text += (tmp_path / "rows.jsonl").read_text()
    transcript.check("receive-direct.txt", tmp_path)


def test_receive_through_a_server_prints_the_same(
    transcript: Transcript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    asked = serve(world, monkeypatch)
    (tmp_path / "lines.txt").write_text("one\ntwo\nthree\n")
    transcript.run(f"send lines.txt --payload raw --stream s --server {SERVER}")
    for line in (
        "", "--json", "--count 2", "--start 64 --json", "--start earliest", "--start -10min", "--format csv",
        "--output rows.jsonl", "--follow --start earliest --timeout 0.01",
        "--follow --start earliest --timeout 0.01 --count 4", "--follow --count 1 --json", "--metadata",
        *WRONG_RECEIVES, "--payload raw", "--channel aeron:ipc", "--option tagg=x", "--cluster log",
    ):  # fmt: skip
        transcript.run(f"receive {line} --stream s --server {SERVER}")
    transcript.run(f"receive --stream s --server {SERVER}", "--start", '{"0": 96}')
    transcript.run(f"receive --stream s --server {SERVER}", "--start", "2026-11-23 18:30")
    transcript.run(f"receive --stream s --server {SERVER} --server-key abc")
    transcript.run("receive --stream s --server feeds.example")
    transcript.run(f"receive --stream s --server {SERVER}", "--start", '{"0": ')
    for line in (
        "--stream a/b", "--stream nowhere", "--payload raw", "--start earliest", "--output rows", "--format json",
        "--metadata",
    ):  # fmt: skip
        transcript.run(f"receive {line} --server {SERVER}")
    transcript.text += (tmp_path / "rows.jsonl").read_text()
    transcript.text += "".join(f"{one}\n" for one in asked)
    transcript.check("receive-server.txt", tmp_path)
