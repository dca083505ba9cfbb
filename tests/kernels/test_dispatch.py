import logging

import pytest
import torch

from stoker_kernels import rms_norm
from stoker_kernels.dispatch import ops_for


def test_the_implementation_of_each_op_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ops_for.cache_clear()
    with caplog.at_level(logging.INFO, "stoker_kernels"):
        for _ in range(3):
            rms_norm(torch.ones(1, 4), torch.ones(4), 1e-5)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("ops on cpu: rms_norm=torch_ops, ")
    assert "paged_attention=torch_ops" in caplog.messages[0]


def test_a_device_without_ops_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no ops for device type 'meta'"):
        rms_norm(torch.ones(1, 4, device="meta"), torch.ones(4, device="meta"), 1e-5)
