"""``aeron-spark server backup|restore|verify``: copies a running server's streams, restores a copy, checks a store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from aeron_spark.backup.copying import BackupOutcome, BackupSource, check_target, find_base, read_manifest, write_backup
from aeron_spark.backup.manifest import CONFIGURATION_FILES, DAMAGE
from aeron_spark.backup.restoring import restore_backup
from aeron_spark.backup.verifying import Checked, verify_store
from aeron_spark.cli.admin_client import ask, ask_all, read_admin_options
from aeron_spark.cli.connections import counted
from aeron_spark.cli.main import FAILED
from aeron_spark.cli.output import print_json
from aeron_spark.cli.signals import catch_termination
from aeron_spark.errors import AeronSparkError, InUseError, OptionError, SetupError
from aeron_spark.node.lifecycle import local_node_paths
from aeron_spark.node.locks import FileLock, current_owner_text
from aeron_spark.node.paths import ARCHIVE_LOCK
from aeron_spark.process import pid_namespace
from aeron_spark.streams.model import StreamCut
from aeron_spark.streams.store import LOCK
from aeron_spark.texts import escape_text, rounded_size

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


def _source(begun: Mapping[str, Any], cuts: list[Mapping[str, Any]], *, with_identity: bool) -> BackupSource:
    """Return what to copy. Raises SetupError if the identity is asked for, and not in a file."""
    if with_identity and not begun["identity_file"]:
        raise SetupError("the server's key is in an environment variable, not in a file", remedy="Copy it by hand.")
    files = {
        name: Path(begun[key])
        for key, name in CONFIGURATION_FILES.items()
        if begun[key] and (key != "identity_file" or with_identity)
    }
    streams_dir = Path(begun["streams_dir"])
    return BackupSource(
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


def _print(directory: Path, begun: Mapping[str, Any], outcome: BackupOutcome, seconds: float, *, as_json: bool) -> None:
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
