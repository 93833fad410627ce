"""Where keys are on this machine: a path, a file that Spark brought along, or a variable of the environment."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark import SparkFiles

from aeron_spark.errors import SetupError
from aeron_spark.options import Direct, Through

ENVIRONMENT: Final = "env:"
SECRET_FILE: Final = "sharedSecretFile"
OTHERS: Final = 0o077


def here(way: Direct | Through) -> Direct | Through:
    """Return ``way`` with its keys as this machine's files; nothing is read. Raises SetupError for one that is missing.

    Tasks run on other machines than the query's driver: what travels is the option as it was given.
    """
    if isinstance(way, Direct):
        return way
    client = tuple((name, _found(name, text) if name == SECRET_FILE else text) for name, text in way.client)
    identity = way.identity
    if identity is not None and not identity.startswith(ENVIRONMENT):
        identity = _found("identity", identity)
    return replace(way, identity=identity, client=client)


def check(way: Direct | Through) -> None:
    """Raise what is wrong with the client's options or keys, while the query is being built; nothing is started."""
    if isinstance(way, Direct):
        return
    from aeron_spark.client.options import client_options
    from aeron_spark.keys.identity import load_identity

    own = here(way)
    assert isinstance(own, Through)
    for address, key in zip(own.addresses, own.server_keys, strict=True):
        client_options(address, dict(own.client) | {"serverKey": key})
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
