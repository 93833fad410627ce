"""The order in which compared programs run: they take turns, so that other load on the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def turn_order(names: Sequence[str], turn: int) -> list[str]:
    """Return the order of the programs in one turn, which counts from 0.

    Each turn begins with the next program. After each has begun once, the order is reversed, so that no program always
    follows the same other program.
    """
    first = turn % len(names)
    order = [*names[first:], *names[:first]]
    return order[::-1] if turn // len(names) % 2 else order


def take_turns(cases: Mapping[str, Callable[[], float]], *, rounds: int, warm: int = 1) -> dict[str, list[float]]:
    """Run all cases, turn by turn; return the results of each, without its first ``warm`` turns."""
    results: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(warm + rounds):
        for name in turn_order(list(cases), turn):
            result = cases[name]()
            if turn >= warm:
                results[name].append(result)
    return results
