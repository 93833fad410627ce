"""Runs the command ``aeron-spark`` for ``python -m aeron_spark``."""

import sys

from aeron_spark.cli.main import main

sys.exit(main())
