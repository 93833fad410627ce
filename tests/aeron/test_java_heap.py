"""The heaps with which a process starts its JVM.

Java collects objects of the old generation when it is full. If that generation begins with its largest size, the
memory of a server with many short connections grows for hours, by objects that nothing refers to any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

MIB: Final = 1 << 20
PROGRAM: Final = """
import json
from aeron_spark.aeron import jvm
{start}
pools = jvm.jclass("java.lang.management.ManagementFactory").getMemoryPoolMXBeans()
heap = jvm.jclass("java.lang.management.MemoryType").HEAP
print(json.dumps({{str(pool.getName()): [pool.getUsage().getInit(), pool.getUsage().getMax()]
                   for pool in pools if pool.getType() == heap}}))
"""
CLIENT: Final = "jvm.start()"
DRIVER: Final = "from aeron_spark.aeron.driver import start_driver_jvm\nstart_driver_jvm({})"


@pytest.mark.parametrize(
    ("start", "largest_mib", "young_mib"),
    [pytest.param(CLIENT, 128, 40, id="client"), pytest.param(DRIVER, 256, 80, id="driver")],
)
def test_old_objects_are_collected_from_16_mib_on(start: str, largest_mib: int, young_mib: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(start=start)], capture_output=True, text=True, timeout=60, check=True
    )
    pools = json.loads(done.stdout)
    assert set(pools) == {"Eden Space", "Survivor Space", "Tenured Gen"}
    begin, largest = pools["Tenured Gen"]
    assert begin == 16 * MIB
    assert largest == (largest_mib - young_mib) * MIB
    eden, survivor = pools["Eden Space"][0], pools["Survivor Space"][0]
    assert eden + 2 * survivor == young_mib * MIB
