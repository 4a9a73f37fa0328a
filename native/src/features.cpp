#include "bind.hpp"

void bind_features(nanobind::module_ &) {}
