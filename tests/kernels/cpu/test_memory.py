import gc

import psutil
import torch

from stoker_kernels.cpu.memory import ALIGNMENT, LARGE_PAGE, REGION_BYTES, Arena, allocate, allocate_apart

MIB = 1 << 20


def resident_bytes() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def test_a_tensor_of_its_own_begins_with_a_large_page_and_holds_zeros() -> None:
    tensor = allocate(3 * LARGE_PAGE // 4, torch.bfloat16)
    assert tensor.data_ptr() % LARGE_PAGE == 0
    assert tensor.shape == (3 * LARGE_PAGE // 4,)
    assert not tensor.any()


def test_tensors_of_an_arena_lie_side_by_side_and_never_overlap() -> None:
    arena = Arena()
    tensors = [arena.allocate(size) for size in (1, 700_000, 63, 64, 3 * MIB)]
    for number, tensor in enumerate(tensors, start=1):
        assert tensor.data_ptr() % ALIGNMENT == 0
        tensor.fill_(number)
    assert [set(tensor.tolist()) for tensor in tensors] == [{number} for number in range(1, 6)]
    assert tensors[-1].data_ptr() + 3 * MIB - tensors[0].data_ptr() < 4 * MIB


def test_what_is_larger_than_a_region_gets_one_of_its_size() -> None:
    arena = Arena()
    before = arena.allocate(64)
    assert len(arena.allocate(REGION_BYTES + 1)) == REGION_BYTES + 1
    before.fill_(1)
    assert before.sum() == 64


def test_a_region_goes_with_its_last_tensor_and_another_takes_its_place() -> None:
    arena = Arena()
    start = resident_bytes()
    for _ in range(20):
        tensors = [arena.allocate(2 * MIB).fill_(1) for _ in range(4)]
        del tensors
    assert resident_bytes() - start < 24 * MIB


def test_an_arena_takes_memory_where_it_was_written_and_gives_it_back_when_all_is_gone() -> None:
    start = resident_bytes()
    arena = Arena()
    tensors = [arena.allocate(MIB) for _ in range(40)]
    assert resident_bytes() - start < 8 * MIB
    for tensor in tensors:
        tensor.fill_(1)
    assert resident_bytes() - start > 36 * MIB
    del arena, tensors, tensor
    assert resident_bytes() - start < 8 * MIB


def test_memory_apart_goes_with_its_tensor_whatever_stays_beside_it() -> None:
    start = resident_bytes()
    kept = []
    for _ in range(30):
        large = allocate_apart(2 * MIB, torch.uint8).fill_(1)
        kept.append(torch.ones(500))
        del large
    assert resident_bytes() - start < 8 * MIB
    assert all(tensor.sum() == 500 for tensor in kept)
