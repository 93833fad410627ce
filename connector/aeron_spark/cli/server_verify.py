"""``aeron-spark server verify``: checks a store with its archive for damage, while no server uses them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from aeron_spark.backup.findings import DAMAGE
from aeron_spark.backup.verifying import Checked, verify_store
from aeron_spark.cli.admin_client import read_admin_options
from aeron_spark.cli.connections import counted
from aeron_spark.cli.main import FAILED
from aeron_spark.cli.output import print_json
from aeron_spark.cli.server_backup import PROGRESS_INTERVAL_S
from aeron_spark.errors import InUseError, OptionError
from aeron_spark.node.locks import FileLock, current_owner_text
from aeron_spark.node.paths import ARCHIVE_LOCK
from aeron_spark.node.starting import local_node_paths
from aeron_spark.streams.store_folder import LOCK
from aeron_spark.units import rounded_size


def verify(
    config: Path | None, streams_dir: Path | None, archive_dir: Path | None, *, quick: bool, as_json: bool
) -> int:
    """Print the findings. Return 0, or 1 if one is damage. Raises InUseError while a server or a node runs."""
    streams, archive = _folders(config, streams_dir, archive_dir)
    for folder in (streams, archive):
        if not folder.is_dir():
            raise OptionError(f"{folder} is not a folder", remedy="Give --streams-dir and --archive-dir.")
    checked, damages, began = Checked(), 0, time.monotonic()
    with _unused(streams, archive):
        for finding in verify_store(streams, archive, checked, is_quick=quick, progress=_Progress()):
            damages += finding.level == DAMAGE
            if as_json:
                print_json(finding)
            else:
                click.echo(str(finding))
    seconds = time.monotonic() - began
    if as_json:
        print_json({"level": "summary", **asdict(checked), "damages": damages, "seconds": seconds})
    else:
        result = counted(damages, "damage") if damages else "no damage"
        speed = "" if quick else f", {rounded_size(checked.bytes)} in {seconds:.1f} s"
        click.echo(
            f"{result} in {counted(checked.streams, 'stream')}, {counted(checked.partitions, 'partition')}{speed}"
        )
    return FAILED if damages else 0


class _Progress:
    """Prints how many bytes were read, if it takes long."""

    def __init__(self) -> None:
        self._done = 0
        self._shown_at = time.monotonic()

    def __call__(self, size: int) -> None:
        self._done += size
        if time.monotonic() - self._shown_at >= PROGRESS_INTERVAL_S:
            self._shown_at = time.monotonic()
            click.echo(f"checked {rounded_size(self._done)}", err=True)


def _folders(config: Path | None, streams_dir: Path | None, archive_dir: Path | None) -> tuple[Path, Path]:
    """Return the folders of the store and of the archive: those of the options, or the ones that a server uses."""
    configured = {} if config is None else read_admin_options(config)
    archive = archive_dir or local_node_paths(configured.get("aerondir"), None, os.environ).archive_dir
    return Path(streams_dir or configured.get("streamsdir") or f"{archive}.streams"), archive


@contextmanager
def _unused(streams_dir: Path, archive_dir: Path) -> Iterator[None]:
    """Lock both folders against a start, if they have lock files. Raises InUseError."""
    with ExitStack() as stack:
        for path, user in ((streams_dir / LOCK, "server"), (archive_dir / ARCHIVE_LOCK, "node")):
            if not path.exists():  # a copy, which no server has used
                continue
            lock = stack.enter_context(FileLock(path))
            if not lock.try_acquire():
                raise InUseError(
                    f"{path.parent} is in use by {user} process {current_owner_text(path)}",
                    remedy="Stop it first: rows that are being written cannot be checked.",
                )
        yield
