import ast
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
FAULT_COUNTS = {"A": 7, "B": 13, "C": 19, "D": 20, "E": 9, "F": 8, "G": 17, "H": 1}
NUM_PROPERTIES = 70
STATUS = re.compile(r"not yet: \S.*|(partly: \S.*: )?`test_\w+`(, `test_\w+`)*")


class Row(NamedTuple):
    id: str
    text: str
    status: str

    @property
    def test_names(self) -> list[str]:
        return re.findall(r"`(test_\w+)`", self.status)


def read_rows() -> list[Row]:
    lines = (TESTS / "faults.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if re.match(r"\| [A-HP]\d+ \|", line)]
    return [Row(*row) for row in cells]


def case_ids() -> list[str]:
    return [json.loads(line)["id"] for line in (TESTS / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


def marked_cases(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    calls = [decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.case"]
    return [ast.literal_eval(argument) for call in calls for argument in call.args]


def read_tests() -> tuple[set[str], dict[str, set[str]]]:
    names, by_case = set(), defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                names.add(node.name)
                for case in marked_cases(node):
                    by_case[case].add(node.name)
    return names, by_case


ROWS = read_rows()
TEST_NAMES, TESTS_BY_CASE = read_tests()


def test_every_case_fault_and_property_has_exactly_one_row() -> None:
    faults = [f"{group}{number}" for group, count in FAULT_COUNTS.items() for number in range(1, count + 1)]
    properties = [f"P{number}" for number in range(1, NUM_PROPERTIES + 1)]
    assert Counter(row.id for row in ROWS) == Counter([*case_ids(), *faults, *properties])


def test_every_marker_names_a_known_case() -> None:
    assert set(TESTS_BY_CASE) - set(case_ids()) == set()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_names_tests_that_exist_or_says_why_there_is_none(row: Row) -> None:
    assert STATUS.fullmatch(row.status)
    assert set(row.test_names) - TEST_NAMES == set()


@pytest.mark.parametrize("row", [row for row in ROWS if row.id in case_ids()], ids=lambda row: row.id)
def test_a_case_names_the_tests_that_are_marked_with_it(row: Row) -> None:
    assert set(row.test_names) == TESTS_BY_CASE.get(row.id, set())
