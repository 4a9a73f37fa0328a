"""hwtune: the doctor for low-latency and GPU-inference Linux boxes."""

__version__ = "0.1.0"
