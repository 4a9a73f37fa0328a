// Runs hwtune/validate/perceptron.cu, the very file that NVRTC compiles, on the CPU: for fake_cuda.c, which launches what
// stands in the table at the end. Each thread of a block is a fiber; __syncthreads() is where they take turns.

#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace {

struct Index {
    int x;
} threadIdx, blockIdx;

struct Fiber {
    ucontext_t context;
    jmp_buf at;
    bool begun = false;
    bool ended = false;
    std::unique_ptr<char[]> stack;
};

constexpr std::size_t stack_bytes = 64 * 1024;
jmp_buf scheduler;
Fiber *running;
void (*body)(void **);
void **arguments;

void __syncthreads() {
    Fiber *const self = running;
    if (_setjmp(self->at) == 0) {
        _longjmp(scheduler, 1);
    }
}

void enter() {
    body(arguments);
    running->ended = true;
    _longjmp(scheduler, 1);
}

// Until its next barrier or its end.
void resume(Fiber &fiber) {
    running = &fiber;
    if (_setjmp(scheduler) != 0) {
        return;
    }
    if (fiber.begun) {
        _longjmp(fiber.at, 1);
    }
    fiber.begun = true;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
    setcontext(&fiber.context);
}

void run_block(void (*kernel)(void **), int block, int threads, void **with) {
    static std::vector<Fiber> fibers(1024);
    body = kernel;
    arguments = with;
    blockIdx.x = block;
    for (int i = 0; i < threads; ++i) {
        fibers[i].begun = fibers[i].ended = false;
        if (!fibers[i].stack) {
            fibers[i].stack.reset(new char[stack_bytes]);
        }
    }
    // Forwards and backwards by turns: no order is promised, and what relies on one gets it wrong in the other.
    bool forwards = false;
    for (int ended = 0; ended < threads;) {
        ended = 0;
        forwards = !forwards;
        for (int turn = 0; turn < threads; ++turn) {
            const int i = forwards ? turn : threads - 1 - turn;
            threadIdx.x = i;
            if (!fibers[i].ended) {
                resume(fibers[i]);
            }
            ended += fibers[i].ended;
        }
        if (ended != 0 && ended != threads) {
            std::fputs("fake_cuda_kernels: threads of a block parted at a barrier\n", stderr);
            std::abort();
        }
    }
}

float hwtune_widen(unsigned short half) {
    _Float16 value;
    std::memcpy(&value, &half, sizeof value);
    return static_cast<float>(value);
}

} // namespace

#define HWTUNE_EMULATED
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(n)
#include "../../hwtune/validate/perceptron.cu"

extern "C" {

struct FakeKernel {
    const char *name;
    int parameters;
    void (*run)(int block, int threads, void **arguments);
};

extern const FakeKernel fake_cuda_kernels[];

const FakeKernel fake_cuda_kernels[] = {
    {"hwtune_perceptron_fp32", 3,
     [](int block, int count, void **with) {
         run_block(
             [](void **a) {
                 hwtune_perceptron_fp32(*static_cast<const float **>(a[0]), *static_cast<float **>(a[1]),
                                        *static_cast<const float **>(a[2]));
             },
             block, count, with);
     }},
    {"hwtune_perceptron_fp16", 3,
     [](int block, int count, void **with) {
         run_block(
             [](void **a) {
                 hwtune_perceptron_fp16(*static_cast<const float **>(a[0]), *static_cast<float **>(a[1]),
                                        *static_cast<const unsigned short **>(a[2]));
             },
             block, count, with);
     }},
    {nullptr, 0, nullptr},
};

} // extern "C"
