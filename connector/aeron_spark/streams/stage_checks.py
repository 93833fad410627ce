"""Checks the stages of a transaction, and merges their contents and schemas into those of the stream. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aeron_spark.errors import DataFormatError, UsageError
from aeron_spark.streams.inline_stages import CommittableRows
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.schema_changes import Evolution, evolve


def check_transaction(stages: Iterable[CommittableRows], writer: str, run: str, transaction: int) -> None:
    """Raise UsageError if a stage does not belong to this transaction."""
    for stage in stages:
        found = stage.description
        if (found.writer, found.run, found.transaction) != (writer, run, transaction):
            raise UsageError(
                f"the commit of transaction {transaction} of writer {writer!r}, run {run!r}, names stage "
                f"{stage.id} of transaction {found.transaction} of writer {found.writer!r}, run {found.run!r}",
                remedy="Name the stages of the transaction itself.",
            )


def merge_content(
    ledger: Ledger, stages: Sequence[CommittableRows], policy: str, *, may_evolve: bool = True
) -> tuple[str, bytes | None]:
    """Return the content and the schema of the stream with the rows of these stages.

    ``policy`` is the stream's schema policy. ``may_evolve`` is whether the stages that evolve the schema may do so now.
    The stages of the first transaction fix the schema together. Raises DataFormatError if contents or schemas do not
    fit, RefusedError if the policy refuses new columns.
    """
    content, schema = ledger.content, ledger.schema
    for stage in stages:
        description = stage.description
        ledger.check_content(description.content, description.schema)
        if content and content != description.content:
            raise DataFormatError(
                f"tasks of transaction {description.transaction} of writer {description.writer!r} staged "
                f"{content} and {description.content} rows, expected one content",
                remedy="Write the whole transaction with one payload.",
            )
        content = description.content
        if description.schema is not None:
            if ledger.schema is not None:
                evolve(ledger.schema, description.schema, policy, _evolution(description.evolves, may_evolve))
            schema = evolve(schema, description.schema, policy, Evolution.PERMITTED)
    return content, schema


def _evolution(is_requested: bool, is_permitted: bool) -> Evolution:
    if not is_requested:
        return Evolution.NOT_REQUESTED
    return Evolution.PERMITTED if is_permitted else Evolution.NOT_PERMITTED
