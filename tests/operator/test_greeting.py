from stoker_operator.plan import ProgramPlan, ReplicaPlan
from stoker_operator.question import greeting

URL = "http://127.0.0.1:8080"


def plan(name: str, index: int = 0) -> ReplicaPlan:
    api, engine = (ProgramPlan(component, ("true",), f"/nowhere/{component}") for component in ("api", "engine"))
    return ReplicaPlan(title=name, index=index, served_name=name, host="127.0.0.1", port=1, grace=5.0, api=api, engine=engine)


def test_every_model_is_named_once_and_the_first_asked() -> None:
    lines = greeting([plan("a"), plan("a", 1), plan("b"), plan("c")], URL).splitlines()
    assert lines[0] == f"a is served at {URL}; try:" and lines[1].startswith(f"curl {URL}/v1/chat/completions ") and '"model": "a"' in lines[1]
    assert lines[2:] == ["also there: b, c"]


def test_one_model_of_several_replicas_has_no_others() -> None:
    assert "also there" not in greeting([plan("a"), plan("a", 1)], URL)
