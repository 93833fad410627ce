from __future__ import annotations

from itertools import pairwise, permutations

from benchmarks.turns import take_turns, turn_order


def test_cases_take_turns_and_warm_turns_do_not_count() -> None:
    order: list[str] = []

    def case(name: str) -> float:
        order.append(name)
        return float(len(order))

    samples = take_turns({"a": lambda: case("a"), "b": lambda: case("b")}, rounds=2, warm=1)
    assert order == ["a", "b", "b", "a", "b", "a"]
    assert samples == {"a": [4.0, 6.0], "b": [3.0, 5.0]}


def test_each_of_two_programs_begins_every_second_turn() -> None:
    assert [turn_order("ab", turn)[0] for turn in range(8)].count("a") == 4


def test_three_programs_run_in_each_of_their_orders() -> None:
    assert {tuple(turn_order("abc", turn)) for turn in range(6)} == set(permutations("abc"))


def test_no_program_always_follows_the_same_other_program() -> None:
    for names in ("abc", "abcd", "abcde"):
        before: dict[str, set[str]] = {name: set() for name in names}
        for turn in range(2 * len(names)):
            order = turn_order(names, turn)
            for previous, following in pairwise(order):
                before[following].add(previous)
        assert min(map(len, before.values())) >= 2


def test_one_program_alone_takes_every_turn() -> None:
    assert take_turns({"a": lambda: 2.0}, rounds=3, warm=1) == {"a": [2.0, 2.0, 2.0]}
