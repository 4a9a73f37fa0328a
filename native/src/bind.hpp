// What each part of the module binds.

#pragma once

#include <nanobind/nanobind.h>

void bind_active(nanobind::module_ &module);
void bind_drive(nanobind::module_ &module);
void bind_engine(nanobind::module_ &module);
void bind_features(nanobind::module_ &module);
void bind_gpu(nanobind::module_ &module);
void bind_histogram(nanobind::module_ &module);
void bind_pipeline(nanobind::module_ &module);
void bind_queue(nanobind::module_ &module);
