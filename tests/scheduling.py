"""Which tests run side by side: modules, but for those with Spark, of which there is one at a time.

Spark gives each of its Python processes ten seconds to come up, and a Spark driver with its workers, a server and media
drivers are more than two cores can start in that time twice. One after the other they are also done sooner. Whole
programs (``tests/e2e``) have the machine for themselves in ``make test``.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

SPARK: Final = ("tests/e2e/", "tests/spark/")


class OneSpark(LoadFileScheduling):
    """Gives all tests with Spark to one process, and each other module to whichever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """Return the name of what runs in one process, one test after another."""
    return "Spark" if nodeid.startswith(SPARK) else nodeid.partition("::")[0]
