"""``aeron-spark node``: this machine's own media driver and archive."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from aeron_spark import node as nodes
from aeron_spark.cli.main import NearestNames
from aeron_spark.cli.output import aeron_dir_option, iso, json_option, moment, print_json, print_table, size
from aeron_spark.errors import OptionError


@click.group(cls=NearestNames)
def node() -> None:
    """Start, stop and ask this machine's media driver and archive."""


@node.command()
@aeron_dir_option
@click.option("--archive-dir", metavar="DIR", help="Where recordings are kept.")
@click.option("--archive/--no-archive", default=None, help="With an archive, or the media driver alone.")
@click.option("--threading", metavar="MODE", help="shared, shared_network or dedicated.  [default: by cores]")
@click.option("--term-length", metavar="SIZE", help="Term buffer of network publications.  [default: 16MiB]")
@click.option("--ipc-term-length", metavar="SIZE", help="Term buffer of IPC publications.  [default: 16MiB]")
@click.option("--sparse/--no-sparse", default=None, help="Give pages to term buffers as they are used.")
@click.option("--mtu", metavar="SIZE", help="Largest datagram.  [default: 1408]")
@click.option("--ipc-mtu", metavar="SIZE", help="Largest fragment on IPC.  [default: 1408]")
@click.option("--linger", metavar="SECONDS", help="Stop when unused for so long.  [default: stay until stopped]")
@click.option("--max-recordings", metavar="N", help="Recordings at a time.  [default: 100]")
@click.option("--max-replays", metavar="N", help="Replays at a time.  [default: 100]")
@click.option("--segment-length", metavar="SIZE", help="Length of a recording's files.  [default: 128MiB]")
@click.option("--sync-level", metavar="0|1|2", help="0 leaves syncing to the system, 1 syncs data, 2 metadata too.")
@click.option("--control", metavar="HOST:PORT", help="Let archive clients of other hosts in, over UDP.")
@click.option("--set", "properties", metavar="AERON.X=Y", multiple=True, help="Another property of Aeron; repeatable.")
@click.option("--timeout", type=float, default=nodes.START_TIMEOUT, show_default=True, help="Seconds to wait.")
@json_option
def start(
    aeron_dir: str | None,
    archive_dir: str | None,
    properties: tuple[str, ...],
    timeout: float,
    as_json: bool,
    **asked: Any,
) -> None:
    """Start the node, unless it runs with these settings already."""
    if properties:
        asked["properties"] = dict(_pair(text) for text in properties)
    stay = asked["linger"] is None
    found = nodes.start(aeron_dir, archive_dir=archive_dir, stay=stay, timeout=timeout, **asked)
    _show(found, as_json)


@node.command()
@aeron_dir_option
@click.option("--force", is_flag=True, help="Stop it though it is used, and kill it if it does not stop.")
@click.option("--timeout", type=float, default=nodes.STOP_TIMEOUT, show_default=True, help="Seconds to wait.")
@json_option
def stop(aeron_dir: str | None, force: bool, timeout: float, as_json: bool) -> None:
    """Stop the node when nobody uses it, or --force it."""
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
@json_option
def status(aeron_dir: str | None, as_json: bool) -> None:
    """Tell what runs, with its effective settings."""
    _show(nodes.status(aeron_dir), as_json)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"--set {text!r} has no '='", remedy="Write --set aeron.x=y.")
    return name, value


def _show(found: nodes.NodeStatus, as_json: bool) -> None:
    if as_json:
        settings = found.settings.to_json() if found.settings else None
        started = None if found.started is None else iso(found.started)
        print_json(asdict(found) | {"settings": settings, "started": started})
        return
    age = "-" if found.heartbeat_age is None else f"{found.heartbeat_age:.1f} s ago"
    rows: list[tuple[str, object]] = [
        ("state", found.state + (", until stopped by hand" if found.stays else "")),
        ("process", None if found.pid is None else str(found.pid)),
        ("since", moment(found.started)),
        ("heartbeat", age),
        ("version", f"aeron-spark {found.version}, Aeron {found.aeron_version}" if found.version else None),
        ("aeron directory", f"{found.aeron_dir} ({size(found.aeron_space.free)} free)"),
        ("archive directory", f"{found.archive_dir} ({size(found.archive_space.free)} free)"),
        ("archive id", None if found.archive_id is None else str(found.archive_id)),
        ("clients", found.clients),
        ("recordings", found.recordings),
    ]
    if found.warning:
        rows.append(("warning", found.warning))
    if found.settings:
        rows += [(name, _setting(value)) for name, value in found.settings.to_json().items()]
    print_table("node", ("what", "value"), rows, empty="")


def _setting(value: object) -> object:
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items())
    return value
