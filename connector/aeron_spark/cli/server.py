"""``aeron-spark server``: runs a server, or asks the one that runs. Loads the modules of the first only to run it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import click

from aeron_spark.cli.admin_client import admin_options, ask, socket_path
from aeron_spark.cli.main import FAILED, SuggestingGroup
from aeron_spark.cli.output import json_option, print_json, print_table, table_options
from aeron_spark.cli.signals import OperationError
from aeron_spark.errors import ConnectError, OptionError
from aeron_spark.texts import format_time, rounded_size

RUN: Final = "run"  # the command of a line without the name of one; no line can name it
RELOAD_TIMEOUT_S: Final = 60.0  # a large clients file takes a second
TIMES: Final = ("started", "clients_read_at", "last_backup")  # properties of the status, in seconds since 1970
HELP_FLAGS: Final = ("-h", "--help")
LAZY: Final = {"check": "server_run"}  # modules of commands that load the options of a server


class ServerGroup(SuggestingGroup):
    """The group of the server's commands. A line whose first word is none of them runs a server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *LAZY})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LAZY:
            return super().get_command(ctx, cmd_name)
        loaded: click.Command = getattr(importlib.import_module(f"aeron_spark.cli.{LAZY[cmd_name]}"), cmd_name)
        return loaded

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.list_commands(ctx) or args[0] in HELP_FLAGS)
        is_completing_name = not args and ctx.resilient_parsing
        return super().parse_args(ctx, args if is_named or is_completing_name else [RUN, *args])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] == RUN:
            return RUN, _run_command(), args[1:]
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of running a server, and the list of the other commands."""
        run = _run_command()
        formatter.write_usage(ctx.command_path, " ".join(run.collect_usage_pieces(ctx)))
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS]", prefix="   or: ")
        run.format_help_text(ctx, formatter)
        self.format_commands(ctx, formatter)
        run.format_options(ctx, formatter)


def _run_command() -> click.Command:
    loaded: click.Command = importlib.import_module("aeron_spark.cli.server_run").run
    return loaded


@click.group(cls=ServerGroup)
def server() -> None:
    """Run a secure server, or ask the one that runs on this machine."""


@server.command()
@admin_options
@click.option("--ready", is_flag=True, help="Only say whether the server is ready: exit code 0, or 1 with the reasons.")
@table_options
def status(config: Path | None, streams_dir: Path | None, admin_socket: Path | None, ready: bool, as_json: bool) -> int:
    """Show the state of the server that runs on this machine, or with --ready only whether it is ready.

    \b
    For example, as a health check:
      aeron-spark server status --ready
    """
    path = socket_path(config, streams_dir, admin_socket)
    try:
        found = ask(path, "status")
    except ConnectError as error:
        if not ready:
            raise
        found = {"ready": False, "reasons": {"server": error.what}}
    if ready:
        shown = {"ready": found["ready"], "reasons": found["reasons"]}
        if as_json:
            print_json(shown)
        else:
            click.echo("ready" if found["ready"] else "not ready: " + "; ".join(found["reasons"].values()))
        return 0 if found["ready"] else FAILED
    if as_json:
        print_json({**found, **{name: _cell(name, found[name]) for name in TIMES}})
    else:
        print_table("server", ("property", "value"), _rows(found), empty="")
    return 0


@server.command()
@admin_options
@json_option
def reload(config: Path | None, streams_dir: Path | None, admin_socket: Path | None, as_json: bool) -> None:
    """Let the server reload its configuration and its clients file, and print what changed.

    A wrong file changes nothing: the server continues with the last good versions, and the exit code is 1. The server
    reads the file that was its --config. The command lists the options that need a restart.
    """
    try:
        changes = ask(socket_path(config, streams_dir, admin_socket), "reload", timeout_s=RELOAD_TIMEOUT_S)
    except OptionError as error:  # of the server's file, not of this command line
        raise OperationError(error.what, remedy=error.remedy) from None
    if as_json:
        print_json(changes)
        return
    lines = [f"changed {name}" for name in changes["changed"]]
    lines += [f"restart needed for {name}" for name in changes["restart_needed"]]
    lines += [f"{what} client {name}" for what, names in changes["clients"].items() for name in names]
    click.echo("\n".join(lines) if lines else "nothing changed")


@server.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--incremental", is_flag=True, help="Link the unchanged segments of the newest backup beside DIR.")
@click.option("--with-identity", is_flag=True, help="Copy the server's private key, too: protect the backup like it.")
@click.option("--skip-damaged", is_flag=True, help="Back up the other streams if some are damaged.")
@admin_options
@json_option
def backup(
    directory: Path,
    incremental: bool,
    with_identity: bool,
    skip_damaged: bool,
    config: Path | None,
    streams_dir: Path | None,
    admin_socket: Path | None,
    as_json: bool,
) -> int:
    """Copy all streams of the running server to the new folder DIR.

    The copy has the state of one moment. Clients write and read on meanwhile; segments that retention deletes stay
    until the copy is complete. DIR appears when it is complete, with its manifest.json.

    \b
    For example, each night, with links to the segments of the night before:
      aeron-spark server backup --incremental /backup/$(date +%F)
    """
    loaded = importlib.import_module("aeron_spark.cli.server_backup")
    code: int = loaded.back_up(
        socket_path(config, streams_dir, admin_socket),
        directory,
        incremental=incremental,
        with_identity=with_identity,
        skip_damaged=skip_damaged,
        as_json=as_json,
    )
    return code


@server.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--streams-dir", metavar="PATH", required=True, type=click.Path(path_type=Path), help="An empty folder.")
@click.option(
    "--archive-dir",
    metavar="PATH",
    required=True,
    type=click.Path(path_type=Path),
    help="An empty folder: that of the archive of the node on which the server will run.",
)
@json_option
def restore(directory: Path, streams_dir: Path, archive_dir: Path, as_json: bool) -> int:
    """Restore the backup DIR into two empty folders. Compares each file with its SHA-256 before any is visible.

    Clients that have seen later rows find that they diverged, and take the remedies of docs/backup.md. The clients
    file, the configuration and the server's key of the backup stay in DIR; the command names them.
    """
    loaded = importlib.import_module("aeron_spark.cli.server_backup")
    code: int = loaded.restore(directory, streams_dir, archive_dir, as_json=as_json)
    return code


@server.command()
@click.option("--streams-dir", metavar="PATH", type=click.Path(path_type=Path), help="The server's folder of streams.")
@click.option(
    "--archive-dir", metavar="PATH", type=click.Path(path_type=Path), help="The folder of the node's archive."
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The server's TOML file, whose streamsDir and aeronDir name the folders.  [default: those of this user's "
    "node]",
)
@click.option("--quick", is_flag=True, help="Do not read the segments; check that they exist.")
@json_option
def verify(streams_dir: Path | None, archive_dir: Path | None, config: Path | None, quick: bool, as_json: bool) -> int:
    """Check the files of a stopped server for damage. Changes nothing.

    Prints one finding a line: the damage, the rows that readers lose, and the remedy. The exit code is 0, or 1 if
    something is damaged. It is 3 while a server or its node uses the folders.
    """
    loaded = importlib.import_module("aeron_spark.cli.server_backup")
    code: int = loaded.verify(config, streams_dir, archive_dir, quick=quick, as_json=as_json)
    return code


def _rows(found: dict[str, Any]) -> list[tuple[str, object]]:
    """Return a row for each property, and one for each limit, formula and disk."""
    groups = ("limits", "memory", "disk")
    rows: list[tuple[str, object]] = [(name, _cell(name, value)) for name, value in found.items() if name not in groups]
    rows += [(name, _use(name, one["used"], one["limit"])) for name, one in found["limits"].items()]
    for name, formula in found["memory"].items():
        terms = " + ".join(f"{term} {rounded_size(count)}" for term, count in formula["terms"].items())
        rows.append((f"memory, {name.replace('_', ' ')}", f"at most {rounded_size(formula['bytes'])} = {terms}"))
    rows += [(f"disk, {name}", f"{rounded_size(one['free_bytes'])} free") for name, one in found["disk"].items()]
    return rows


def _use(name: str, used: int, limit: int) -> str:
    """Return the text of a limit and its use: in binary units if the option is a size."""
    show = rounded_size if name.endswith("Bytes") else str
    return f"{show(used)} of {show(limit) if limit else 'any'}"


def _cell(name: str, value: Any) -> object:
    if value is None:
        return None
    if name in TIMES:
        return format_time(value)
    if isinstance(value, dict):
        return " ".join(f"{key}={text}" for key, text in value.items()) or None
    return ", ".join(str(part) for part in value) or None if isinstance(value, list) else str(value)
