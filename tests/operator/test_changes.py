from stoker_operator.changes import changed_fields


def test_the_fields_that_differ_are_named_by_their_paths():
    desired = {"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 2, "template": {"x": 1}}}
    assert changed_fields(desired, {"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 1, "template": {"x": 1}}}) == "spec.replicas"


def test_a_field_that_is_only_missing_from_what_is_desired_is_told_too():
    marked = {"metadata": {"annotations": {"stoker.dev/desired": "new"}}}
    assert changed_fields(marked, {"metadata": {"annotations": {"stoker.dev/desired": "old"}}}) == "a field that is no longer wanted"


def test_many_fields_are_counted():
    assert changed_fields({str(n): n for n in range(20)}, {}).endswith("7 and 12 more")
