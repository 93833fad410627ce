"""With a real server: the memory of many short connections, and of many streams."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tests.aeron.attacks.measured_server import MeasuredServer, memory_of, separate_nodes

MIB: Final = 1 << 20
WARM_UP_S: Final = 20 * 60.0  # the growth in this time is not bounded
MEASURED_S: Final = 20 * 60.0
WINDOW_S: Final = 120.0  # at both ends of the measured time, whose medians are compared
ALLOWED: Final = MIB * MEASURED_S / 3_600 + MIB  # 1 MiB an hour, and what differs from one minute to the next
STREAM: Final = "prices"
COMMIT_EACH: Final = 10  # connections; a commit leaves an entry in the server's time index, as it should


def use_once(server: MeasuredServer, number: int) -> None:
    """Connect, use the server and close the connection."""
    with server.connect() as client:
        client.ping()
        client.stream(STREAM)
        if number % COMMIT_EACH == 0:
            with client.writer(STREAM, writer_id="short") as writer:
                writer.write(pa.record_batch({"n": pa.array([number], pa.int64())}))
        else:
            client.bulk_link().close()


def growth(samples: list[tuple[float, int]]) -> int:
    """Return by how much the median of the last samples is larger than that of the first ones."""
    begin, end = samples[0][0], samples[-1][0]
    first = [size for at, size in samples if at <= begin + WINDOW_S]
    last = [size for at, size in samples if at >= end - WINDOW_S]
    return int(statistics.median(last) - statistics.median(first))


@pytest.mark.soak
def test_short_connections_leave_no_memory(run_name: str, tmp_path: Path) -> None:
    with separate_nodes(run_name, 2) as nodes:
        server = MeasuredServer(*nodes, tmp_path)
        try:
            with server.connect() as client:
                client.create_stream(STREAM, retention="1MiB")
            pids = {"server": server.process.pid, "node": nodes[0].pid}
            samples: dict[str, list[tuple[float, int]]] = {name: [] for name in pids}
            number, begin = 0, time.monotonic()
            while (now := time.monotonic()) < begin + WARM_UP_S + MEASURED_S:
                number += 1
                use_once(server, number)
                if now >= begin + WARM_UP_S:
                    for name, pid in pids.items():
                        samples[name].append((now, memory_of(pid)))
            grown = {name: growth(found) for name, found in samples.items()}
            print(f"\n{number} connections; growth in {MEASURED_S:g} s, in MiB: "
                  f"{ {name: round(size / MIB, 2) for name, size in grown.items()} }")  # fmt: skip
            assert max(grown.values()) <= ALLOWED, grown
        finally:
            server.close()


STREAMS: Final = 10_000
EACH_STREAM: Final = 32 * 1024  # bytes that an open stream may keep in the server
BATCH: Final = 500  # streams whose creation is compared


@pytest.mark.soak
def test_the_ten_thousandth_stream_is_created_as_fast_as_the_first(run_name: str, tmp_path: Path) -> None:
    """Regression: each creation listed all recordings of the archive, and the server kept memory of each list."""
    with separate_nodes(run_name, 2, term_length="64k", ipc_term_length="64k", segment_length="64k") as nodes:
        server = MeasuredServer(*nodes, tmp_path)
        try:
            with server.connect() as client:
                times = []
                for number in range(STREAMS):
                    if number == BATCH:
                        before = server.memory()
                    begin = time.monotonic()
                    client.create_stream(f"s{number}")
                    times.append(time.monotonic() - begin)
                grown = server.memory() - before
                first, last = statistics.median(times[:BATCH]), statistics.median(times[-BATCH:])
                print(f"\na creation takes {first * 1e3:.1f} ms at first and {last * 1e3:.1f} ms at last; "
                      f"{grown / (STREAMS - BATCH) / 1024:.1f} KiB a stream")  # fmt: skip
                assert last <= 2 * first
                assert grown <= (STREAMS - BATCH) * EACH_STREAM
        finally:
            server.close()


def test_the_growth_is_that_of_the_medians() -> None:
    flat = [(float(second), 100 * MIB) for second in range(1_200)]
    assert growth(flat) == 0
    assert growth([(at, size + (50 * MIB if at == 600 else 0)) for at, size in flat]) == 0
    leaking = growth([(at, size + int(at) * 4_096) for at, size in flat])
    assert leaking == pytest.approx(1_080 * 4_096, rel=0.01)
    assert leaking > ALLOWED
