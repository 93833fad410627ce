"""``aeron-spark node``: starts, stops and shows this machine's media driver and archive."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from aeron_spark import node as nodes
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import aeron_dir_option, json_option, print_json, print_table, table_options, time_cell
from aeron_spark.errors import OptionError
from aeron_spark.texts import format_time, rounded_size


@click.group(cls=SuggestingGroup)
def node() -> None:
    """Start, stop and show this machine's node: one media driver with an archive, shared by all programs.

    A program that needs the node starts it, and it stops some time after its last user ended. Use these commands to
    choose its settings, or to keep it running.
    """


@node.command()
@aeron_dir_option
@click.option(
    "--archive-dir",
    metavar="DIR",
    help="Folder for recordings, on a local disk.  [default: $AERON_SPARK_ARCHIVE_DIR, or in this user's data folder]",
)
@click.option(
    "--archive/--no-archive",
    default=None,
    help="Start an archive, which recordings need, or the media driver alone.  [default: --archive]",
)
@click.option(
    "--threading",
    metavar="MODE",
    help="Threads of the media driver: shared (one), shared_network (two) or dedicated (three).  [default: shared with "
    "fewer than 4 cores, else dedicated]",
)
@click.option(
    "--term-length",
    metavar="SIZE",
    help="Term buffer of network publications, a power of two; the largest message is an eighth of it.  [default: "
    "16MiB]",
)
@click.option("--ipc-term-length", metavar="SIZE", help="Term buffer of IPC publications.  [default: 16MiB]")
@click.option(
    "--sparse/--no-sparse",
    default=None,
    help="Allocate the memory of term buffers at its first use, or at once.  [default: --sparse]",
)
@click.option("--mtu", metavar="SIZE", help="Largest UDP payload in bytes.  [default: 1408]")
@click.option("--ipc-mtu", metavar="SIZE", help="Largest fragment on IPC in bytes.  [default: 1408]")
@click.option(
    "--linger", metavar="SECONDS", help="Stop after this time without a user.  [default: run until 'node stop']"
)
@click.option("--max-recordings", metavar="N", help="Recordings that may be active at a time.  [default: 100]")
@click.option("--max-replays", metavar="N", help="Replays that may run at a time.  [default: 100]")
@click.option("--segment-length", metavar="SIZE", help="Size of a recording's segment files.  [default: 128MiB]")
@click.option(
    "--sync-level",
    metavar="0|1|2",
    help="Disk writes of the archive: 0 leaves syncing to the operating system, 1 syncs data, 2 syncs metadata, too.  "
    "[default: 0]",
)
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="Also accept archive clients over UDP, at this address.  [default: only programs on this machine]",
)
@click.option(
    "--set",
    "properties",
    metavar="AERON.X=Y",
    multiple=True,
    help="Set a property of Aeron, such as aeron.client.liveness.timeout=7s; repeatable.",
)
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    default=nodes.START_TIMEOUT,
    show_default=True,
    help="Longest wait for the node to start.",
)
@table_options
def start(
    aeron_dir: str | None,
    archive_dir: str | None,
    properties: tuple[str, ...],
    timeout: float,
    as_json: bool,
    **settings: Any,
) -> None:
    """Start the node and let it run until 'node stop', or with --linger until it is unused.

    If the node runs with the given settings already, this prints its status; if it runs with other settings, it fails.

    \b
    For example:
      aeron-spark node start --archive-dir /data/aeron --sync-level 1
    """
    if properties:
        settings["properties"] = dict(_parse_property(text) for text in properties)
    stay = settings["linger"] is None
    started = nodes.start(aeron_dir, archive_dir=archive_dir, stay=stay, timeout=timeout, **settings)
    _print_status(started, as_json)


@node.command()
@aeron_dir_option
@click.option(
    "--force", is_flag=True, help="Stop the node even if programs use it; kill its process if it does not stop in time."
)
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    default=nodes.STOP_TIMEOUT,
    show_default=True,
    help="Longest wait for its users to end and for the node to stop.",
)
@json_option
def stop(aeron_dir: str | None, force: bool, timeout: float, as_json: bool) -> None:
    """Stop the node. Fails if a program still uses it after --timeout, unless --force is given."""
    before = nodes.status(aeron_dir)
    stopped = nodes.stop(aeron_dir, force=force, timeout=timeout)
    if as_json:
        print_json({"aeron_dir": before.aeron_dir, "pid": before.pid if stopped else None, "stopped": stopped})
    elif stopped:
        click.echo(f"stopped the node in {before.aeron_dir} (process {before.pid})")
    else:
        click.echo(f"no node runs in {before.aeron_dir}")


@node.command()
@aeron_dir_option
@table_options
def status(aeron_dir: str | None, as_json: bool) -> None:
    """Show the node's state, process, directories, users and effective settings.

    The state is running, starting, foreign (a media driver that aeron-spark did not start), stale (files of a media
    driver that has ended) or absent.
    """
    _print_status(nodes.status(aeron_dir), as_json)


def _parse_property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"--set {text!r} has no '='", remedy="Write --set NAME=VALUE, such as --set aeron.x=y.")
    return name, value


def _print_status(found: nodes.NodeStatus, as_json: bool) -> None:
    if as_json:
        settings = found.settings.to_json() if found.settings else None
        started = None if found.started is None else format_time(found.started)
        print_json(asdict(found) | {"settings": settings, "started": started})
        return
    age = "-" if found.heartbeat_age is None else f"{found.heartbeat_age:.1f} s ago"
    rows: list[tuple[str, object]] = [
        ("state", found.state + (", until 'node stop'" if found.stays else "")),
        ("process", None if found.pid is None else str(found.pid)),
        ("since", time_cell(found.started)),
        ("heartbeat", age),
        ("version", f"aeron-spark {found.version}, Aeron {found.aeron_version}" if found.version else None),
        ("aeron directory", f"{found.aeron_dir} ({rounded_size(found.aeron_space.free)} free)"),
        ("archive directory", f"{found.archive_dir} ({rounded_size(found.archive_space.free)} free)"),
        ("archive id", None if found.archive_id is None else str(found.archive_id)),
        ("clients", found.clients),
        ("recordings", found.recordings),
    ]
    if found.warning:
        rows.append(("warning", found.warning))
    if found.settings:
        rows += [(name, _setting_cell(value)) for name, value in found.settings.to_json().items()]
    print_table("node", ("property", "value"), rows, empty="")


def _setting_cell(value: object) -> object:
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items())
    return value
