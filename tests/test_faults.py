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
REPORTS = {*range(1, 55), 56, 57, 58, 59, *range(61, 68)}
STATUS = re.compile(r"not yet: \S.*|(partly: \S.*: )?`test_\w+`(, `test_\w+`)*")


class Row(NamedTuple):
    id: str
    text: str
    status: str

    @property
    def test_names(self) -> list[str]:
        return re.findall(r"`(test_\w+)`", self.status)


def read_rows(groups: str) -> list[Row]:
    lines = (TESTS / "faults.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if re.match(rf"\| [{groups}]\d+ \|", line)]
    return [Row(*row) for row in cells]


def case_ids() -> list[str]:
    return [json.loads(line)["id"] for line in (TESTS / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


def known_ids() -> dict[str, list[str]]:
    """By the name of the marker."""
    return {
        "case": case_ids(),
        "fault": [f"{group}{number}" for group, count in FAULT_COUNTS.items() for number in range(1, count + 1)],
        "property": [f"P{number}" for number in range(1, NUM_PROPERTIES + 1)],
    }


def marked_ids(function: ast.FunctionDef | ast.AsyncFunctionDef, marker: str) -> list[str]:
    calls = [decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == f"pytest.mark.{marker}"]
    return [ast.literal_eval(argument) for call in calls for argument in call.args]


def read_tests() -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = [node for path in TESTS.rglob("test_*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")]


def marked_tests() -> dict[str, dict[str, set[str]]]:
    """The tests marked with each id, by marker and id."""
    found: dict[str, dict[str, set[str]]] = {marker: defaultdict(set) for marker in KNOWN_IDS}
    for node in ALL_TESTS:
        for marker, by_id in found.items():
            for marked in marked_ids(node, marker):
                by_id[marked].add(node.name)
    return found


ROWS = read_rows("A-HP")
REPORT_ROWS = read_rows("K")
KNOWN_IDS = known_ids()
ALL_TESTS = read_tests()
MARKED_TESTS = marked_tests()
TESTS_BY_ID = {known: names for by_id in MARKED_TESTS.values() for known, names in by_id.items()}


def test_every_case_fault_and_property_has_exactly_one_row() -> None:
    assert Counter(row.id for row in ROWS) == Counter(known for ids in KNOWN_IDS.values() for known in ids)


@pytest.mark.parametrize("marker", KNOWN_IDS)
def test_every_marker_names_a_known_id(marker: str) -> None:
    assert set(MARKED_TESTS[marker]) - set(KNOWN_IDS[marker]) == set()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_names_exactly_the_tests_that_are_marked_with_it_or_says_why_there_is_none(row: Row) -> None:
    assert STATUS.fullmatch(row.status)
    assert Counter(row.test_names) == Counter(TESTS_BY_ID.get(row.id, ()))


def test_every_report_has_exactly_one_row() -> None:
    assert Counter(row.id for row in REPORT_ROWS) == Counter(f"K{number}" for number in REPORTS)


@pytest.mark.parametrize("row", REPORT_ROWS, ids=lambda row: row.id)
def test_the_row_of_a_report_names_tests_or_says_why_there_is_none(row: Row) -> None:
    assert STATUS.fullmatch(row.status)
    assert set(row.test_names) <= {test.name for test in ALL_TESTS}


def test_at_least_60_of_the_properties_are_shown() -> None:
    assert len(MARKED_TESTS["property"]) >= 60
