"""Writes ``docs/pictures/top.svg``: the screen of ``aeron-spark top --server`` beside clients, from a real terminal.

``python -m tools.top_picture`` starts a node and a server with streams in folders of its own, lets ``tmux`` show the
command, and draws the characters and colours of its screen. It needs tmux, and ends all that it started.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import aeron_spark
from aeron_spark.keys.stores import create_identity
from aeron_spark.protocol.keypair import public_text

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "pictures" / "top.svg"
COMMAND: Final = (sys.executable, "-m", "aeron_spark")
ADDRESS: Final = "127.0.0.1:20121"
WIDTH: Final = 100
HEIGHT: Final = 28
TIMEOUT_S: Final = 60.0
# Client, its stream, the rows of a transaction, and the pause between two of them in seconds.
WRITERS: Final = (("gateway", "trades", 4_000, 0.1), ("desk-7", "prices", 1_000, 0.2), ("lab", "readings", 20, 0.5))


def picture_of(screen: str, title: str) -> str:
    """Return an SVG of a screen with escape sequences for its colours."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(screen.rstrip()), end="", soft_wrap=True)
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id="top")
    # The picture loads no font from the network.
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code,", "")


def take_picture(store: Path, folder: Path) -> str:
    """Return the picture of ``top`` beside the server with this store."""
    tmux = ["tmux", "-S", str(folder / "tmux")]
    environ = os.environ | {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
    shown = ["top", "--server", "--streams-dir", str(store)]
    start = [*tmux, "-f", os.devnull, "new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), *COMMAND, *shown]
    subprocess.run(start, env=environ, check=True, timeout=TIMEOUT_S)
    try:
        capture = [*tmux, "capture-pane", "-e", "-p"]
        deadline, is_complete = time.monotonic() + TIMEOUT_S, False
        while not is_complete:
            screen = subprocess.run(capture, env=environ, check=True, capture_output=True, text=True).stdout
            is_complete = all(stream in screen for _, stream, _, _ in WRITERS)
            if not is_complete and time.monotonic() > deadline:
                raise SystemExit(f"the screen does not show all streams within {TIMEOUT_S:.0f} s:\n{screen}")
            time.sleep(3.0)  # the rates of an update are of the time since the one before
        screen = subprocess.run(capture, env=environ, check=True, capture_output=True, text=True).stdout
        return picture_of(screen, "aeron-spark top --server")
    finally:
        subprocess.run([*tmux, "kill-server"], check=True, timeout=TIMEOUT_S)


def _write(client: aeron_spark.Client, stream: str, rows: int, pause_s: float, ended: threading.Event) -> None:
    batch = pa.record_batch({"at": range(rows), "price": [1.5] * rows})
    with client.writer(stream) as out:
        while not ended.wait(pause_s):
            out.write(batch)
            out.commit()


def main() -> None:
    """Take the picture and write it."""
    ended = threading.Event()
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        folder, aeron_dir = Path(name), f"{memory}/aeron"
        os.environ |= {"AERON_SPARK_CONFIG_HOME": f"{name}/config", "AERON_SPARK_DATA_HOME": f"{name}/data"}
        keys = {client: create_identity(folder / client) for client, *_ in WRITERS}
        authorized = folder / "authorized"
        authorized.write_text("".join(f"all name={one} {public_text(key.public)}\n" for one, key in keys.items()))
        authorized.chmod(0o600)
        store = folder / "streams"
        server = aeron_spark.Server(
            ADDRESS, aeron_dir=aeron_dir, streams_dir=str(store), authorized_keys=str(authorized)
        )
        with server:
            clients, threads = [], []
            for who, stream, rows, pause_s in WRITERS:
                clients.append(aeron_spark.connect(ADDRESS, identity=str(folder / who), aeron_dir=aeron_dir, tag=who))
                clients[-1].create_stream(stream, 2)
                threads.append(threading.Thread(target=_write, args=(clients[-1], stream, rows, pause_s, ended)))
                threads[-1].start()
            try:
                PICTURE.write_text(take_picture(store, folder), encoding="utf-8")
            finally:
                ended.set()
                for thread in threads:
                    thread.join(TIMEOUT_S)
                for client in clients:
                    client.close()
        subprocess.run([*COMMAND, "node", "stop", "--aeron-dir", aeron_dir, "--force"], check=True, timeout=TIMEOUT_S)


if __name__ == "__main__":
    main()
