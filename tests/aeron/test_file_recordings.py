"""The files of this machine's archive give the answers that the archive itself gives, without a JVM."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress

import pytest

from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import (
    CannotAnswerError,
    CataloguedRecording,
    FileRecordings,
    StreamAddress,
    embedded,
    hold_node,
)
from aeron_spark.direct.session_recordings import SessionRecordings
from tests.aeron.streams import TIMEOUT_S, Stream, numbered, own_node
from tests.programs import start_python

ROUNDS = 12

# Plans a batch of a stream, as Spark's planner process does, and prints its end and whether a JVM runs.
PLANNER = """
import json, sys
from aeron_spark.aeron import jvm
from tests.spark.simulated_engine import Query

query = Query(json.loads(sys.argv[1]), record=sys.argv[2])
assert query.plan_batch()
start, end = json.loads(query._start), json.loads(query.planned_ends[-1])
(partition,) = query.reader.partitions(start, end)
(one,) = partition.ranges
print(json.dumps([one.start, one.end, jvm.started()]))
"""


def check_same(stream: Stream) -> None:
    """Compare all answers about a stream, which nobody writes at the same time."""
    files, session = FileRecordings(stream.address), SessionRecordings(stream.address, 10.0)
    expected = session.of_stream(stream.id)
    assert files.of_stream(stream.id) == expected
    for one in expected:
        assert files.find(one.recording.id) == one


def test_the_files_give_the_answers_of_the_archive_through_the_life_of_a_recording(stream: Stream) -> None:
    check_same(stream)  # nothing is recorded yet
    first = stream.publisher()
    check_same(stream)
    first.send(numbered(0, 3_000))
    check_same(stream)
    second = stream.publisher()
    second.send(numbered(0, 5))
    check_same(stream)
    assert [one.active for one in FileRecordings(stream.address).of_stream(stream.id)] == [True, True]
    assert stream.archive.purge_segments(first.recording_id, 2 * 65_536) == 2
    check_same(stream)
    assert FileRecordings(stream.address).of_stream(stream.id)[0].recording.start_position == 2 * 65_536
    first.stop()
    check_same(stream)
    extended = stream.extend(first)
    check_same(stream)
    extended.send(numbered(3_000, 3_010))
    check_same(stream)
    extended.stop()
    stream.archive.truncate(first.recording_id, 3 * 65_536)
    check_same(stream)
    stream.archive.delete(first.recording_id)
    check_same(stream)
    assert FileRecordings(stream.address).find(first.recording_id) is None


def test_a_stream_id_of_another_stream_does_not_matter(stream: Stream) -> None:
    stream.publisher().send(numbered(0, 3))
    other = Stream(stream.handle).record()
    other.publisher().send(numbered(0, 7))
    check_same(stream)
    check_same(other)
    other.close()


def test_answers_are_right_while_recordings_start_stop_and_are_extended(stream: Stream) -> None:
    answers: list[list[CataloguedRecording]] = []
    failures: list[BaseException] = []
    has_ended = threading.Event()

    def ask() -> None:
        files = FileRecordings(stream.address)
        try:
            while not has_ended.is_set():
                with suppress(CannotAnswerError):  # on a busy machine the archive may change its files for long
                    answers.append(files.of_stream(stream.id))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    bounds: dict[int, list[int]] = {}
    try:
        for _ in range(ROUNDS):
            published = stream.publisher()
            published.send(numbered(0, 50))
            bounds[published.recording_id] = [0, published.stop()]
        stopped = stream.publisher()
        stopped.send(numbered(0, 50))
        end = stopped.stop()
        extended = stream.extend(stopped)
        extended.send(numbered(50, 60))
        bounds[stopped.recording_id] = [0, end, extended.stop()]
    finally:
        has_ended.set()
        thread.join(TIMEOUT_S)
    assert not failures
    assert answers
    check_same(stream)
    last: dict[int, int] = {}
    for answer in answers:
        assert last.keys() <= {one.recording.id for one in answer}, "a recording disappeared"
        for one in answer:
            assert last.get(one.recording.id, 0) <= one.end <= bounds[one.recording.id][-1]
            assert one.active or one.end in bounds[one.recording.id]
            last[one.recording.id] = one.end
    assert set(last.values()) <= {ends[-1] for ends in bounds.values()}


@pytest.mark.sampled
def test_a_killed_archive_gives_no_answer_and_its_successor_gives_the_same_as_the_archive(run_name: str) -> None:
    with own_node(run_name) as handle:
        stream = Stream(handle).record()
        published = stream.publisher()
        published.send(numbered(0, 500))
        end = FileRecordings(stream.address).of_stream(stream.id)[0].end
        assert end == published.position
        os.kill(handle.pid, signal.SIGKILL)
        os.waitpid(handle.pid, 0)
        with pytest.raises(CannotAnswerError, match="has ended"):
            FileRecordings(stream.address).of_stream(stream.id)
        restarted = hold_node(handle.aeron_dir, wait_s=10.0)
        try:
            assert restarted.pid != handle.pid
            address = embedded(restarted)
            (found,) = FileRecordings(address).of_stream(stream.id)
            assert [found] == SessionRecordings(address, 10.0).of_stream(stream.id)
            assert (found.end, found.active) == (end, False)
            log = ArchiveLog(StreamAddress(stream.channel, stream.id, (address,)))
            (state,) = log.states()
            assert log.boundary(state.key, 0, end, end, None).position == end
        finally:
            restarted.close()


def plan(stream: Stream, record: str) -> tuple[int, int, bool]:
    """Plan a batch in a new process; return its range, and whether the process started a JVM."""
    with start_python(PLANNER, json.dumps(stream.options), record) as program:
        output, _ = program.communicate(timeout=TIMEOUT_S)
    assert program.returncode == 0, output
    start, end, has_jvm = json.loads(output.splitlines()[-1])
    return start, end, has_jvm


def test_a_planner_starts_a_jvm_only_to_ask_whether_a_stopped_stream_is_on_record(stream: Stream) -> None:
    published = stream.publisher()
    published.send(numbered(0, 100))
    end = published.position
    assert plan(stream, "auto") == (0, end, False)
    published.stop()
    assert plan(stream, "never") == (0, end, False)
    assert plan(stream, "auto") == (0, end, True)
