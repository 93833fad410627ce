"""``aeron-spark clients``: shows and checks the clients file of a server, without a server and without Java."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from aeron_spark.cli.arguments import read_configuration
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import json_option, print_json, print_table, table_options
from aeron_spark.cli.signals import OperationError
from aeron_spark.errors import DataFormatError, OptionError, SetupError
from aeron_spark.keys import KeyPaths
from aeron_spark.keys.clients_file import (
    ClientsFile,
    Entry,
    allowed_text,
    conditions_text,
    limits_text,
    read_clients,
    time_text,
)
from aeron_spark.node.paths import config_home
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.grants import STREAM_ACTIONS, Grant
from aeron_spark.protocol.keypair import PREFIX, parse_public, public_text

WRONG_FILE: Final = 2
REFUSED: Final = 1

Check = Callable[[Grant, str], bool | None]

CHECKS: Final[Mapping[str, Check]] = {
    "connect": lambda grant, target: True,
    **{action: lambda grant, target, action=action: grant.may_use(target, action) for action in STREAM_ACTIONS},  # type: ignore[misc]
    "writer": lambda grant, target: grant.may_write_as(target) is not False,
    "call": lambda grant, target: grant.may_call(target),
    "message-send": lambda grant, target: grant.may_pass_messages("send"),
    "message-receive": lambda grant, target: grant.may_pass_messages("receive"),
    "file-send": lambda grant, target: grant.may_send_files(),
}
TARGETS: Final[Mapping[str, str]] = {
    **dict.fromkeys(STREAM_ACTIONS, "the name of a stream"), "writer": "a writer id", "call": "OBJECT.METHOD",
}  # fmt: skip

_file_options = (
    click.option(
        "--authorized-keys", metavar="FILE", type=click.Path(path_type=Path),
        help="The clients file.  [default: authorized_keys in $XDG_CONFIG_HOME/aeron-spark]",
    ),
    click.option(
        "--config", metavar="FILE", type=click.Path(path_type=Path),
        help="The configuration file of the server, whose option authorizedKeys is the clients file.",
    ),
)  # fmt: skip


def _with_file_options(command: Any) -> Any:
    for option in _file_options:
        command = option(command)
    return command


@click.group(cls=SuggestingGroup)
def clients() -> None:
    """Show and check the clients file of a server: the keys that it admits, and what each may do.

    docs/access.md explains the file.
    """


@clients.command("list")
@_with_file_options
@table_options
def list_clients(authorized_keys: Path | None, config: Path | None, as_json: bool) -> None:
    """List the keys with their names, grants, conditions and limits."""
    path = _path(authorized_keys, config)
    entries = _good(path).entries
    if as_json:
        for one in entries:
            print_json(_object(one))
        return
    print_table(
        f"clients ({path})",
        ("name", "key", "may", "if", "limits", "comment"),
        [
            (
                one.grant.name,
                public_text(one.key),
                allowed_text(one.grant),
                conditions_text(one.grant) or "-",
                limits_text(one.grant) or "-",
                one.grant.comment or "-",
            )
            for one in entries
        ],
        empty=f"no keys in {path}",
        optional=("comment", "limits", "key"),
    )


@clients.command()
@click.argument("file", metavar="[FILE]", type=click.Path(path_type=Path), required=False)
@_with_file_options
@json_option
def check(file: Path | None, authorized_keys: Path | None, config: Path | None, as_json: bool) -> int:
    """Check the clients file FILE. Exit code 2 if a server would not use it."""
    if file is not None and authorized_keys is not None:
        raise OptionError("the clients file is given twice", remedy="Give FILE, or --authorized-keys FILE.")
    path = _path(file or authorized_keys, config)
    found = _read(path)
    findings = [(one.number, "error", one.what, one.remedy) for one in found.wrong]
    now = time.time()
    findings += [
        (one.line, "warning", f"the key {one.grant.name} expired at {time_text(one.grant.expires)}", "Remove the line.")
        for one in found.entries
        if one.grant.expires is not None and one.grant.expires <= now
    ]
    for line, level, what, remedy in sorted(findings):
        if as_json:
            print_json({"line": line, "level": level, "what": what, "remedy": remedy})
        else:
            click.echo(f"{path}:{line}: {level}: {what}. {remedy}")
    if not as_json:
        count = len(found.entries)
        wrong = len(found.wrong)
        click.echo(f"{path}: {count} key{'s' * (count != 1)}, {wrong} wrong line{'s' * (wrong != 1)}")
    return WRONG_FILE if found.wrong else 0


@clients.command("test")
@click.argument("name")
@click.argument("action")
@click.argument("target", required=False, default="")
@_with_file_options
@json_option
def test_client(
    name: str, action: str, target: str, authorized_keys: Path | None, config: Path | None, as_json: bool
) -> int:
    """Say whether the client NAME (a name, or a public key) may do ACTION with TARGET. Exit code 1 if not.

    ACTION is read, write, create, manage or purge, with the name of a stream; writer, with a writer id; call, with
    OBJECT.METHOD; connect, message-send, message-receive or file-send.

    \b
    For example:
      aeron-spark clients test desk-7 read prices.eu
    """
    test = CHECKS.get(action)
    if test is None:
        raise OptionError(f"unknown action {action!r}", remedy=f"Choose from {', '.join(CHECKS)}.")
    if bool(target) != (action in TARGETS):
        problem = f"needs {TARGETS[action]}" if action in TARGETS else f"has no target, and {target!r} is given"
        raise OptionError(f"action {action!r} {problem}", remedy="Correct the command line.")
    path = _path(authorized_keys, config)
    entry = _entry(_good(path), name, path)
    reason, conditions = _reason(entry, test, action, target), conditions_text(entry.grant)
    is_allowed = reason.startswith("line ")
    if as_json:
        print_json({"allowed": is_allowed, "reason": reason, "conditions": conditions})
    elif is_allowed:
        click.echo(f"allowed by {reason}" + (f" under the conditions {conditions}" if conditions else ""))
    else:
        click.echo(f"refused: {reason}")
    return 0 if is_allowed else REFUSED


def _reason(entry: Entry, test: Check, action: str, target: str) -> str:
    """Return the line that allows the action, or why the key may not do it."""
    expires = entry.grant.expires
    if expires is not None and expires <= time.time():
        return f"the key {entry.grant.name} expired at {time_text(expires)}"
    if not test(entry.grant, target):
        return f"no grant of {entry.grant.name} allows {' '.join(filter(None, (action, target)))}"
    roles = [role for role, grant in entry.parts.items() if test(grant, target)]
    suffix = f" (role {roles[0]})" if roles and roles[0] else ""
    return f"line {entry.line}{suffix}"


def _object(entry: Entry) -> dict[str, Any]:
    grant = entry.grant
    return {
        "name": grant.name, "key": public_text(entry.key), "line": entry.line, "may": allowed_text(grant),
        "conditions": conditions_text(grant), "limits": limits_text(grant), "comment": grant.comment,
        "expires": None if grant.expires is None else time_text(grant.expires),
    }  # fmt: skip


def _entry(file: ClientsFile, name: str, path: Path) -> Entry:
    key = parse_public(name) if name.startswith(PREFIX) else None
    for one in file.entries:
        if one.key == key or one.grant.name == name:
            return one
    raise OperationError(f"{name} is not a client in {path}", remedy="'aeron-spark clients list' shows them.")


def _path(file: Path | None, config: Path | None) -> Path:
    if file is not None and config is not None:
        raise OptionError("the clients file is given twice", remedy="Give it, or --config FILE.")
    if file is not None:
        return file
    configured = None if config is None else _configured(config)
    return KeyPaths.below(config_home(os.environ)).authorized_keys if configured is None else Path(configured)


def _configured(config: Path) -> str | None:
    """Return the clients file that a server's configuration names."""
    return ServerOptions.parse("", read_configuration(config)).authorized_keys


def _read(path: Path) -> ClientsFile:
    try:
        return read_clients(path)
    except (SetupError, DataFormatError) as error:
        raise OptionError(error.what, remedy=error.remedy) from None


def _good(path: Path) -> ClientsFile:
    """Return a file without wrong lines. Raises OptionError (exit code 2) for another one."""
    found = _read(path)
    try:
        found.grants(str(path))
    except DataFormatError as error:
        raise OptionError(error.what, remedy=error.remedy) from None
    return found
