#include "bind.hpp"

void bind_histogram(nanobind::module_ &) {}
