"""The memory that a server needs is the sum of its terms."""

from __future__ import annotations

from aeron_spark.server.preflight import MIB, Load, describe, node_terms, server_terms, shared_memory_terms, total

LOAD = Load(
    connections=1000, bulk_links=40, partitions=64, written_partitions=8, memory_limit=512 * MIB,
    link_term_bytes=2 * MIB, stream_term_bytes=16 * MIB,
)  # fmt: skip


def test_the_sums_are_those_of_the_contract() -> None:
    assert total(server_terms(LOAD)) // MIB == 250 + 99 + 16 + 512  # 0.1 MiB is rounded down to bytes
    assert total(node_terms(LOAD)) // MIB == 350 + 399 + 2
    assert total(shared_memory_terms(LOAD)) // MIB == 48 + 256 + 6 * 2 * (1000 + 40) + 3 * 16 * 8


def test_a_text_names_each_term() -> None:
    assert describe(shared_memory_terms(LOAD)) == (
        "13168 MiB = driver 48 MiB + reserve 256 MiB + connections and bulk links 1040 x 12 MiB"
        " + written partitions 8 x 48 MiB"
    )
