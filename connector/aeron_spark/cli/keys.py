"""``aeron-spark keys``: manages this user's identity key and its known servers."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Final

import click

from aeron_spark.cli import output
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import json_option, print_json, print_table, table_options
from aeron_spark.cli.signals import OperationError
from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.keys import (
    KeyPaths,
    KnownServers,
    create_identity,
    load_identity,
    parse_server,
    read_identity,
    set_passphrase,
)
from aeron_spark.keys.stores import PASSPHRASE
from aeron_spark.node.paths import config_home
from aeron_spark.protocol.keypair import KeyPair, fingerprint, parse_public, public_text

DEFAULT_IDENTITY: Final = "[default: identity in $XDG_CONFIG_HOME/aeron-spark]"

_known_option = click.option(
    "--known-servers",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File of known servers.  [default: known_servers in $XDG_CONFIG_HOME/aeron-spark]",
)


@click.group(cls=SuggestingGroup)
def keys() -> None:
    """Make and show this user's identity key, and manage the servers that this user knows.

    A client proves its identity key to a server, which can admit only authorised keys. A client refuses a server whose
    key differs from the one in its file of known servers.
    """


@keys.command()
@click.option("--identity", metavar="FILE", type=click.Path(path_type=Path), help=f"File to make.  {DEFAULT_IDENTITY}")
@click.option(
    "--force", is_flag=True, help="Replace an existing identity. Servers that authorise its key then refuse this user."
)
@click.option(
    "--passphrase",
    is_flag=True,
    help=f"Encrypt the private key with a passphrase: that in {PASSPHRASE}, or one that you type.  [default: not "
    "encrypted, but only this user can read the file]",
)
@json_option
def new(identity: Path | None, force: bool, passphrase: bool, as_json: bool) -> None:
    """Make a new identity key and show its public key. Only this user can read the file.

    A client makes its default identity by itself at its first connection. Use this command to authorise the key at a
    server before, to encrypt it, or to have several identities.
    """
    path = identity or _key_paths().identity
    chosen = (os.environ.get(PASSPHRASE) or _prompt_passphrase()) if passphrase else ""
    _print_key(create_identity(path, force=force, passphrase=chosen), str(path), as_json)


@keys.command("passphrase")
@click.option(
    "--identity", metavar="FILE", type=click.Path(path_type=Path), help=f"The identity file.  {DEFAULT_IDENTITY}"
)
@click.option("--remove", is_flag=True, help="Store the private key without encryption.")
@json_option
def change_passphrase(identity: Path | None, remove: bool, as_json: bool) -> None:
    """Change, set or remove the passphrase of an identity file.

    Asks for the current passphrase first, if the file has one. The key itself stays the same.
    """
    path = identity or _key_paths().identity
    read_identity(path)  # asks for the current passphrase, before the user chooses a new one
    _print_key(set_passphrase(path, "" if remove else _prompt_passphrase()), str(path), as_json)


def _prompt_passphrase() -> str:
    return str(click.prompt("New passphrase", hide_input=True, confirmation_prompt="Once more", err=True))


@keys.command()
@click.option(
    "--identity",
    metavar="FILE|env:NAME",
    help=f"The identity file, or an environment variable with the private key.  {DEFAULT_IDENTITY}",
)
@click.option(
    "--server",
    "of_server",
    is_flag=True,
    help="Show the key of this user's server on this machine instead, as 'send --server-key' and option serverKey take "
    "it. Add --identity if the server runs with that option.",
)
@json_option
def show(identity: str | None, of_server: bool, as_json: bool) -> None:
    """Show the public key of an identity, to give to the operator of a server.

    To a pipe or a file it prints only the key: a line for the server's file of authorised keys.

    \b
    For example:
      aeron-spark keys show > desk-7.pub
    """
    path = _key_paths().server_identity if of_server else _key_paths().identity
    pair = load_identity(identity) if identity else read_identity(path)
    _print_key(pair, identity or str(path), as_json)


@keys.command()
@click.argument("server", metavar="HOST:PORT")
@click.argument("key")
@click.option("--comment", default="", metavar="TEXT", help="Text to store beside the key.  [default: none]")
@_known_option
@json_option
def trust(server: str, key: str, comment: str, known_servers: Path | None, as_json: bool) -> None:
    """Add the server at HOST:PORT with its public KEY to the known servers.

    HOST:PORT is the address as for connecting, also HOST:PORT:CONTROL; the control port is not stored.

    Get KEY from the server's operator, who prints it with 'aeron-spark keys show --server'. Fails if another key of
    this server is known: 'keys forget' removes that first.

    \b
    For example:
      aeron-spark keys trust feeds.example:20121 aeron-spark:CQAA...
    """
    name = parse_server(server)
    try:
        public = parse_public(key)
    except DataFormatError as error:
        raise OptionError(error.what, remedy=error.remedy) from None
    added = _known(known_servers).trust(name, public, comment)
    if as_json:
        print_json({"server": str(name), "key": public_text(public), "added": added})
    else:
        click.echo(f"{name} is {'now' if added else 'already'} known with key {fingerprint(public)}")


@keys.command()
@click.argument("server", metavar="HOST:PORT")
@_known_option
@json_option
def forget(server: str, known_servers: Path | None, as_json: bool) -> None:
    """Remove the server at HOST:PORT from the known servers, when it has a new key.

    Do this only if the server's operator confirms the change: an attacker's server would also show another key.
    """
    name = parse_server(server)
    known = _known(known_servers)
    if not known.forget(name):
        names = [str(server) for server in known.all()]
        nearest = difflib.get_close_matches(str(name), names, n=1)
        raise OperationError(
            f"{name} is not among the known servers in {known.path}",
            remedy=f"Did you mean {nearest[0]}?" if nearest else "'aeron-spark keys list' shows them.",
        )
    if as_json:
        print_json({"server": str(name), "forgotten": True})
    else:
        click.echo(f"forgot {name}")


@keys.command("list")
@_known_option
@table_options
def list_servers(known_servers: Path | None, as_json: bool) -> None:
    """List the known servers with the fingerprints of their keys."""
    known = _known(known_servers)
    entries = known.all().values()
    if as_json:
        for entry in entries:
            print_json(
                {
                    "server": str(entry.server),
                    "host": entry.server.host,
                    "port": entry.server.port,
                    "key": public_text(entry.key),
                    "fingerprint": fingerprint(entry.key),
                    "comment": entry.comment,
                }
            )
        return
    print_table(
        f"known servers ({known.path})",
        ("server", "fingerprint", "key", "comment"),
        [(entry.server, fingerprint(entry.key), public_text(entry.key), entry.comment) for entry in entries],
        empty=f"no known servers in {known.path}",
        optional=("key",),
    )


def _key_paths() -> KeyPaths:
    return KeyPaths.below(config_home(os.environ))


def _known(path: Path | None) -> KnownServers:
    return KnownServers(path or _key_paths().known_servers)


def _print_key(pair: KeyPair, identity: str, as_json: bool) -> None:
    properties = {"public": public_text(pair.public), "fingerprint": fingerprint(pair.public), "identity": identity}
    if as_json:
        print_json(properties)
    elif output.is_terminal():
        for name, value in properties.items():  # not a table: a key must be whole, so that it can be copied
            click.echo(f"{name:<11} {value}")
    else:
        click.echo(properties["public"])
