"""Pure parsers of the formats in which kernels and tools print things."""
