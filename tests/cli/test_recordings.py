"""``recordings`` lists, stops and deletes the recordings of the direct route."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from aeron_spark.cli.main import main
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import StreamAddress
from aeron_spark.direct.recordings import stop_command
from tests.aeron.streams import Stream, close_everything, numbered

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(shared: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``recordings`` in this process, on the module's node; give exit code, output and errors."""

    def one(*arguments: str) -> tuple[int, str, str]:
        code = main(["recordings", *arguments, "--aeron-dir", str(shared)])
        output = capsys.readouterr()
        return code, output.out, output.err

    return one


@pytest.fixture
def stream(shared: Path) -> Iterator[Stream]:
    """A stream that no other test uses; its publications are closed after the test."""
    with node.ensure(shared) as handle:
        one = Stream(handle)
        yield one
        one.close()
        close_everything()


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def of(stream: Stream) -> list[str]:
    return ["--channel", stream.channel, "--stream-id", str(stream.id)]


def printed(text: str) -> list[list[str]]:
    """Return the arguments of each command line that is quoted in a text."""
    return [shlex.split(line) for line in re.findall(r"'aeron-spark (.*?)'(?=[ .)])", text)]


def log_of(stream: Stream) -> ArchiveLog:
    return ArchiveLog(StreamAddress(stream.channel, stream.id, (stream.address,), 10.0))


def test_the_list_shows_the_program_that_started_a_recording(run: Run, stream: Stream) -> None:
    """Regression: ``list`` showed 0 where a recording kept the node."""
    assert run("list", *of(stream)) == (0, "", "no recordings\n")
    assert run("list", *of(stream), "--json") == (0, "", "")
    assert stream.archive.subscriptions(stream.id) == []

    log_of(stream).start_recording("counts")
    (waiting,) = lines(run("list", *of(stream), "--json")[1])
    assert (waiting["id"], waiting["state"], waiting["standing"], waiting["active"]) == (None, "waiting", True, False)
    assert waiting["started"]["query"] == "counts"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", waiting["started"]["at"])

    publisher = stream.publisher()
    publisher.send(numbered(0, 3))
    (active,) = lines(run("list", *of(stream), "--json")[1])
    assert (active["id"], active["state"], active["end"]) == (publisher.recording_id, "active", publisher.position)
    assert active["session_id"] == int(publisher.publication.publication.sessionId())
    (plain,) = run("list", *of(stream))[1].splitlines()
    cells = plain.split("\t")
    assert cells[:4] == ["embedded", str(publisher.recording_id), stream.channel, str(stream.id)]
    assert cells[5:9] == ["0", str(publisher.position), "active", "yes"]
    assert ", query counts, at 2" in cells[-1]
    assert run("stop", str(publisher.recording_id))[0] == 0


def test_a_recording_is_stopped_and_then_deleted(
    run: Run, stream: Stream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: no command ended a recording, and the command of the remedy reached another node."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    log_of(stream).start_recording()
    publisher = stream.publisher()
    publisher.send(numbered(0, 3))
    number, label = (
        str(publisher.recording_id),
        f"recording {publisher.recording_id} of stream {stream.id} of aeron:ipc",
    )

    code, out, err = run("delete", number, "--yes")
    assert (code, out) == (1, "")
    assert f"is still being recorded. Stop it first: 'aeron-spark recordings stop {number} --aeron-dir " in err
    (remedy,) = printed(err)
    assert main(remedy) == 0
    assert capsys.readouterr().out == f"stopped {label} at position {publisher.position}\n"
    assert run("stop", number) == (0, "", "nothing was stopped: the recording has ended already\n")
    (stopped,) = lines(run("list", *of(stream), "--json")[1])
    assert (stopped["state"], stopped["standing"]) == ("stopped", False)
    assert stream.archive.subscriptions(stream.id) == []

    code, out, err = run("delete", number)
    assert (code, out) == (2, "")
    assert "Add --yes. 'aeron-spark recordings list' shows the recordings." in err
    end = publisher.position
    stream.close()
    assert run("delete", number, "--yes") == (0, f"deleted {label} ({end} B)\n", "")
    assert run("list", *of(stream), "--json") == (0, "", "")
    assert run("delete", number, "--yes")[0] == 1


def test_delete_requires_a_confirmation_on_a_terminal(
    run: Run, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.record()
    publisher = stream.publisher()
    number = str(publisher.recording_id)
    assert run("stop", number)[0] == 0
    stream.close()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    prompts: list[str] = []

    def answer(text: str) -> Callable[[str], str]:
        return lambda prompt: prompts.append(prompt) or text

    monkeypatch.setattr("click.termui.visible_prompt_func", answer("n"))
    assert run("delete", number)[0] == 1
    assert len(lines(run("list", *of(stream), "--json")[1])) == 1
    monkeypatch.setattr("click.termui.visible_prompt_func", answer("y"))
    assert run("delete", number)[0] == 0
    assert run("list", *of(stream), "--json")[1] == ""


def test_the_command_in_the_warning_of_a_query_stops_its_recording(
    stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: the command line in a streaming query's warning reached another node than this one."""
    log_of(stream).start_recording("counts")
    command = shlex.split(stop_command(log_of(stream).address))
    assert command[:3] == ["aeron-spark", "recordings", "stop"]
    code = main([*command[1:], "--json"])
    output = capsys.readouterr()
    assert (code, output.err) == (0, "")
    (ended,) = lines(output.out)
    assert (ended["stopped"], ended["id"], ended["started"]["query"]) == (True, None, "counts")
    assert stream.archive.subscriptions(stream.id) == []


def test_stopping_a_standing_request_twice_does_not_advise_to_record_again(run: Run, stream: Stream) -> None:
    """Regression: ``stop``, repeated, advised to have the stream recorded first."""
    log_of(stream).start_recording()
    assert run("stop", *of(stream))[0] == 0
    code, out, err = run("stop", *of(stream))
    assert (code, out) == (1, "")
    assert "there is nothing to stop." in err
    assert "record=auto" not in err


def test_a_servers_recording_is_neither_stopped_nor_deleted(run: Run, shared: Path) -> None:
    """Regression: the remedy of ``stop`` was the command that deletes the stream."""
    with node.ensure(shared) as handle:
        stream = Stream(handle, "aeron:ipc?alias=aeron-spark:flights:0:18ff3a").record()
        number = str(stream.publisher().recording_id)
        code, _, err = run("stop", number)
        assert code == 1
        assert "Stop the server, which records its streams while it runs" in err
        assert "delete" not in err
        assert "streams delete flights --server HOST:PORT" in run("delete", number, "--yes")[2]
        stream.archive.stop_recording(stream.channel, stream.id)
        stream.close()
        close_everything()


def test_describe_and_receive_of_an_unknown_stream_start_no_recording(
    shared: Path, stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: a misspelled stream started a standing recording."""
    for command in (["streams", "describe"], ["receive"]):
        assert main([*command, *of(stream), "--aeron-dir", str(shared)]) == 1
        assert "recording" in capsys.readouterr().err
    assert stream.archive.subscriptions(stream.id) == []


def test_an_unknown_recording_ends_with_1(run: Run, stream: Stream) -> None:
    for arguments in (["stop", "471147"], ["delete", "471147", "--yes"], ["stop", *of(stream)]):
        code, out, err = run(*arguments)
        assert (code, out) == (1, ""), err
        assert "aeron-spark recordings list" in err
