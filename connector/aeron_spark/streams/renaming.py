"""Renames a stream: first its definition gets the new name, then its folder. A start finishes a half-done rename."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from aeron_spark.disk import sync_folder, write_failed
from aeron_spark.errors import AeronSparkError
from aeron_spark.streams.definition import Definition, read_definition, write_definition


def rename_files(folder: Path, definition: Definition) -> None:
    """Give the stream in ``folder`` its new ``definition``, and the folder the name of that.

    Raises TransportError if the disk fails: the stream has its former name then, or the next start renames it.
    """
    before = read_definition(folder)
    write_definition(folder, definition)
    try:
        folder.rename(folder.with_name(definition.name))
        sync_folder(folder.parent)
    except OSError as error:
        with suppress(AeronSparkError):
            if folder.exists():
                write_definition(folder, before)
        raise write_failed(folder, error) from error


def is_half_renamed(folder: Path, definition: Definition) -> bool:
    """Return whether a stream with this ``definition`` is in the folder of its former name, which a start renames."""
    return definition.is_former_name(folder.name) and not folder.with_name(definition.name).exists()


def finish_rename(folder: Path) -> Path:
    """Rename a stream's folder if a crash prevented that; return the folder with its present name.

    A folder with a damaged definition, or one that has never been a folder of its stream, is returned unchanged. Raises
    TransportError if the disk fails.
    """
    try:
        definition = read_definition(folder)
    except AeronSparkError:
        return folder
    if not is_half_renamed(folder, definition):
        return folder
    target = folder.with_name(definition.name)
    try:
        folder.rename(target)
        sync_folder(folder.parent)
    except OSError as error:
        raise write_failed(folder, error) from error
    return target
