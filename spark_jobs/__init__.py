"""Jobs for ``spark-submit``, in the installed package ``aeron_spark.jobs``.

The function ``build(spark, args)`` of each does its work in the session of a program or a notebook. ``args`` are those
of ``command_line().parse_args([...])``. A module imports Spark when it runs, so that its command line works without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

NAMES: Final = ("aeron_to_delta", "audit", "backfill", "delta_to_aeron", "mirror", "retention")


def path_of(name: str) -> Path:
    """Return the file of a job, for ``spark-submit``."""
    return Path(__file__).resolve().with_name(f"{name}.py")
