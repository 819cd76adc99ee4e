"""What all tests of kernels want."""

from __future__ import annotations

import pytest
import torch

from translate.machine import kernels_setting


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny products are slower on several cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fast_kernels() -> None:
    """With TRANSLATE_KERNELS=reference there is no kernel to test."""
    if kernels_setting() == "reference":
        pytest.skip("this run is on the plain twins")
