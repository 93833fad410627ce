"""Checks that staged rows are what their stage announces, so that no reader of the stream meets other bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.streams.stage_files import StageHead
from aeron_spark.wire.arrow import conform, decode_batches
from aeron_spark.wire.chunk import Content
from aeron_spark.wire.foreign_arrow import read_schema
from aeron_spark.wire.staged_items import Item, StagedGroup

ARROW: Final = "arrow"
RELEASE_BYTES: Final = 16 << 20  # checked bytes after which their memory is released


def check_content(
    items: Iterable[Item], description: StageHead, first: int = 0, release_memory: Callable[[], object] = lambda: None
) -> int:
    """Return the number of rows up to the end of ``items``; ``first`` is the number of rows before them.

    Raises DataFormatError unless they have the content of the description, and its schema if they are Arrow rows.
    ``release_memory`` is called from time to time: it releases the memory of the items that were checked.
    """
    schema = read_schema(description.schema) if description.content == ARROW and description.schema else None
    held = 0
    for item in items:
        try:
            _check_item(item, description.content, schema)
        except DataFormatError as error:
            raise DataFormatError(
                f"rows {first} to {first + item.rows - 1} of task {description.task} of transaction "
                f"{description.transaction} of writer {description.writer!r} are refused: {error.what}",
                remedy="Correct the program that made them, and write them again.",
            ) from error
        first += item.rows
        held += item.payload.size if isinstance(item, StagedGroup) else 0
        if held >= RELEASE_BYTES:
            release_memory()
            held = 0
    return first


def _check_item(item: Item, content: str, schema: pa.Schema | None) -> None:
    found = ARROW if isinstance(item, StagedGroup) and item.header.content is Content.ARROW else "values"
    if (found == ARROW) != (content == ARROW):
        raise DataFormatError(f"they are {found}, and the stage is {content}")
    if isinstance(item, StagedGroup) and found == ARROW:
        for batch in decode_batches(item.payload, item.rows):
            if schema is not None:
                conform(batch, schema)
