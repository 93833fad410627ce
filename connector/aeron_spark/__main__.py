"""``python -m aeron_spark`` is ``aeron-spark``."""

import sys

from aeron_spark.cli.main import main

sys.exit(main())
