"""A user's own model: finds the library that onnxruntime's wheel brought, and hands both to the engine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hwtune.errors import UsageError

if TYPE_CHECKING:
    from hwtune._native import Engine

MISSING = "a model of one's own needs onnxruntime 1.20 or later: pip install 'hwtune[onnx]'"


def onnx_engine(model: str, max_batch: int) -> Engine:
    """Raises ``UsageError``, one sentence, where onnxruntime is missing or the model can't be used."""
    from hwtune import _native

    if not Path(model).is_file():
        raise UsageError(f"there is no model file {model}")
    try:
        return _native.make_onnx_engine(model, str(library()), max_batch)
    except (ValueError, RuntimeError) as error:
        raise UsageError(str(error)) from error


def library() -> Path:
    """libonnxruntime.so, without importing the package, which would load a second copy of it."""
    spec = find_spec("onnxruntime")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        found = sorted(Path(folder, "capi").glob("libonnxruntime.so*"))
        if found:
            return found[0]
    raise UsageError(MISSING)
