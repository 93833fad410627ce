"""The secure endpoint's client."""

from __future__ import annotations

from aeron_spark.client.program import ClientProgram
from aeron_spark.client.settings import ClientSettings

__all__ = ["ClientProgram", "ClientSettings"]
