from stoker_operator.names import INFERENCE_DEPLOYMENT_LABEL
from stoker_operator.store import Store


def _object(kind: str, name: str, version: int, owner: str | None = None, **metadata: object) -> dict[str, object]:
    labels = {} if owner is None else {INFERENCE_DEPLOYMENT_LABEL: owner}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version), "labels": labels, **metadata}}


def test_the_newest_version_stays_whatever_the_order_they_come_in():
    store = Store()
    assert store.put(_object("Pod", "a", 7, "m"))
    assert not store.put(_object("Pod", "a", 7, "m"))
    assert not store.put(_object("Pod", "a", 5, "m"))
    assert store.get("Pod", "ns", "a")["metadata"]["resourceVersion"] == "7"


def test_objects_are_found_by_the_inference_deployment_whose_label_they_carry():
    store = Store()
    for obj in (_object("Pod", "b", 1, "m"), _object("Pod", "a", 2, "m"), _object("Service", "m", 3, "m"), _object("Pod", "c", 4, "other")):
        store.put(obj)
    assert [pod["metadata"]["name"] for pod in store.of(("ns", "m"), "Pod")] == ["a", "b"]
    store.put(_object("Pod", "b", 5, "other"))
    assert [pod["metadata"]["name"] for pod in store.of(("ns", "m"), "Pod")] == ["a"]


def test_a_late_word_of_a_deletion_does_not_remove_the_object_that_came_after():
    store = Store()
    store.put(_object("Service", "m", 9, "m"))
    assert not store.remove(_object("Service", "m", 8, "m"))
    assert store.remove(_object("Service", "m", 10, "m"))
    assert store.get("Service", "ns", "m") is None and store.of(("ns", "m"), "Service") == []


def test_what_was_under_way_when_an_object_was_deleted_does_not_bring_it_back():
    store = Store()
    store.put(_object("Pod", "a", 5, "m"))
    assert store.remove(_object("Pod", "a", 9, "m"))
    assert not store.put(_object("Pod", "a", 8, "m"))
    assert list(store.replace("Pod", None, [_object("Pod", "a", 5, "m")], version=7)) == []
    assert store.get("Pod", "ns", "a") is None
    assert store.put(_object("Pod", "a", 10, "m"))


def test_a_list_replaces_what_is_older_than_it_and_names_whose_objects_were_other():
    store = Store()
    for obj in (_object("Pod", "gone", 1, "x"), _object("Pod", "same", 2, "y"), _object("Pod", "newer", 50, "z")):
        store.put(obj)
    missed = list(store.replace("Pod", None, [_object("Pod", "same", 2, "y"), _object("Pod", "new", 3, "w")], version=40))
    assert sorted(missed) == [("ns", "w"), ("ns", "x")]
    assert [store.get("Pod", "ns", name) is not None for name in ("gone", "same", "new", "newer")] == [False, True, True, True]


def test_a_list_of_one_namespace_leaves_the_others_alone():
    store = Store()
    store.put(_object("Pod", "a", 1, "x"))
    assert list(store.replace("Pod", "elsewhere", [], version=40)) == []
    assert store.get("Pod", "ns", "a") is not None


def test_what_nobody_reads_is_not_kept():
    store = Store()
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000, "kept": "1"}
    store.put(_object("InferenceDeployment", "m", 1, annotations=annotations, managedFields=[{"manager": "kubectl"}]))
    metadata = store.get("InferenceDeployment", "ns", "m")["metadata"]
    assert metadata["annotations"] == {"kept": "1"} and "managedFields" not in metadata


def test_a_caller_may_change_what_it_gets():
    store = Store()
    store.put(_object("Pod", "a", 1, "m"))
    store.get("Pod", "ns", "a")["metadata"]["name"] = "changed"
    assert store.get("Pod", "ns", "a")["metadata"]["name"] == "a"


def test_pods_that_have_gone_are_told_of_until_they_are_forgotten():
    store = Store()
    pods = [_object("Pod", "a", 1, "m"), _object("Pod", "b", 1, "m")]
    for pod in pods:
        store.keep_departed(pod)
    assert len(store.departed(("ns", "m"))) == 2
    store.forget_departed(("ns", "m"), pods[:1])
    assert [pod["metadata"]["name"] for pod in store.departed(("ns", "m"))] == ["b"]
