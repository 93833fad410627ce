"""A commit that is cancelled, at any await point and at any step of its work, has an outcome that a program can know.

The writer runs on its thread, joined with the real stream service in virtual time. A gate stops that thread before a
step (a request, or a message on a bulk link) until the task is cancelled; then the step has a fault, or none.
"""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark import aio
from aeron_spark.aio.own import OwnLoop
from aeron_spark.aio.writer import StreamWriter
from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.stream_client import writer as plain
from aeron_spark.stream_client.session import StreamSession
from tests.stream_requests import create_request
from tests.unit.endpoint.endpoints import TIMEOUT_S
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import World

WRITER_TIMEOUT_S: Final = 4.0  # virtual
FIRST, SECOND = [b"first-1", b"first-2"], [b"second"]
FAULTS: Final = sorted(set(Fault) - {Fault.NO_RECORDING}, key=lambda fault: fault.name)
MOST_STEPS: Final = 100


class Gate:
    """Stops the writer's thread before one of its steps, once: the step with the number ``at``, from 0."""

    def __init__(self, world: World, patched: pytest.MonkeyPatch) -> None:
        self.at: int | None = None
        self.fault = Fault.NONE  # of that step, if it is a request, and of the one after it
        self.steps = 0
        self.reached = threading.Event()
        self.passed = threading.Event()
        self._world = world
        call, carry = world.call, world.carry_bulk_message

        def gated_call(data: bytes, timeout: float) -> bytes:
            self._pass()
            return call(data, timeout)

        def gated_carry(*arguments: Any) -> None:
            self._pass()
            carry(*arguments)

        patched.setattr(world, "call", gated_call)
        patched.setattr(world, "carry_bulk_message", gated_carry)

    def close_before(self, step: int, fault: Fault) -> None:
        """Stop the thread before a step, counted from now."""
        self.at, self.fault, self.steps = step, fault, 0
        self.reached.clear()
        self.passed.clear()

    def open(self) -> None:
        """Let the thread pass from now on, with the fault."""
        self.at = None
        self._world.faults.extend([self.fault])
        self.passed.set()

    def _pass(self) -> None:
        step, self.steps = self.steps, self.steps + 1
        if step == self.at:
            self.reached.set()
            assert self.passed.wait(TIMEOUT_S)


class Case:
    """A server with an empty stream, and the gate of its writer."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self.world = World(folder, patched)
        assert self.world.server is not None
        self.world.server.store.create(create_request("s", 1, segment_bytes=1 << 16))
        self.world.connect(1.0)
        self.session: StreamSession = self.world.stream_session()
        self.gate = Gate(self.world, patched)

    def plain_writer(self) -> plain.StreamWriter:
        return plain.StreamWriter(self.session, "s", writer_id="w", payload="raw", timeout=WRITER_TIMEOUT_S)

    def writer(self) -> StreamWriter:
        return aio.StreamWriter(OwnLoop(), self.plain_writer, "s")

    def rows(self) -> list[bytes]:
        """Return all rows of the stream; ends all faults."""
        self.gate.open()
        self.world.end_faults()
        (rows,) = self.world.committed() or [[]]
        return rows


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Callable[[], Case]]:
    """Make cases, each with another server, and close them."""
    made: list[Case] = []
    with pytest.MonkeyPatch.context() as patched:

        def make() -> Case:
            for one in made:
                one.world.close()
            patched.undo()
            made[:] = [Case(tmp_path / "store", patched)]
            return made[0]

        yield make
        for one in made:
            one.world.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, TIMEOUT_S))


async def cancel_at_gate(case: Case, running: Coroutine[Any, Any, object]) -> bool:
    """Run a coroutine until its thread is at the gate, cancel it, and open the gate.

    Returns False if the coroutine ended before, and so the gate is beyond its last step.
    """
    task = asyncio.create_task(running)
    while not case.gate.reached.is_set() and not task.done():
        await asyncio.sleep(0)
    is_reached = not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError, AeronSparkError):
        await task
    case.gate.open()
    if not is_reached:
        case.world.faults.clear()
    return is_reached


async def repeat(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return the first result of a call that is repeated after errors, as a program does."""
    for _ in range(10):
        with suppress(AeronSparkError):
            return await call()
    return await call()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_cancelled_commit_is_resolved_by_the_next_commit(case: Callable[[], Case], fault: Fault) -> None:
    """Cancelled before each of its steps, and each with the fault: its rows are in the stream once, with its number."""

    async def at(step: int) -> bool:
        one = case()
        writer = one.writer()
        try:
            await writer.write(FIRST)
            one.gate.close_before(step, fault)
            is_reached = await cancel_at_gate(one, writer.commit())
            number = await repeat(writer.commit)
            assert (number, writer.last) == ((0, 0) if is_reached else (-1, 0))
            one.world.end_faults()
            await writer.write(SECOND)
            assert await writer.commit() == writer.last > 0
        finally:
            await writer.close()
        assert one.rows() == [*FIRST, *SECOND], (step, fault)
        return is_reached

    run(_first_unreached(at, least=1))


