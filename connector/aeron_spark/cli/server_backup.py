"""``aeron-spark server backup``: asks the running server for a cut of its streams, and copies their files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from aeron_spark.backup.copying import Outcome, Source, check_target, find_base, write_backup
from aeron_spark.backup.manifest import CONFIGURATION_FILES
from aeron_spark.cli.admin_client import ask, ask_all
from aeron_spark.cli.connections import counted
from aeron_spark.cli.output import print_json
from aeron_spark.cli.signals import catch_termination
from aeron_spark.errors import AeronSparkError, SetupError
from aeron_spark.processes import pid_namespace
from aeron_spark.streams.cut import StreamCut
from aeron_spark.units import rounded_size

CUT_TIMEOUT_S: Final = 60.0  # a stream waits for an fsync of its journal
RENEW_INTERVAL_S: Final = 5.0  # the server ends a backup that is not renewed for a minute
PROGRESS_INTERVAL_S: Final = 2.0  # fast enough to see a change, few enough lines for a log
NICENESS: Final = 10  # the server goes first
NS: Final = 1_000_000_000


class Ticker:
    """Counts copied bytes: prints the progress of a long copy, and calls ``renew`` at intervals."""

    def __init__(self, total: int, verb: str, renew: Callable[[], object] | None = None) -> None:
        self._total = total
        self._verb = verb
        self._renew = renew
        self._done = 0
        self._shown_at = self._renewed_at = time.monotonic()

    def __call__(self, size: int) -> None:
        """Count bytes. Raises the exceptions of ``renew``."""
        self._done += size
        now = time.monotonic()
        if now - self._shown_at >= PROGRESS_INTERVAL_S:
            self._shown_at = now
            click.echo(f"{self._verb} {rounded_size(self._done)} of about {rounded_size(self._total)}", err=True)
        if self._renew is not None and now - self._renewed_at >= RENEW_INTERVAL_S:
            self._renewed_at = now
            self._renew()


def back_up(
    path: Path, directory: Path, *, incremental: bool, with_identity: bool, skip_damaged: bool, as_json: bool
) -> int:
    """Back up the server at the admin socket ``path``. Raises its errors, and those of ``write_backup``."""
    directory = Path(os.path.abspath(directory))
    check_target(directory)
    process = {"pid": os.getpid(), "pid_namespace": pid_namespace()}
    begun, *cuts = ask_all(
        path, "backup.begin", {"directory": str(directory), "skip_damaged": skip_damaged, **process}, CUT_TIMEOUT_S
    )
    number = {"id": begun["id"]}
    started = time.monotonic()
    try:
        with catch_termination():
            os.nice(NICENESS)
            source = _source(begun, cuts, with_identity=with_identity)
            base = find_base(directory) if incremental else None
            if incremental and base is None:
                click.echo(f"no earlier backup in {directory.parent}: all files are copied", err=True)
            ticker = Ticker(source.bytes, "copied", lambda: ask(path, "backup.renew", number))
            ask(path, "backup.renew", number)
            outcome = write_backup(source, directory, base, ticker)
    except BaseException as error:
        with suppress(AeronSparkError):  # the server ends the backup after a second in any case
            ask(path, "backup.end", {**number, "error": _text_of(error)})
        raise
    try:
        ask(path, "backup.end", {**number, "bytes": outcome.manifest.bytes})
    except AeronSparkError as error:
        click.echo(f"the backup is complete, but the server could not note it: {error}", err=True)
    _print(directory, begun, outcome, time.monotonic() - started, as_json=as_json)
    return 0


def _source(begun: Mapping[str, Any], cuts: list[Mapping[str, Any]], *, with_identity: bool) -> Source:
    """Return what to copy. Raises SetupError if the identity is asked for, and not in a file."""
    if with_identity and not begun["identity_file"]:
        raise SetupError("the server's key is in an environment variable, not in a file", remedy="Copy it by hand.")
    files = {
        name: Path(begun[key])
        for key, name in CONFIGURATION_FILES.items()
        if begun[key] and (key != "identity_file" or with_identity)
    }
    streams_dir = Path(begun["streams_dir"])
    return Source(
        streams_dir=streams_dir,
        archive_dir=Path(begun["archive_dir"]),
        cuts=[StreamCut.from_json(cut) for cut in cuts],
        time_ns=int(begun["time"] * NS),
        release=begun["release"],
        damaged=begun["damaged"],
        store_files=[streams_dir / name for name in begun["store_files"]],
        configuration=files,
    )


def _text_of(error: BaseException) -> str:
    if isinstance(error, AeronSparkError):
        return error.what
    return "the command was interrupted" if isinstance(error, KeyboardInterrupt) else repr(error)


def _print(directory: Path, begun: Mapping[str, Any], outcome: Outcome, seconds: float, *, as_json: bool) -> None:
    made = outcome.manifest
    if as_json:
        print_json({
            "directory": str(directory), "time": made.time, "streams": len(made.streams), "files": len(made.files),
            "bytes": made.bytes, "linked_bytes": outcome.linked_bytes, "damaged": made.damaged,
            "cut_seconds": begun["cut_s"], "seconds": seconds,
        })  # fmt: skip
        return
    for name in made.damaged:
        click.echo(f"not in the backup: stream {name} is damaged", err=True)
    linked = f", {rounded_size(outcome.linked_bytes)} of them linked" if outcome.linked_bytes else ""
    click.echo(
        f"{directory}: {counted(len(made.streams), 'stream')} of {made.time}, {len(made.files)} files with "
        f"{rounded_size(made.bytes)}{linked}"
    )
