from stoker_operator.cluster_kinds import CHILDREN, OPTIONAL_CHILDREN, POD
from stoker_operator.rbac import OWN_NAMESPACE, WATCHED_NAMESPACES, WHOLE_CLUSTER


def test_every_child_may_be_watched_and_applied_and_those_deleted_that_a_spec_may_not_want():
    granted = {(grant.kind, verb) for grant in WATCHED_NAMESPACES for verb in grant.verbs}
    assert all((kind, verb) in granted for kind in CHILDREN for verb in ("get", "list", "watch", "create", "patch"))
    assert {kind for kind, verb in granted if verb == "delete"} == set(OPTIONAL_CHILDREN)


def test_nothing_of_the_user_is_written_or_deleted_and_no_secret_is_read():
    grants = (*WATCHED_NAMESPACES, *WHOLE_CLUSTER, *OWN_NAMESPACE)
    assert not [grant for grant in grants if grant.kind.plural in ("secrets", "configmaps")]
    assert not [grant for grant in grants if grant.resource == "inferencedeployments" and {"patch", "update", "delete", "create"} & set(grant.verbs)]
    assert not [grant for grant in grants if grant.kind is POD and {"delete", "create"} & set(grant.verbs)]
