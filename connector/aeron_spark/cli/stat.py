"""``aeron-spark stat|errors|loss|backlog``: what a media driver says about itself, live or dead."""

from __future__ import annotations

from dataclasses import asdict

import click

from aeron_spark.aeron import counters
from aeron_spark.cli.output import aeron_dir_option, iso, json_option, moment, print_json, print_table
from aeron_spark.node import status


@click.command()
@aeron_dir_option
@click.option("--label", metavar="TEXT", default="", help="Only counters whose label contains this.")
@json_option
def stat(aeron_dir: str | None, label: str, as_json: bool) -> None:
    """Show the media driver's counters."""
    directory = _directory(aeron_dir)
    driver = counters.read_driver(directory)
    found = [counter for counter in counters.read_counters(directory) if label in counter.label]
    if as_json:
        for counter in found:
            print_json(counter)
        return
    title = f"process {driver.pid} since {moment(driver.started)}, heartbeat {_age(driver)}, CnC {driver.cnc_version}"
    rows = [(str(counter.id), counter.value, counter.label) for counter in found]
    print_table(title, ("id#", "value#", "label"), rows, empty="no such counters")


@click.command()
@aeron_dir_option
@json_option
def errors(aeron_dir: str | None, as_json: bool) -> None:
    """Show the media driver's distinct errors."""
    found = counters.read_errors(_directory(aeron_dir))
    if as_json:
        for error in found:
            print_json(asdict(error) | {"first": iso(error.first), "last": iso(error.last)})
        return
    rows = [(error.observations, moment(error.first), moment(error.last), error.text) for error in found]
    print_table("distinct errors", ("times#", "first", "last", "error"), rows, empty="no errors")


@click.command()
@aeron_dir_option
@json_option
def loss(aeron_dir: str | None, as_json: bool) -> None:
    """Show what did not arrive at first, by stream."""
    found = counters.read_losses(_directory(aeron_dir))
    if as_json:
        for lost in found:
            print_json(asdict(lost) | {"first": iso(lost.first), "last": iso(lost.last)})
        return
    rows = [
        (x.observations, x.bytes, moment(x.first), moment(x.last), x.channel, str(x.stream_id), x.source) for x in found
    ]
    columns = ("times#", "bytes#", "first", "last", "channel", "stream", "source")
    print_table("losses", columns, rows, empty="nothing was lost")


@click.command()
@aeron_dir_option
@json_option
def backlog(aeron_dir: str | None, as_json: bool) -> None:
    """Show how far each subscriber is behind, by stream and session."""
    found = counters.read_backlog(_directory(aeron_dir))
    if as_json:
        for stream in found:
            print_json(stream)
        return
    rows = [
        (
            stream.channel,
            str(stream.stream_id),
            str(stream.session_id),
            stream.publisher_position,
            stream.receiver_position,
            len(stream.subscribers),
            stream.behind,
        )
        for stream in found
    ]
    columns = ("channel", "stream", "session", "published#", "received#", "subscribers#", "behind#")
    print_table("backlog in bytes", columns, rows, empty="no streams")


def _directory(aeron_dir: str | None) -> str:
    """Return where the driver really is: the default directory may have fallen back to disk."""
    return status(aeron_dir).aeron_dir


def _age(driver: counters.DriverInfo) -> str:
    if driver.heartbeat_age == float("inf"):
        return "ended"
    return f"{driver.heartbeat_age:.1f} s ago" + ("" if driver.alive else " (dead)")
