"""Tables on a real terminal of 80 columns: a terminal multiplexer shows what commands print about real servers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import aeron_spark
from aeron_spark import node
from aeron_spark.keys import KeyPaths, create_identity
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.keypair import keypair_from, public_text
from tests.aeron.streams import Stream, close_everything, numbered
from tests.cli.running_servers import TIMEOUT_S, home_of, running_server
from tests.ports import free_ports
from tests.programs import python_environ
from tests.waiting import poll_until

WIDTH = 80
HEIGHT = 60
KEYS = keypair_from(b"the key of a desk".ljust(32, b"-"))
NAME = "desk-7.frankfurt.example"
STREAM = "prices.europe.frankfurt.derivatives"


class Screen:
    """A terminal of 80 columns in a terminal multiplexer, which runs one command after the other."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux")]
        # tmux needs a UTF-8 locale to show other characters than ASCII, and each machine has this one
        self._environ = python_environ(**environ, LC_ALL="C.UTF-8", TERM="xterm")
        self._server = subprocess.Popen([*self._tmux, "-f", os.devnull, "-D"], env=self._environ)
        poll_until((folder / "tmux").exists, TIMEOUT_S, "the socket of tmux")
        self._do("new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), "cat")

    def _do(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], env=self._environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        return done.stdout

    def start(self, *arguments: str) -> None:
        """Start ``aeron-spark`` with these arguments on an empty screen."""
        command = shlex.join([sys.executable, "-m", "aeron_spark", *arguments])
        self._do("respawn-pane", "-k", f"{command}; {shlex.join(self._tmux)} wait-for -S ended; exec cat")

    def read(self) -> list[str]:
        """Return the lines on the screen."""
        return self._do("capture-pane", "-p").rstrip().splitlines()

    def run(self, *arguments: str) -> list[str]:
        """Run ``aeron-spark`` with these arguments, and return the lines of its screen."""
        self.start(*arguments)
        self._do("wait-for", "ended")
        return self.read()

    def watch(self, wanted: str, *arguments: str) -> list[str]:
        """Run a command until its screen has a text; return this screen."""
        self.start(*arguments)
        lines = poll_until(
            lambda: next((found for found in [self.read()] if wanted in "\n".join(found)), None),
            TIMEOUT_S,
            f"{wanted!r} on the screen",
            state=lambda: "\n".join(self.read()),
        )
        self._do("send-keys", "C-c")
        self._do("wait-for", "ended")
        return lines

    def close(self) -> None:
        self._do("kill-server")
        self._server.wait(TIMEOUT_S)


class Site(NamedTuple):
    """A screen, a server with a stream and a client, and a recorded stream with a long channel."""

    screen: Screen
    address: str
    store: str
    recorded: Stream

    @property
    def flags(self) -> list[str]:
        """The options that name the recorded stream."""
        return ["--channel", self.recorded.channel, "--stream-id", str(self.recorded.id)]


@pytest.fixture(scope="module")
def site(shared: Path, tmp_path_factory: pytest.TempPathFactory, worker_node: node.NodeHandle) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    authorized = folder / "authorized"
    home = home_of(folder / "operator", shared)
    operator = create_identity(KeyPaths.below(folder / "operator").identity)
    lines = [f"all name={name} {public_text(keys.public)}\n" for name, keys in ((NAME, KEYS), ("operator", operator))]
    authorized.write_text("".join(lines))
    authorized.chmod(0o600)
    address, store = f"127.0.0.1:{free_ports()[0]}", str(folder / "streams")
    recorded = Stream(worker_node, f"aeron:ipc?alias={'long-' * 10}name").record()
    recorded.publisher().send(numbered(0, 3))
    with running_server(
        folder / "home", shared, address, "--authorized-keys", str(authorized), "--streams-dir", store
    ) as server:
        server.wait("listening")
        with aeron_spark.connect(
            address, aeron_dir=str(shared), ipc="never", tag="a tag", store=MemoryPeerStore(KEYS)
        ) as client:
            client.create_stream(STREAM, 4, retention="7d")
            screen = Screen(folder, home)
            yield Site(screen, address, store, recorded)
            screen.close()
    recorded.close()
    close_everything()


def entries(lines: list[str]) -> list[str]:
    """Return the rows of the tables on a screen. Each has one line, and no line is longer than the terminal."""
    assert max(map(len, lines)) <= WIDTH
    rows = [line for line in lines if line.startswith("│")]
    assert all(line.endswith("│") for line in rows), "\n".join(lines)
    assert all(line.split("│")[1].strip() for line in rows), "\n".join(lines)  # no row continues another one
    return rows


def test_a_recording_has_one_line(site: Site) -> None:
    """Regression: a recording took 24 lines."""
    lines = site.screen.run("recordings", "list", *site.flags)
    assert lines[0] == "recordings (5 columns hidden, texts cut off: --wide shows all)"
    (row,) = entries(lines)
    assert "aeron:ipc?alias=long-lo" in row
    assert "active" in row


def test_a_stream_of_a_server_has_one_line(site: Site) -> None:
    lines = site.screen.run("streams", "list", "--server", site.address)
    assert lines[0] == "streams (2 columns hidden: --wide shows all)"
    (row,) = entries(lines)
    assert STREAM in row


def test_a_stream_of_an_archive_has_one_line(site: Site) -> None:
    lines = site.screen.run("streams", "list", *site.flags)
    assert lines[0] == "streams (2 columns hidden, texts cut off: --wide shows all)"
    (row,) = entries(lines)
    assert "aeron:ipc?alias=long-lo" in row


def test_a_connection_has_one_line(site: Site) -> None:
    lines = site.screen.run("connections", "list", "--streams-dir", site.store)
    assert lines[0] == "connections (10 columns hidden: --wide shows all)"
    (row,) = [row for row in entries(lines) if NAME in row]
    assert "connected" in row


def test_a_property_of_a_status_has_one_line(site: Site) -> None:
    """Those of a server, and those of a node."""
    lines = site.screen.run("server", "status", "--streams-dir", site.store)
    assert lines[0] == "server (texts cut off: --wide shows all)"
    found = [row.split("│")[1].strip() for row in entries(lines)]
    assert len(found) == len(set(found))
    assert {"ready", "key", "stageBytes"} <= set(found)
    lines = site.screen.run("node", "status")
    found = [row.split("│")[1].strip() for row in entries(lines)]
    assert len(found) == len(set(found))
    assert {"state", "aeron directory"} <= set(found)


def test_top_has_one_line_for_each_stream_and_connection(site: Site) -> None:
    lines = site.screen.watch("streams (", "top", "--every", "0.1")
    rows = entries(lines)
    assert any("aeron:ipc" in row for row in rows)
    assert any("Bytes sent" in row for row in rows)
    lines = site.screen.watch(STREAM[:10], "top", "--server", "--every", "0.1", "--streams-dir", site.store)
    rows = entries(lines)
    assert len([row for row in rows if NAME[:12] in row]) == 1
    assert len([row for row in rows if STREAM[:12] in row]) == 1


def test_wide_shows_what_a_narrow_table_hides(site: Site) -> None:
    """The terminal wraps lines that are too long; a joined line has everything."""
    text = "".join(site.screen.run("recordings", "list", *site.flags, "--wide"))
    assert "hidden" not in text
    assert site.recorded.channel in text
    assert "started by" in text
