"""The key files of a server, as its options name them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from aeron_spark import node
from aeron_spark.errors import DataFormatError, OptionError, SetupError
from aeron_spark.keys.client_table import ClientTable
from aeron_spark.keys.identity import load_identity
from aeron_spark.keys.stores import FilePeerStore, KeyPaths
from aeron_spark.options import ServerOptions


def peer_store_of(options: ServerOptions) -> FilePeerStore:
    """Return the keys of a server. Raises OptionError for a missing or wrong clients file, SetupError for its key."""
    paths = key_paths_of(options)
    identity = load_identity(options.identity) if is_from_environment(options) and options.identity else None
    return FilePeerStore(paths, identity, clients_of(options, paths.authorized_keys))


def key_paths_of(options: ServerOptions) -> KeyPaths:
    """Return the paths of a server's key files."""
    defaults = KeyPaths.below(node.config_home(os.environ))
    paths = replace(defaults, identity=defaults.server_identity)
    if options.identity is not None and not is_from_environment(options):
        paths = replace(paths, identity=Path(options.identity))
    if options.authorized_keys is not None:
        paths = replace(paths, authorized_keys=Path(options.authorized_keys))
    return paths


def is_from_environment(options: ServerOptions) -> bool:
    """Whether the server's key is in an environment variable."""
    return options.identity is not None and options.identity.startswith("env:")


def clients_of(options: ServerOptions, path: Path) -> ClientTable | None:
    """Return the grants of the clients file; None if every key has every grant.

    Raises OptionError for a missing or wrong file.
    """
    if options.allow_any_key:
        if options.authorized_keys is not None or path.exists():
            raise OptionError(
                f"option 'allowAnyKey' contradicts the clients file {path}",
                remedy="Leave the option out, or remove the file.",
            )
        return None
    if options.authorized_keys is None and not path.exists():
        raise OptionError(
            f"no authorised keys: {path} does not exist",
            remedy="Create it, or pass --allow-any-key (allow_any_key=True), which gives every key every grant.",
        )
    try:
        return ClientTable(path)
    except (SetupError, DataFormatError) as error:
        raise OptionError(f"option 'authorizedKeys': {error.what}", remedy=error.remedy) from None
