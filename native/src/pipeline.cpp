#include "bind.hpp"

void bind_pipeline(nanobind::module_ &) {}
