from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import TransportError
from aeron_spark.waiting import wait_for
from tests.cli.conftest import run


@pytest.mark.parametrize("command", ["stat", "errors", "loss", "backlog", "top"])
def test_a_missing_driver_is_an_error_with_a_remedy(command: str, own_dir: Path) -> None:
    result = run(command, "--aeron-dir", str(own_dir))
    assert result.code == 1
    assert result.out == ""
    assert result.err.startswith(f"aeron-spark: no media driver in {own_dir} can be read")
    assert "aeron-spark node start" in result.err


def counted(where: tuple[str, ...], stream_id: int, published: int) -> dict[int, dict[str, Any]] | None:
    """Return the streams of ``backlog`` by id if this stream's publisher position is ``published``, else None."""
    streams = {line["stream_id"]: line for line in run("backlog", *where, "--json").lines}
    return streams if streams.get(stream_id, {}).get("publisher_position") == published else None


def test_counters_backlog_and_errors_of_a_driver_are_shown(own_dir: Path) -> None:
    where = ("--aeron-dir", str(own_dir))
    with node.ensure(own_dir) as handle:
        assert (run("errors", *where).out, run("errors", *where).err) == ("", "no errors\n")
        assert run("loss", *where).err == "no loss\n"
        assert run("loss", *where, "--json").lines == []
        client = AeronClient(str(own_dir))
        with pytest.raises(TransportError):
            client.subscription("aeron:udp?endpoint=no.such.host.invalid:1", 5)
        client.subscription("aeron:ipc", 1001)
        publication = client.exclusive_publication("aeron:ipc", 1001)
        value = jclass("org.agrona.concurrent.UnsafeBuffer")(jclass("java.nio.ByteBuffer").allocateDirect(100))
        # The driver sets the limit of a publication shortly after it is connected.
        wait_for(lambda: int(publication.offer(value)) == 160, 30, "a message to be taken")

        # The driver updates the publisher position periodically, not with each message.
        streams = wait_for(lambda: counted(where, 1001, 160), 30, "the driver to count the message")
        assert streams[1001]["channel"] == "aeron:ipc"
        assert streams[1001]["subscribers"][0]["position"] == 0
        assert "1001" in run("backlog", *where).out

        (view,) = run("top", *where, "--json", "--count", "1", "--every", "0.1").lines
        assert (view["pid"], view["alive"]) == (handle.pid, True)
        (stream,) = [stream for stream in view["streams"] if stream["stream_id"] == 1001]
        assert (stream["published"], stream["behind"], stream["subscribers"]) == (160, 160, 1)
        assert stream["published_per_second"] == 0
        assert "1001" in run("top", *where, "--count", "1", "--every", "0.1").out

        counters = run("stat", *where, "--json", "--label", "Bytes").lines
        assert [line["label"] for line in counters][:2] == ["Bytes sent", "Bytes received"]
        plain = run("stat", *where).out.splitlines()
        assert plain[0].split("\t")[2].startswith("Bytes sent")

        (error,) = run("errors", *where, "--json").lines
        assert error["observations"] == 1
        assert "no.such.host.invalid" in error["text"]
        assert "no.such.host.invalid" in run("errors", *where).out
        client.close()
