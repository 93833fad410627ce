"""The secure endpoint's client."""

from __future__ import annotations

from aeron_spark.client.client import Client

__all__ = ["Client"]
