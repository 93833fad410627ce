"""The decoder of the tests agrees with the public vectors, so that other tests may trust it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.sbe_reference import Malformed, Other, Reference
from tests.sbe_vectors import FOLDER, MISSING, read_set, set_names

pytestmark = pytest.mark.skipif(not set_names(), reason=MISSING)


def comparable(value: Any) -> Any:
    """Return a body with its floats as the vectors have them."""
    match value:
        case dict():
            return {name: comparable(one) for name, one in value.items()}
        case list():
            return [comparable(one) for one in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case float():
            return float(f"{value:.6g}")
    return value


@pytest.mark.parametrize("name", sorted(set(set_names()) - {"frames", "cluster-log"}))
def test_the_reference_agrees_with_the_vectors(name: str) -> None:
    reference = Reference(FOLDER / name / "schema.xml")
    for vector in read_set(name):
        status = vector.expected["status"]
        if status == "ok":
            found = reference.decode(vector.data)
            assert found["message"] == vector.expected["message"]
            assert comparable(found["body"]) == comparable(json.loads(json.dumps(vector.expected["body"]))), vector
        elif status == "error":
            with pytest.raises(Other if vector.case in ("unknown template", "another schema") else Malformed):
                reference.decode(vector.data)
