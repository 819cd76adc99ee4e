"""What all tests of models want."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny products are slower on several cores."""
    torch.set_num_threads(1)
