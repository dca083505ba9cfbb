import torch

from stoker_kernels.triton import launch, tune

CPU = torch.device("cpu")


def test_a_devices_entry_goes_before_the_default_and_its_other_classes_stay() -> None:
    default = launch.launch_config("rms_norm", "*", CPU)
    with launch.launched_with("rms_norm", 8192, {"num_warps": 1}, CPU):
        assert launch.launch_config("rms_norm", 8192, CPU)["num_warps"] == 1
        assert launch.launch_config("rms_norm", 64, CPU) == default
    assert launch.launch_config("rms_norm", 8192, CPU)["num_warps"] == 8


def test_every_split_is_whole_tiles_and_a_row_is_summed_by_the_same_depth_in_tall_tiles() -> None:
    for by_kernel in launch.launch_table().values():
        for config in by_kernel.get("decode_attention", {}).values():
            assert config["SPLIT"] % config["TILE"] == 0
        for kernel in ("int8_matmul", "selected_logits", "grouped_matmul"):
            assert len({config["DEPTH"] for config in by_kernel.get(kernel, {}).values()}) <= 1


def test_tuning_takes_the_quickest_candidate_that_fits() -> None:
    times = iter([3.0, None, 1.0, 2.0])

    def milliseconds(run: tune.Run) -> float:
        run()
        time = next(times)
        if time is None:
            raise tune.OutOfResources(2, 1, "shared memory")
        return time

    seen: list[int] = []
    case = tune.TuningCase(
        "sample", "tuned", tune.candidates(BLOCK=[512, 1024], num_warps=[4, 8]), lambda: seen.append(launch.launch_config("sample", "tuned", CPU)["BLOCK"])
    )
    try:
        table = tune.tune([case], CPU, milliseconds)
        assert table["cpu"]["sample"]["tuned"] == {"BLOCK": 1024, "num_warps": 4}
        assert seen == [512, 512, 1024, 1024]
    finally:
        launch.launch_table.cache_clear()
