import copy

import pytest

from stoker_operator.crd import custom_resource_definition
from stoker_operator.crd_check import missing_fields


def test_the_present_schema_misses_nothing():
    assert missing_fields(custom_resource_definition(), custom_resource_definition()) == []


@pytest.mark.case("C095")
def test_a_field_that_an_older_schema_lacks_is_named_by_its_path():
    old = copy.deepcopy(custom_resource_definition())
    properties = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del properties["spec"]["properties"]["rollout"]
    del properties["status"]["properties"]["conditions"]["items"]["properties"]["observedGeneration"]
    assert missing_fields(custom_resource_definition(), old) == ["spec.rollout", "status.conditions.observedGeneration"]
