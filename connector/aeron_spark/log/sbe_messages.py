"""Makes the record batches of SBE messages from rows: their column ``value`` is written as ``raw``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from aeron_spark.sbe.encode_plan import EncodePlan
from aeron_spark.sbe.encoder import SbeEncoder


def encoded_batches(
    plan: EncodePlan, batches: Iterable[pa.RecordBatch], name_row: Callable[[int], str]
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the column ``value`` with one message for each row; ``name_row`` names one in an error.

    Raises DataFormatError for a value that its field cannot hold.
    """
    encoder = SbeEncoder(plan, name_row)
    for batch in batches:
        for messages in encoder.encode(batch):
            yield pa.RecordBatch.from_arrays([messages], ["value"])
