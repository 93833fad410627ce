"""The published figures, with the machines that they were measured on. Pure.

A comparison is of one run on one machine. Those of several machines can be published together, each with its machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from benchmarks.measure import Figure

OF_RUN: Final = "load before"  # of the description of a machine: differs from run to run


@dataclass(frozen=True, slots=True)
class Results:
    """Figures, and the machines that they name by number; the first machine has the number 1."""

    machines: tuple[Mapping[str, Any], ...]
    figures: tuple[Figure, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the results as a JSON object."""
        rows = []
        for figure in self.figures:
            row = asdict(figure) | {"met": figure.met}
            row["samples"] = {name: [float(f"{one:.5g}") for one in found] for name, found in figure.samples.items()}
            rows.append(row)
        return {"machines": [dict(machine) for machine in self.machines], "figures": rows}

    @classmethod
    def from_json(cls, results: Mapping[str, Any]) -> Results:
        """Return the results of a JSON object that :meth:`to_json` made."""
        figures = (Figure(**{key: row[key] for key in row if key != "met"}) for row in results["figures"])
        return cls(tuple(results["machines"]), tuple(figures))

    def updated(self, measured_on: Mapping[str, Any], figures: Sequence[Figure]) -> Results:
        """Return these results with the figures of a later run, which replace those of the same name or comparison.

        A figure that is new stands after the one before it in the run, or at the end.
        """
        machines = dict(enumerate(self.machines, 1))
        number = next((at for at, one in machines.items() if _is_same(one, measured_on)), len(machines) + 1)
        machines[number] = measured_on
        names, groups = {one.name for one in figures}, {one.group for one in figures} - {""}
        # A comparison never has figures of two runs.
        merged = [one for one in self.figures if one.name in names or one.group not in groups]
        place = len(merged)
        for figure in figures:
            replaced = [at for at, one in enumerate(merged) if one.name == figure.name]
            place = replaced[0] if replaced else place
            merged[place : place + len(replaced)] = [replace(figure, machine=number)]
            place += 1
        return Results(tuple(machines.values()), tuple(merged))._without_unused_machines()

    def _without_unused_machines(self) -> Results:
        used = sorted({figure.machine for figure in self.figures})
        numbers = {old: new for new, old in enumerate(used, 1)}
        return Results(
            tuple(self.machines[old - 1] for old in used),
            tuple(replace(figure, machine=numbers[figure.machine]) for figure in self.figures),
        )


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two descriptions are of equal machines with the same versions."""
    return {**one, OF_RUN: None} == {**other, OF_RUN: None}
