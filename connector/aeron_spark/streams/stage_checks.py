"""Checks the stages of a transaction, and merges their contents and schemas into those of the stream. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aeron_spark.errors import DataFormatError, RefusedError, UsageError
from aeron_spark.streams.inline_stages import CommittableRows
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.schema_changes import Evolution, evolve
from aeron_spark.wire.stream_rpc import CommitTransaction, StagedPart, Transaction


def check_parts(request: CommitTransaction) -> None:
    """Check the parts that a commit names.

    Raises RefusedError without parts, or if they have another number of rows than the request says; UsageError if a
    stage occurs twice.
    """
    transaction, named = request.transaction, sum(part.rows for part in request.parts)
    if not request.parts or request.rows != named:
        raise RefusedError(
            f"transaction {transaction.number} of writer {transaction.writer!r} is not committed: its commit names "
            f"{len(request.parts)} stages with {named} rows, but its writer wrote {request.rows} rows",
            remedy="Stage the rows of the transaction again.",
        )
    ids = [part.id for part in request.parts if isinstance(part, StagedPart)]
    if len(set(ids)) != len(ids):
        raise UsageError(
            f"the commit of transaction {transaction.number} of writer {transaction.writer!r} names a stage twice",
            remedy="Name the stages of the successful attempts, each once.",
        )


def check_transaction(stages: Iterable[CommittableRows], transaction: Transaction) -> None:
    """Raise UsageError if a stage does not belong to this transaction."""
    writer, run, number = transaction.writer, transaction.run, transaction.number
    for stage in stages:
        found = stage.description
        if (found.writer, found.run, found.transaction) != (writer, run, number):
            raise UsageError(
                f"the commit of transaction {number} of writer {writer!r}, run {run!r}, names stage "
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
                evolve(ledger.schema, description.schema, policy, Evolution.of(description.evolves, may_evolve))
            schema = evolve(schema, description.schema, policy, Evolution.PERMITTED)
    return content, schema
