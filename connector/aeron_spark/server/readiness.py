"""Whether a server is ready, by named conditions. Pure: the conditions are functions that the server gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final


class Readiness:
    """A server is ready while none of its conditions has a problem. Thread-safe if the conditions are.

    Each condition returns its problem as a text, or "" if it is fulfilled. The texts are always those of this moment.
    """

    def __init__(self, conditions: Mapping[str, Callable[[], str]]) -> None:
        self._conditions: Final = conditions

    @property
    def reasons(self) -> dict[str, str]:
        """The problems of the conditions that are not fulfilled, by name; empty if the server is ready."""
        problems = {name: problem() for name, problem in self._conditions.items()}
        return {name: problem for name, problem in problems.items() if problem}

    @property
    def is_ready(self) -> bool:
        """Whether all conditions are fulfilled."""
        return not self.reasons
