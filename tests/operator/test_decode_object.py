import pytest

from stoker_operator.decode_object import decode_inference_deployment, decode_status
from stoker_operator.errors import InvalidSpecError


def _object(**spec: object) -> dict[str, object]:
    metadata = {"name": "m", "namespace": "ns", "uid": "u", "generation": 1, "managedFields": [], "resourceVersion": "3", "finalizers": ["other.example/x"]}
    return {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": metadata, "spec": {"model": {"uri": "file:///m"}, **spec}}


def test_what_the_api_server_adds_to_metadata_is_ignored():
    assert decode_inference_deployment(_object(replicas=3)).spec.replicas == 3


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicas": "x"}, "spec.replicas"),
        ({"unheardOf": 1}, "unheardOf"),
        ({"model": {"uri": "ftp://x"}}, "spec.model.uri"),
        ({"engine": {"blockSize": 17}}, "spec.engine"),
    ],
)
def test_what_cannot_be_used_is_told_by_its_field(spec: dict[str, object], field: str):
    with pytest.raises(InvalidSpecError, match=field):
        decode_inference_deployment(_object(**spec))


def test_a_rule_between_fields_is_told_in_its_own_words():
    with pytest.raises(InvalidSpecError, match=r"spec\.model\.aliases: must not repeat the served name"):
        decode_inference_deployment(_object(model={"uri": "file:///m", "servedName": "a", "aliases": ["a"]}))


def test_a_status_of_someone_else_counts_as_none():
    assert decode_status({"status": {"kopf": {}}}) == decode_status({})


def test_what_cannot_be_read_of_a_status_costs_nothing_else():
    def condition(kind: str, status: str) -> dict[str, object]:
        return {"type": kind, "status": status, "reason": "Why", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}

    conditions = [condition("Ready", "True"), condition("Odd", "Perhaps"), {"type": "Bare"}]
    status = decode_status({"status": {"replicas": 2, "readyReplicas": -1, "unheardOf": {}, "lastDrain": {"pod": 3}, "conditions": conditions}})
    assert (status.replicas, status.ready_replicas, status.last_drain) == (2, 0, None)
    assert [each.type for each in status.conditions] == ["Ready"]


def test_a_spec_that_is_nested_without_end_is_refused():
    deep: dict[str, object] = {}
    for _ in range(50_000):
        deep = {"a": deep}
    with pytest.raises(InvalidSpecError, match="nested more than 64 deep"):
        decode_inference_deployment(_object(podTemplate={"spec": deep}))
