"""Inference on a GPU: engines for the native loop (native/include/hwtune/gpu_engine.hpp), and what a run on
one is told with."""
