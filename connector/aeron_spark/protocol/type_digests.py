"""Compares the message types of client and server during the handshake, so that a difference is an error at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from aeron_spark.protocol.handshake_payloads import DIGEST_BYTES, MAX_TYPES
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.type_schemas import encode_summary


def type_digests(types: Types) -> dict[int, bytes]:
    """Return the digests of the registered types by id, limited to the MAX_TYPES lowest ids."""
    return {
        summary.id: hashlib.sha256(encode_summary((summary,))).digest()[:DIGEST_BYTES]
        for summary in types.summary()[:MAX_TYPES]
    }


def schema_refusal(types: Types, theirs: Mapping[int, bytes]) -> Refusal | None:
    """Return the refusal of a client whose message types contradict ours, or None.

    A type that only one end has is permitted.
    """
    mine = type_digests(types)
    names = {summary.id: summary.name for summary in types.summary()}
    for type_id in sorted(mine.keys() & theirs.keys()):
        if mine[type_id] != theirs[type_id]:
            return Refusal(
                "schema", f"Type {type_id} ({names[type_id]}) has other fields or another name at the server"
            )
    return None
