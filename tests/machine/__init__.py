"""hwtune on a real Linux: a machine in QEMU that these tests build and start themselves."""
