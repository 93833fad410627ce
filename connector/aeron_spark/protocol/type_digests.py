"""The message types of client and server, compared during the handshake: a difference is named there, not met later."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from aeron_spark.protocol.handshake_payloads import DIGEST_BYTES, MAX_TYPES
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.type_schemas import encode_summary


def type_digests(types: Types) -> dict[int, bytes]:
    """Return a digest for each registered type, of the first MAX_TYPES by id."""
    return {
        one.id: hashlib.sha256(encode_summary((one,))).digest()[:DIGEST_BYTES] for one in types.summary()[:MAX_TYPES]
    }


def schema_refusal(types: Types, theirs: Mapping[int, bytes]) -> Refusal | None:
    """Return why a client with these types cannot be understood: one that both have, and that differs."""
    mine = type_digests(types)
    names = {one.id: one.name for one in types.summary()}
    for type_id in sorted(mine.keys() & theirs.keys()):
        if mine[type_id] != theirs[type_id]:
            return Refusal(
                "schema", f"Type {type_id} ({names[type_id]}) has other fields or another name at the server"
            )
    return None
