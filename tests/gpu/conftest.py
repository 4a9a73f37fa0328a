"""Tests on a real GPU: left out, saying so, where there is none."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def device():
    """The first GPU, as CUDA numbers them. Where a driver is loaded, a failure to open it is a failure."""
    from hwtune import _native

    if not any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg")):
        pytest.skip("no NVIDIA driver is loaded on this machine")
    return _native.make_gpu_device(0)
