"""``aeron-spark keys``: this user's own identity, and the servers it knows."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import click

from aeron_spark.cli import output
from aeron_spark.cli.main import NearestNames
from aeron_spark.cli.output import json_option, print_json, print_table
from aeron_spark.cli.signals import OperationError
from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.keys import (
    KeyPaths,
    KnownServers,
    create_identity,
    load_identity,
    parse_server,
    read_identity,
    seal_identity,
)
from aeron_spark.keys.identity import PASSPHRASE
from aeron_spark.node.paths import config_home
from aeron_spark.protocol.keypair import KeyPair, fingerprint, parse_public, public_text

_known_option = click.option(
    "--known-servers", metavar="FILE", type=click.Path(path_type=Path), help="The file of known servers."
)


@click.group(cls=NearestNames)
def keys() -> None:
    """Make and show this user's identity; list, trust and forget servers."""


@keys.command()
@click.option("--identity", metavar="FILE", type=click.Path(path_type=Path), help="The file to make.")
@click.option("--force", is_flag=True, help="Replace the identity that is there.")
@click.option(
    "--passphrase", is_flag=True, help=f"Ask for a passphrase (or take {PASSPHRASE}) and seal the key with it."
)
@json_option
def new(identity: Path | None, force: bool, passphrase: bool, as_json: bool) -> None:
    """Make a new identity, in a file that only this user can read."""
    path = identity or _places().identity
    chosen = (os.environ.get(PASSPHRASE) or _ask_for_new()) if passphrase else ""
    _show(create_identity(path, force=force, passphrase=chosen), str(path), as_json)


@keys.command("passphrase")
@click.option("--identity", metavar="FILE", type=click.Path(path_type=Path), help="Where the identity is.")
@click.option("--remove", is_flag=True, help="Keep the key without a passphrase.")
@json_option
def change_passphrase(identity: Path | None, remove: bool, as_json: bool) -> None:
    """Put an identity under another passphrase; the one it has now is asked for first."""
    path = identity or _places().identity
    read_identity(path)  # nobody chooses a passphrase in vain
    _show(seal_identity(path, "" if remove else _ask_for_new()), str(path), as_json)


def _ask_for_new() -> str:
    return str(click.prompt("New passphrase", hide_input=True, confirmation_prompt="Once more", err=True))


@keys.command()
@click.option("--identity", metavar="FILE|env:NAME", help="Where the identity is.")
@click.option(
    "--server", "of_server", is_flag=True,
    help="Show the key of the server that this user runs here, as option serverKey takes it. Add --identity where the "
    "server has one.",
)  # fmt: skip
@json_option
def show(identity: str | None, of_server: bool, as_json: bool) -> None:
    """Show the public key of an identity, to give to others.

    To a pipe or a file it prints one line, the key, which is a line of a server's file of authorised clients.
    """
    path = _places().server_identity if of_server else _places().identity
    pair = load_identity(identity) if identity else read_identity(path)
    _show(pair, identity or str(path), as_json)


@keys.command()
@click.argument("server", metavar="HOST:PORT")
@click.argument("key")
@click.option("--comment", default="", metavar="TEXT", help="A note for the file.")
@_known_option
@json_option
def trust(server: str, key: str, comment: str, known_servers: Path | None, as_json: bool) -> None:
    """Know the server at HOST:PORT by KEY, its public key."""
    name = parse_server(server)
    try:
        public = parse_public(key)
    except DataFormatError as error:
        raise OptionError(error.what, remedy=error.remedy) from None
    added = _known(known_servers).trust(name, public, comment)
    if as_json:
        print_json({"server": str(name), "key": public_text(public), "added": added})
    else:
        click.echo(f"{name} is known by {fingerprint(public)}{'' if added else ' already'}")


@keys.command()
@click.argument("server", metavar="HOST:PORT")
@_known_option
@json_option
def forget(server: str, known_servers: Path | None, as_json: bool) -> None:
    """Forget the key of the server at HOST:PORT, because it has another now."""
    name = parse_server(server)
    known = _known(known_servers)
    if not known.forget(name):
        names = [str(one) for one in known.all()]
        near = difflib.get_close_matches(str(name), names, n=1)
        raise OperationError(
            f"{name} is not among the known servers in {known.path}",
            remedy=f"Did you mean {near[0]}?" if near else "'aeron-spark keys list' shows them.",
        )
    if as_json:
        print_json({"server": str(name), "forgotten": True})
    else:
        click.echo(f"forgot {name}")


@keys.command("list")
@_known_option
@json_option
def list_servers(known_servers: Path | None, as_json: bool) -> None:
    """List the known servers."""
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
    )


def _places() -> KeyPaths:
    return KeyPaths.below(config_home(os.environ))


def _known(path: Path | None) -> KnownServers:
    return KnownServers(path or _places().known_servers)


def _show(pair: KeyPair, where: str, as_json: bool) -> None:
    shown = {"public": public_text(pair.public), "fingerprint": fingerprint(pair.public), "identity": where}
    if as_json:
        print_json(shown)
    elif output.is_terminal():
        print_table("identity", ("what", "value"), list(shown.items()), empty="")
    else:
        click.echo(shown["public"])
