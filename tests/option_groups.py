"""Options of endpoints whose groups may have values that no option has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from aeron_spark.options import ClientOptions, ServerOptions

_Options = TypeVar("_Options", ServerOptions, ClientOptions)


def options_of(kind: type[_Options], given: Mapping[str, Any]) -> _Options:
    """Return options with the given values of options and of groups, such as ``times``.

    A copy of them by ``dataclasses.replace`` has the groups of its options.
    """
    fields = {field.name for field in dataclasses.fields(kind)}
    options = kind(**{name: value for name, value in given.items() if name in fields})
    groups = {name: value for name, value in given.items() if name not in fields}
    assert all(hasattr(kind, name) for name in groups), groups
    vars(options).update(groups)
    return options
