"""The golden vectors of the stream service: the bytes of one full example of each request and of each response.

``python -m tests.unit.wire.stream_vectors`` rewrites tests/golden/wire/stream_requests.json. No field of an example has
its default, so that the name of each field is in the bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from aeron_spark.wire import stream_requests as rpc

FILE: Final = Path(__file__).parents[2] / "golden" / "wire" / "stream_requests.json"

_TRANSACTION: Final = rpc.Transaction("desk-7", "run-2", 41, True, "query-1", 40, "stamp", "run-1")

REQUESTS: Final[tuple[rpc.Request[Any], ...]] = (
    rpc.ListStreams(),
    rpc.DescribeStream("prices", accept_damaged=True),
    rpc.MeasureStream("prices"),
    rpc.CreateStream("prices", 3, 2**40, 86_400.0, 1 << 20, "additive", b"schema"),
    rpc.AlterStream("prices", 2**40, 86_400.0, "additive", dry_run=True),
    rpc.RenameStream("prices", "quotes"),
    rpc.EndStream("prices"),
    rpc.ReopenStream("prices"),
    rpc.DeleteStream("prices"),
    rpc.PurgeStream("prices", 1, 4096, 1_700_000_000_000_000_000),
    rpc.ListWriters("prices", "desk-6"),
    rpc.ReleaseWriter("prices", "desk-7"),
    rpc.ListStages("prices", "stage-1"),
    rpc.ListLeases("prices"),
    rpc.ReleaseLease("prices", "reader-1"),
    rpc.PartitionStates("prices"),
    rpc.FindBoundary("prices", 1, 1024, 8192, 65_536, 100, framed=True),
    rpc.FindPosition("prices", 1_700_000_000_000_000_000),
    rpc.MeasureLags("prices", ((0, 1024), (1, 2048))),
    rpc.AwaitCommits("prices", (1024, 2048), 20.0),
    rpc.RenewLease("prices", "reader-1", ((0, 1024), (1, 2048)), 60.0),
    rpc.StartRead("prices", 1, 1024, 8192, 3, 17, 2**63 + 5, 1024),
    rpc.StopRead(3, 17),
    rpc.LastTransaction("prices", "desk-7", "query-1"),
    rpc.BeginTransaction("prices", _TRANSACTION),
    rpc.FindLostTransaction("prices", "desk-7", 40, "stamp"),
    rpc.OpenStage(
        stream="prices", transaction=_TRANSACTION, partition=1, task=5, content="arrow", schema=b"schema", link=3,
        request=17, max_message_bytes=4096, evolve_schema=True, items=b"items", rows=2, crc=2**32 - 1,
    ),
    rpc.FinishStage("prices", "stage-1", 4096, 20.0),
    rpc.CommitTransaction(
        stream="prices", transaction=_TRANSACTION,
        parts=(
            rpc.StagedPart("stage-1", 2, 4096, 2**32 - 1),
            rpc.InlinePart(1, 5, "arrow", b"schema", 3, b"items", 77),
            rpc.InlinePart(None, 6, "raw", b"", 1, b"item", 78),
        ),
        rows=6, seconds=12.0, token="source 7", evolve_schema=True,
    ),
    rpc.CommitEmptyTransaction("prices", _TRANSACTION, 12.0, "source 7"),
    rpc.AbortTransaction("prices", _TRANSACTION),
)  # fmt: skip

_STREAM: Final = rpc.StreamInfo(
    "prices", "ended", "none", "arrow", b"schema", 1_700_000_000_000_000_000, 2**40, 86_400.0, 1 << 20, 1 << 21,
    (rpc.StreamPartition(0, 1024, 8192), rpc.StreamPartition(1, 2048, 4096)), "additive", ("rates",),
    1_700_000_001_000_000_000, 65_536,
)  # fmt: skip

RESPONSES: Final[tuple[rpc.Response, ...]] = (
    rpc.Done(),
    _STREAM,
    rpc.StreamList((_STREAM,)),
    rpc.StreamUsage(7168, 2 << 20, 3, 2, 4096, 59.5),
    rpc.StreamAlteration(
        rpc.StreamProperties(0, 0.0, "strict"), rpc.StreamProperties(2**40, 86_400.0, "additive"),
        (1024, 2048), (4096, 2048),
    ),
    rpc.PurgeReport(
        (
            rpc.PurgedPartition(
                1, 1024, 4096, 2048, (rpc.HeldBytes(1024, "lease", "key", "reader-1", 1_700_000_000_000_000_000),)
            ),
        )
    ),
    rpc.WriterList((rpc.StreamWriterId("desk-7", 41, 1_700_000_000_000_000_000, "key", True),), True),
    rpc.StageList((rpc.StreamStage("stage-2", "desk-7", 41, 1, 4096, "key", True, 3599.5),), True),
    rpc.LeaseList((rpc.StreamLease("reader-1", "key", ((0, 1024), (1, 2048)), 59.5),)),
    rpc.Failure(b"error"),
    rpc.CommittedPartitions(
        (rpc.CommittedPartition(1, 12, "fingerprint", 1024, 8192, 65_536, 7, 1408, 1001, -5, b"epochs", 2048),),
        True, ("rates",),
    ),
    rpc.PartitionPositions((1024, 2048)),
    rpc.ReaderLags(((0, 1_000_000_000), (1, 0))),
    rpc.BoundaryFound(4096, 100),
    rpc.CommitsSeen(True),
    rpc.LastCommitted(41, "source 7"),
    rpc.Begun(41, "stamp", "source 7"),
    rpc.LostTransaction(40),
    rpc.StageOpened("stage-1", 1, 3, 65_536),
    rpc.StageFinished(2, 4096, 2**32 - 1),
    rpc.Committed(True, (8192, 4096), "stamp"),
)  # fmt: skip


def vectors() -> dict[str, dict[str, str]]:
    """Return the bytes of each example, in hexadecimal, by the tag of its class."""
    return {
        "requests": {tag_of(one): rpc.encode_request(one).hex() for one in REQUESTS},
        "responses": {tag_of(one): rpc.encode_response(one).hex() for one in RESPONSES},
    }


def tag_of(example: msgspec.Struct) -> str:
    """Return the word that names the class of an example in its bytes."""
    return str(example.__struct_config__.tag)


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n")
