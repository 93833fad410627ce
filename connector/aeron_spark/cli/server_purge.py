"""``aeron-spark streams purge … --server``: frees the space of a server's stream, and says what it freed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.output import format_time, print_json, print_table
from aeron_spark.cli.server_streams import connected
from aeron_spark.errors import DataLossError, OptionError

if TYPE_CHECKING:
    from aeron_spark.stream_client.admin import StreamInfo
    from aeron_spark.stream_client.purging import HeldBytes, PurgedPartition


def purge(
    options: Mapping[str, str], name: str, before: int | str | None, keep: int | None, partition: int | None,
    wait_s: float, as_json: bool,
) -> None:  # fmt: skip
    """Purge partitions before a position or time, or to their last ``keep`` bytes, and print what this did.

    Raises OptionError for an unknown partition, DataLossError for a stream whose state is not known, and WaitTimeout if
    not everything was freed after ``wait_s``, unless that is 0.
    """
    with connected(options) as client:
        stream = client.stream(name)
        if stream.state in ("damaged", "recovering"):
            raise DataLossError(
                f"stream {name!r} is {stream.state}: {stream.problem}",
                remedy="See 'Damage' in docs/streams.md for what to do about this state.",
            )
        parts = [part for part in stream.partitions if partition in (None, part.number)]
        if not parts:
            raise OptionError(
                f"stream {name!r} has no partition {partition}",
                remedy=f"Give one of 0 to {len(stream.partitions) - 1}.",
                reason="no-partition",
            )
        if keep is None:
            assert before is not None
            purged = client.purge_stream(name, before, partition=partition, wait=wait_s)
        else:
            purged = [
                one
                for part in parts
                for one in client.purge_stream(name, max(0, part.end - keep), partition=part.number, wait=wait_s)
            ]
    if as_json:
        for one in purged:
            print_json(_json(one))
    elif any(one.has_changed for one in purged):
        print_table(
            "purged",
            ("partition#", "earliest before#", "earliest now#", "unreadable now#", "freed now#", "freed later#", "why"),
            [_row(one) for one in purged],
            empty="",
        )
    else:
        click.echo(f"nothing to purge: {_why_nothing(stream, purged, before, keep)}")


def _row(one: PurgedPartition) -> tuple[str, int, int, int, int, int, str]:
    why = ", ".join(f"{held.bytes:,} {held.sentence}" for held in one.held)
    return (
        str(one.number), one.before, one.start, one.unreadable_bytes, one.freed_bytes,
        sum(held.bytes for held in one.held), why,
    )  # fmt: skip


def _json(one: PurgedPartition) -> dict[str, Any]:
    return {
        "partition": one.number,
        "start": one.before,
        "new_start": one.start,
        "bytes": one.unreadable_bytes,
        "freed": one.freed_bytes,
        "held": [_held_json(held) for held in one.held],
    }


def _held_json(held: HeldBytes) -> dict[str, Any]:
    return {
        "bytes": held.bytes,
        "why": held.why,
        "holder": held.holder or None,
        "reader": held.reader or None,
        "until": None if held.until is None else format_time(held.until.timestamp()),
    }


def _why_nothing(
    stream: StreamInfo, purged: Sequence[PurgedPartition], before: int | str | None, keep: int | None
) -> str:
    leases = sorted({held.sentence for one in purged for held in one.held if held.why == "lease"})
    if leases:
        return f"rows before it are under the {', '.join(leases)}"
    ends = {part.number: part.end for part in stream.partitions}
    if all(one.start == ends[one.number] for one in purged):
        return "no partition has rows"
    if keep is not None:
        return f"no partition has a transaction before its last {keep:,} bytes"
    at = f"ends before position {before:,}" if isinstance(before, int) else f"was committed before {before}"
    return f"no transaction {at}"
