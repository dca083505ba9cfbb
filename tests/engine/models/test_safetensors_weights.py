import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from stoker_engine.errors import ModelLoadError
from stoker_engine.models.safetensors_weights import open_directory

LogitsOf = Callable[..., torch.Tensor]


@pytest.fixture
def sharded(tiny: Any) -> Any:
    tiny.write(max_shard_size="120KB")
    assert len(shards(tiny.path)) >= 2
    return tiny


def shards(path: Path) -> list[Path]:
    return sorted(path.glob("model-*.safetensors"))


@pytest.mark.case("C059")
def test_shards_and_a_single_file_give_the_same_model(sharded: Any, logits_of: LogitsOf) -> None:
    from_shards = logits_of(sharded.load())
    for path in [*shards(sharded.path), sharded.path / "model.safetensors.index.json"]:
        path.unlink()
    assert torch.equal(logits_of(sharded.write().load()), from_shards)


@pytest.mark.case("C059")
def test_a_shard_that_the_index_does_not_list_is_left_alone(sharded: Any, logits_of: LogitsOf, caplog: pytest.LogCaptureFixture) -> None:
    expected = logits_of(sharded.load())
    save_file({"model.norm.weight": torch.zeros(64)}, sharded.path / "model-00009-of-00009.safetensors")
    with caplog.at_level(logging.WARNING):
        assert torch.equal(logits_of(sharded.load()), expected)
    assert not caplog.messages


@pytest.mark.case("C059")
def test_a_missing_shard_is_named(sharded: Any) -> None:
    shards(sharded.path)[1].unlink()
    with pytest.raises(ModelLoadError, match=rf"{shards(sharded.path)[0].parent}/model-00002-of-\d+\.safetensors: missing, though .*index\.json lists it"):
        sharded.load()


@pytest.mark.case("C059")
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_a_shard_cut_short_is_named(share: float, sharded: Any) -> None:
    shard = shards(sharded.path)[1]
    data = shard.read_bytes()
    shard.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelLoadError, match=rf"{shard}: cannot be read, it may be cut short"):
        sharded.load()


@pytest.mark.case("C059")
def test_a_directory_without_weights_is_named(tiny: Any) -> None:
    tiny.write()
    (tiny.path / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=rf"{tiny.path}: has neither model\.safetensors nor model\.safetensors\.index\.json"):
        tiny.load()


@pytest.mark.case("C059")
def test_an_empty_directory_is_refused(tmp_path: Path, tiny: Any) -> None:
    with pytest.raises(ModelLoadError, match=rf"{tmp_path}/config\.json: cannot be read"):
        tiny.load()


@pytest.mark.parametrize("content", ["{", "{}", json.dumps({"weight_map": ["a"]})])
def test_a_damaged_index_is_named(content: str, sharded: Any) -> None:
    (sharded.path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelLoadError, match=r"model\.safetensors\.index\.json: not a valid index"):
        sharded.load()


@pytest.mark.case("C058")
def test_a_missing_layer_tensor_is_named(tiny: Any) -> None:
    tiny.write()
    tiny.edit_tensors(lambda tensors: {name: tensor for name, tensor in tensors.items() if "layers.1.mlp.up_proj" not in name})
    with pytest.raises(ModelLoadError, match=rf"{tiny.path}: tensor model\.layers\.1\.mlp\.up_proj\.weight is missing$"):
        tiny.load()


@pytest.mark.case("C058")
def test_an_unknown_tensor_is_warned_of_once_and_inv_freq_never(tiny: Any, caplog: pytest.LogCaptureFixture) -> None:
    tiny.write()
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4), "model.extra.a": torch.ones(1), "model.extra.b": torch.ones(1)}
    tiny.edit_tensors(lambda tensors: tensors | extra)
    with caplog.at_level(logging.WARNING):
        tiny.load()
    assert caplog.messages == [f"{tiny.path}: 2 tensors are not part of the model and were ignored, such as model.extra.a"]


def test_a_tensor_of_another_shape_than_the_config_says_is_named(tiny: Any) -> None:
    tiny.write().edit_config(intermediate_size=88)
    with pytest.raises(ModelLoadError, match=r"tensor model\.layers\.\d\.mlp\.\w+\.weight has the shape \[.*\], the config says \[.*\]"):
        tiny.load()


def test_a_tensor_of_integers_is_refused(tiny: Any) -> None:
    tiny.write()
    tiny.edit_tensors(lambda tensors: tensors | {"model.norm.weight": torch.ones(64, dtype=torch.int8)})
    with pytest.raises(ModelLoadError, match=r"tensor model\.norm\.weight has the dtype torch\.int8"):
        tiny.load()


def test_tensors_come_in_the_order_of_the_layers(tiny: Any) -> None:
    tiny.write(num_hidden_layers=11)
    names = [name for name, _ in open_directory(tiny.path).iterate_tensors(torch.float32)]
    layers = [int(name.split(".")[2]) for name in names if ".layers." in name]
    assert layers == sorted(layers) and layers[-1] == 10
