"""Appending to a stream directly: raw values, framed values, Arrow batches; at least once, acknowledged as asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """Who writes: the writer's id, its batch, and the task's partition (-1 where there is none)."""

    writer: str
    batch: int = -1
    partition: int = -1
