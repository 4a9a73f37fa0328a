"""CUDA C to what a driver loads, by NVRTC through cuda-bindings: no compiler and no GPU are needed for that.

A cubin for the GPU's own architecture, as a driver takes those of any minor release of its major CUDA version
(CUDA Compatibility, "Minor Version Compatibility"); PTX, which the driver compiles, only for a GPU that is
newer than NVRTC.
"""

from __future__ import annotations

from typing import Any

from hwtune.errors import ToolError, UsageError

MISSING = "the kernel is compiled by NVRTC, which is not installed: pip install 'hwtune[gpu]'"
_LOG_LIMIT = 300


def image(source: bytes, name: str, capability: tuple[int, int], driver: int) -> bytes:
    """``capability`` as (8, 0); ``driver``: the newest CUDA that it serves, 12040. Raises ``UsageError``
    where NVRTC is missing, ``ToolError`` where it does not go with this driver or GPU."""
    nvrtc = _nvrtc()
    major, minor = _version(nvrtc)
    if driver // 1000 < major:
        raise ToolError(
            f"NVRTC {major}.{minor} makes code for CUDA {major}, and the driver serves CUDA "
            f"{driver // 1000}.{driver % 1000 // 10} at most: update the driver, or pip install "
            f"'hwtune[gpu-cuda{driver // 1000}]'"
        )
    own = capability[0] * 10 + capability[1]
    known = sorted(_value(nvrtc.nvrtcGetSupportedArchs()))
    if own in known:
        return _compile(nvrtc, source, name, f"sm_{own}")
    older = [arch for arch in known if arch < own]
    if not older:
        raise ToolError(
            f"a GPU of compute capability {capability[0]}.{capability[1]} is older than what NVRTC "
            f"{major}.{minor} makes code for ({known[0] // 10}.{known[0] % 10} and later)"
        )
    return _compile(nvrtc, source, name, f"compute_{older[-1]}")


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise UsageError(MISSING) from None
    return nvrtc


def _version(nvrtc: Any) -> tuple[int, int]:
    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except (
        RuntimeError
    ):  # the bindings are there, the library is not (cuda.pathfinder says so at the first call)
        raise UsageError(MISSING) from None
    return major, minor


def _value(answer: tuple[Any, ...]) -> Any:
    """Of (status, value); the status is 0 in all that NVRTC does without a program."""
    status, *values = answer
    if int(status) != 0:
        raise ToolError(f"NVRTC failed: {status.name}")
    return values[0] if values else None


def _compile(nvrtc: Any, source: bytes, name: str, architecture: str) -> bytes:
    """A cubin for sm_..., PTX for compute_..., which ends with a zero byte."""
    program = _value(nvrtc.nvrtcCreateProgram(source, name.encode(), 0, [], []))
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if int(status) != 0:
            log = b" " * _value(nvrtc.nvrtcGetProgramLogSize(program))
            _value(nvrtc.nvrtcGetProgramLog(program, log))
            told = " ".join(log.decode(errors="replace").rstrip("\0").split())[:_LOG_LIMIT]
            raise ToolError(f"NVRTC does not compile {name} for {architecture}: {told}")
        if architecture.startswith("sm_"):
            code: bytes = b" " * _value(nvrtc.nvrtcGetCUBINSize(program))
            _value(nvrtc.nvrtcGetCUBIN(program, code))
        else:
            code = b" " * _value(nvrtc.nvrtcGetPTXSize(program))
            _value(nvrtc.nvrtcGetPTX(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)
