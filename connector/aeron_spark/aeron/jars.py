"""Where the jars are: in the wheel, or built into the source tree by ``make jars``."""

from __future__ import annotations

from pathlib import Path

from aeron_spark.errors import SetupError

FOLDER = Path(__file__).resolve().parent.parent / "jars"

# The bulk helper is ours; aeron-all is Aeron's client, driver and archive in one.
REQUIRED = ("aeron-all", "aeron-spark-helper")


def classpath() -> list[str]:
    """Return the jars this package needs, or raise SetupError naming the one that is missing."""
    found = sorted(FOLDER.glob("*.jar"))
    for name in REQUIRED:
        if not any(jar.name.startswith(name) for jar in found):
            raise SetupError(
                f"the jar {name!r} is missing from {FOLDER}",
                remedy="Install the wheel, which carries its jars, or build them in a source tree with 'make jars'.",
            )
    return [str(jar) for jar in found]
