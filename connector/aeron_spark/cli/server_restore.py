"""``aeron-spark server restore``: restores a backup into empty folders."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from aeron_spark.backup.copying import read_manifest
from aeron_spark.backup.restoring import restore_backup
from aeron_spark.cli.connections import counted
from aeron_spark.cli.output import print_json
from aeron_spark.cli.server_backup import Ticker
from aeron_spark.cli.signals import catch_termination
from aeron_spark.text_safety import escape_text
from aeron_spark.units import rounded_size

MAX_PATH: Final = 4096


def restore(directory: Path, streams_dir: Path, archive_dir: Path, *, as_json: bool) -> int:
    """Restore the backup in ``directory``. Raises the errors of ``restore_backup``."""
    ticker = Ticker(read_manifest(directory).bytes, "restored")
    with catch_termination():
        restored = restore_backup(directory, streams_dir, archive_dir, now_ns=time.time_ns(), progress=ticker)
    made = restored.manifest
    files = [str(path) for path in restored.configuration]
    if as_json:
        print_json({
            "directory": str(directory), "time": made.time, "streams": len(made.streams), "bytes": made.bytes,
            "streams_dir": str(streams_dir), "archive_dir": str(archive_dir), "damaged": made.damaged,
            "configuration": files, "unlisted": [str(path) for path in restored.unlisted],
        })  # fmt: skip
        return 0
    for name in made.damaged:
        click.echo(f"not in the backup: stream {escape_text(name)} was damaged", err=True)
    for path in restored.unlisted:
        click.echo(f"ignored, because the manifest does not list it: {escape_text(str(path), MAX_PATH)}", err=True)
    time_text = escape_text(made.time)  # another person may have made the backup
    click.echo(f"restored {counted(len(made.streams), 'stream')} of {time_text}, {rounded_size(made.bytes)}")
    for file in files:
        click.echo(f"copy this file yourself: {file}")
    return 0
