"""What Spark says of the task that runs here: its partition, its query, its run and its micro-batch."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark import SparkFiles, TaskContext

from aeron_spark.errors import OptionError, SetupError
from aeron_spark.log.writing import Source
from aeron_spark.options import ClientOptions, DirectRoute, ServerRoute, WriteOptions, parse_servers_file

QUERY: Final = "sql.streaming.queryId"

BATCH: Final = "streaming.sql.batchId"

RUN: Final = "spark.jobGroup.id"  # a streaming query runs its jobs in a group named by its run


def partition_of_task() -> int | None:
    """Return the number of this task's partition, None where no task runs here."""
    context = TaskContext.get()
    return None if context is None else context.partitionId()


def local_property(name: str) -> str | None:
    """Return what Spark says of this task, such as ``QUERY``."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def source_of(options: WriteOptions, batch_writer: str) -> Source:
    """Return who writes, as it stands in the metadata; ``batch_writer`` is for a batch that nobody named."""
    partition, batch = partition_of_task(), local_property(BATCH)
    writer = options.writer_id or local_property(QUERY) or batch_writer
    return Source(writer, -1 if batch is None else int(batch), -1 if partition is None else partition)


ENVIRONMENT: Final = "env:"

SECRET_FILE: Final = "sharedSecretFile"

OTHERS: Final = 0o077


def resolve_key_files(way: DirectRoute | ServerRoute) -> DirectRoute | ServerRoute:
    """Return ``way`` with its keys as this machine's files; nothing is read. Raises SetupError for one that is missing.

    Tasks run on other machines than the query's driver: what travels is the option as it was given.
    """
    if isinstance(way, DirectRoute):
        return way
    client = tuple((name, _found(name, text) if name == SECRET_FILE else text) for name, text in way.client)
    identity = way.identity
    if identity is not None and not identity.startswith(ENVIRONMENT):
        identity = _found("identity", identity)
    return replace(way, identity=identity, client=client)


def with_servers(way: DirectRoute | ServerRoute) -> DirectRoute | ServerRoute:
    """Return ``way`` with the servers that its file lists now. For the query's driver: tasks do not need the file.

    Raises SetupError where it cannot be read, OptionError where it is no such list.
    """
    if isinstance(way, DirectRoute) or way.servers_file is None:
        return way
    path = _found("server", way.servers_file)
    try:
        return way.with_servers(parse_servers_file(Path(path).read_text("utf-8")))
    except OptionError as error:
        raise OptionError(f"option 'server': {path}: {error.what}", remedy=error.remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SetupError(
            f"option 'server': {path} cannot be read: {why}", remedy="Write 'host:port key', a server a line."
        ) from None


def check(way: DirectRoute | ServerRoute) -> None:
    """Raise what is wrong with the client's options or keys, while the query is being built; nothing is started."""
    if isinstance(way, DirectRoute):
        return
    from aeron_spark.client.settings import ClientSettings
    from aeron_spark.keys.identity import load_identity

    own = resolve_key_files(with_servers(way))
    assert isinstance(own, ServerRoute)
    for server in own.servers:
        options = ClientOptions.parse(server.address, dict(own.client) | {"serverKey": server.key})
        ClientSettings.of(options)
    if own.identity is not None:
        load_identity(own.identity)


def _found(option: str, text: str) -> str:
    path = Path(text).expanduser()
    if path.is_absolute() or path.exists():
        return str(path.absolute())
    brought = _brought(text)
    if brought is None:
        raise SetupError(
            f"option '{option}': there is no file {text} in {Path.cwd()}, and Spark brought none of that name",
            remedy="Give its path, which has to be the same on all machines, or send it along: spark.addFile(path), or "
            "--files, and give its name.",
        )
    return str(brought)


def _brought(name: str) -> Path | None:
    """The file of this name in SparkFiles, which Spark put into a folder that is this user's alone."""
    if Path(name).name != name:
        return None
    try:
        path = Path(SparkFiles.getRootDirectory()) / name
        mode = path.stat().st_mode
    except (AssertionError, OSError):  # there is no SparkContext here, or no such file
        return None
    if stat.S_IMODE(mode) & OTHERS:
        os.chmod(path, 0o600)  # Spark's copy has lost the mode of the original
    return path
