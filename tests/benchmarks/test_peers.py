from pathlib import Path

import msgspec
import pytest
import yaml

from peers import find, parse_peer
from servers import manifest
from stoker_operator.v1alpha1 import InferenceDeployment


def installed(folder: Path) -> Path:
    for path in (folder / "vllm" / "bin" / "python", folder / "hf" / "bin" / "python", folder / "smollm2-135m" / "config.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize(("name", "environment"), [("vllm", "vllm"), ("llama", "hf"), ("transformers", "hf")])
def test_a_peer_is_a_name_and_a_directory(tmp_path: Path, name: str, environment: str) -> None:
    peer = parse_peer(f"{name}={installed(tmp_path)}")
    assert peer.python == tmp_path / environment / "bin" / "python"
    assert find([peer], name) is peer
    assert find([peer], "tgi") is None


@pytest.mark.parametrize("text", ["vllm", "vllm=", "=/opt/peers", "tgi=/opt/peers"])
def test_what_is_no_peer_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAME=DIR with one of vllm, llama, transformers"):
        parse_peer(text)


def test_a_directory_without_the_peer_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="vllm/bin/python is missing"):
        parse_peer(f"vllm={tmp_path}")


def test_settings_named_as_flags_are_those_of_the_manifest() -> None:
    text = manifest("file:///model", {"num-blocks-override": "1024", "dtype": "bfloat16", "async-scheduling": "true"})
    deployment = msgspec.convert(yaml.safe_load(text), InferenceDeployment)
    assert deployment.spec.engine.num_blocks_override == 1024
    assert deployment.spec.engine.dtype == "bfloat16"
    assert deployment.spec.engine.async_scheduling
