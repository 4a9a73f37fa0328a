#include "bind.hpp"

void bind_queue(nanobind::module_ &) {}