def test_a_write_after_a_cancelled_commit_begins_the_next_transaction(case: Callable[[], Case]) -> None:
    async def main() -> None:
        one = case()
        async with one.writer() as writer:
            await writer.write(FIRST)
            one.gate.close_before(0, Fault.NONE)
            assert await cancel_at_gate(one, writer.commit())
            await writer.write(SECOND)  # after the commit, which goes on
            assert (await writer.commit(), writer.last) == (1, 1)
            assert await writer.commit() == -1
        assert one.rows() == [*FIRST, *SECOND]

    run(main())


def test_a_cancelled_write_is_written(case: Callable[[], Case]) -> None:
    async def main() -> None:
        one = case()
        async with one.writer() as writer:
            one.gate.close_before(0, Fault.NONE)
            assert await cancel_at_gate(one, writer.write(FIRST))
            await writer.write(SECOND)
        assert one.rows() == [*FIRST, *SECOND]

    run(main())


async def _first_unreached(at: Callable[[int], Coroutine[Any, Any, bool]], *, least: int) -> None:
    """Call ``at`` with each step until one is beyond the last one; there must be ``least`` steps."""
    step = 0
    while await at(step):
        step += 1
        assert step < MOST_STEPS
    assert step >= least


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_cancelled_commit_is_resolved_by_abort(case: Callable[[], Case], fault: Fault) -> None:
    """The rows are in the stream if abort() refuses, with the number ``last``; else they never are."""

    async def at(step: int) -> bool:
        one = case()
        writer = one.writer()
        try:
            await writer.write(FIRST)
            one.gate.close_before(step, fault)
            is_reached = await cancel_at_gate(one, writer.commit())
            is_committed = not is_reached
            if is_reached:
                try:
                    await abort(writer)
                except RefusedError:
                    is_committed = True
                    assert writer.last == 0
            one.world.end_faults()
            await writer.write(SECOND)
            await writer.commit()
        finally:
            await writer.close()
        assert one.rows() == [*(FIRST if is_committed else []), *SECOND], (step, fault)
        return is_reached

    run(_first_unreached(at, least=1))


async def abort(writer: StreamWriter) -> None:
    """Abort, and again after an error other than a refusal."""
    for _ in range(10):
        try:
            await writer.abort()
        except RefusedError:
            raise
        except AeronSparkError:
            continue
        return


# A program that is cancelled at an await point, wherever that is.


@types.coroutine
def cancelled_at(
    point: int, running: Coroutine[Any, Any, None], before: Callable[[], None]
) -> Generator[Any, Any, int]:
    """Run a coroutine, and cancel it at its await point with this number, after ``before()``; return their number."""
    points = 0
    try:
        waiting = running.send(None)
        while True:
            points += 1
            if points == point + 1:
                before()
                waiting = running.throw(asyncio.CancelledError())
                continue
            yield waiting
            waiting = running.send(None)
    except (StopIteration, asyncio.CancelledError, AeronSparkError):
        return points


async def write_two(writer: StreamWriter) -> None:
    async with writer:
        await writer.write(FIRST)
        await writer.commit()
        await writer.write(SECOND)


@pytest.mark.parametrize("is_late", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("fault", [Fault.NONE, Fault.LOSE_RESPONSE, Fault.KILL], ids=lambda fault: fault.name)
def test_a_program_that_is_cancelled_at_any_await_point_resumes_after_the_last_transaction(
    case: Callable[[], Case], fault: Fault, is_late: bool
) -> None:
    """The next run of the program reads ``last`` of a writer with the same id, and writes the rest, once."""

    async def at(point: int) -> bool:
        one = case()
        writer = one.writer()

        def before() -> None:
            one.world.faults.extend([fault])
            if is_late:
                writer._thread.begin(lambda: None).result(TIMEOUT_S)  # after all that was begun

        points = await cancelled_at(point, write_two(writer), before)
        writer.join()
        one.world.end_faults()
        async with one.writer() as resumed:
            for number, rows in enumerate((FIRST, SECOND)):
                if number > resumed.last:
                    await resumed.write(rows)
                    await resumed.commit()
        assert one.rows() == [*FIRST, *SECOND], (point, fault)
        return points > point

    # open, write, commit, write, commit, close; a call that has ended before it is awaited has no await point
    run(_first_unreached(at, least=4))
