// What ends a native loop from another thread.

#pragma once

#include <atomic>

struct StopFlag {
    std::atomic<bool> raised{false};
};
