"""Update the generated parts of the protocol's page: ``python -m aeron_spark.protocol < page > page.new``.

The page is ``docs/endpoint-protocol.md``.
"""

from __future__ import annotations

import sys

from aeron_spark.protocol.document import fill_page

if __name__ == "__main__":
    sys.stdout.write(fill_page(sys.stdin.read()))
