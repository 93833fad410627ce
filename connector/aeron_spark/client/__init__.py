"""The secure endpoint's client."""

from __future__ import annotations

from aeron_spark.client.client import Client
from aeron_spark.client.settings import ClientSettings

__all__ = ["Client", "ClientSettings"]
