import pytest

from stoker_operator.cluster_view import claim_names


def test_the_claims_of_a_pod_are_those_that_its_volumes_name() -> None:
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "weights", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}]
    assert claim_names({"volumes": volumes}) == {"weights"} and claim_names({}) == set()


@pytest.mark.parametrize("source", [5, "claimName", [], {}, {"claimName": 5}])
def test_a_source_that_is_no_claim_names_none(source: object) -> None:
    assert claim_names({"volumes": [{"name": "weights", "persistentVolumeClaim": source}]}) == set()


@pytest.mark.parametrize("volumes", [5, "persistentVolumeClaim", {"claimName": "a"}, [5]])
def test_volumes_that_are_no_list_of_volumes_name_no_claim(volumes: object) -> None:
    assert claim_names({"volumes": volumes}) == set()
