"""The context of the running Spark task: its partition, query, run and micro-batch, and its key files."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from aeron_spark.errors import OptionError, SetupError
from aeron_spark.options import DirectRoute, ServerRoute, WriteOptions, parse_servers_file
from aeron_spark.options.values import ENVIRONMENT

if TYPE_CHECKING:
    from aeron_spark.log.writing import Source

QUERY: Final = "sql.streaming.queryId"

BATCH: Final = "streaming.sql.batchId"

RUN: Final = "spark.jobGroup.id"  # a streaming query runs its jobs in a group named by its run


def partition_of_task() -> int | None:
    """Return the number of this task's Spark partition, or None outside a task."""
    context = TaskContext.get()
    return None if context is None else context.partitionId()


def local_property(name: str) -> str | None:
    """Return a local property of this task, such as ``QUERY``, or None."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def source_of(options: WriteOptions, batch_writer: str) -> Source:
    """Return the writer for the metadata of rows; ``batch_writer`` is the name of a batch without a writer id."""
    from aeron_spark.log.writing import Source

    partition, batch = partition_of_task(), local_property(BATCH)
    writer = options.writer_id or local_property(QUERY) or batch_writer
    return Source(writer, -1 if batch is None else int(batch), -1 if partition is None else partition)


SECRET_FILE: Final = "sharedSecretFile"
OTHERS_ANY: Final = 0o077  # permissions of other users


def resolve_key_files(route: DirectRoute | ServerRoute) -> DirectRoute | ServerRoute:
    """Return ``route`` with the paths of its key files on this machine, without reading them.

    Raises SetupError for a missing file. Tasks run on other machines than the query's driver, so the driver sends the
    option's text, and each task resolves it.
    """
    if isinstance(route, DirectRoute):
        return route
    client = tuple((name, find_file(name, text) if name == SECRET_FILE else text) for name, text in route.client)
    identity = route.identity
    if identity is not None and not identity.startswith(ENVIRONMENT):
        identity = find_file("identity", identity)
    return replace(route, identity=identity, client=client)


def with_servers(route: DirectRoute | ServerRoute) -> DirectRoute | ServerRoute:
    """Return ``route`` with the servers in its servers file. Only the query's driver calls this; tasks need no file.

    Raises SetupError if the file cannot be read, OptionError if it is not a list of servers.
    """
    if isinstance(route, DirectRoute) or route.servers_file is None:
        return route
    path = find_file("server", route.servers_file)
    try:
        return route.with_servers(parse_servers_file(Path(path).read_text("utf-8")))
    except OptionError as error:
        raise OptionError(f"option 'server': {path}: {error.what}", remedy=error.remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SetupError(
            f"option 'server': {path} cannot be read: {cause}", remedy="Write 'host:port key', one server per line."
        ) from None


def check_route(route: DirectRoute | ServerRoute) -> None:
    """Check the client's options and keys when the query is built, without a connection. Raises their errors."""
    if isinstance(route, DirectRoute):
        return
    from aeron_spark.keys.key_files import read_shared_secret
    from aeron_spark.keys.stores import load_identity
    from aeron_spark.options import ClientOptions

    resolved = resolve_key_files(with_servers(route))
    assert isinstance(resolved, ServerRoute)
    for server in resolved.servers:
        options = ClientOptions.parse(server.address, dict(resolved.client) | {"serverKey": server.key})
        read_shared_secret(options.shared_secret_file)
    if resolved.identity is not None:
        load_identity(resolved.identity)


def find_file(option: str, text: str) -> str:
    """Return the path of a file that an option names: a path, or a name in SparkFiles. Raises SetupError without it."""
    path = Path(text).expanduser()
    if path.is_absolute() or path.exists():
        return str(path.absolute())
    spark_file = _spark_file(text)
    if spark_file is None:
        raise SetupError(
            f"option '{option}': there is no file {text} in {Path.cwd()} or in Spark's files",
            remedy="Give a path that is the same on all machines, or distribute the file with spark.addFile(path) or "
            "--files, and give its name.",
        )
    return str(spark_file)


def _spark_file(name: str) -> Path | None:
    """Return the file with this name in SparkFiles, a folder that only this user can read; None without it."""
    if Path(name).name != name:
        return None
    from pyspark import SparkFiles  # the package pyspark-client does not have it

    try:
        path = Path(SparkFiles.getRootDirectory()) / name
        mode = path.stat().st_mode
    except (AssertionError, OSError):  # no SparkContext, or no such file
        return None
    if stat.S_IMODE(mode) & OTHERS_ANY:
        os.chmod(path, 0o600)  # Spark's copy does not have the mode of the original
    return path
