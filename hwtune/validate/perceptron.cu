// The reference perceptron (native/include/hwtune/perceptron.hpp) as one kernel: a block for each row, which goes through
// all layers with the row in shared memory. Launched as <<<rows, 512>>>, compiled by NVRTC for the GPU at hand.
//
// A block reads all 205,825 parameters once, so its time is that of reading them from L2. Parameters of a layer are its
// weights, input by input (inputs x outputs), then its biases. A thread takes four neighbouring outputs and every n-th
// input; the sums of those that share outputs are added up through shared memory.
//
// FP16: the weights are halves, all arithmetic is FP32.

constexpr int threads = 512;

struct alignas(16) Four {
    float a, b, c, d;
};
struct alignas(8) FourHalves {
    unsigned short a, b, c, d;
};

#ifdef HWTUNE_EMULATED // tests/native/fake_cuda_kernels.cpp runs this file on the CPU
static float widen(unsigned short half) { return hwtune_widen(half); }
#else
static __device__ float widen(unsigned short half) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
    return wide;
}
#endif

static __device__ Four four(const float *from) { return *reinterpret_cast<const Four *>(from); }
static __device__ Four four(const unsigned short *from) {
    const FourHalves halves = *reinterpret_cast<const FourHalves *>(from);
    return {widen(halves.a), widen(halves.b), widen(halves.c), widen(halves.d)};
}
static __device__ float one(const float *from) { return *from; }
static __device__ float one(const unsigned short *from) { return widen(*from); }

// out = max(in * weights + biases, 0), in shared memory; the next layer's parameters. `sums`: 4 * threads floats.
template <int inputs, int outputs, class Number>
static __device__ const Number *layer(const Number *__restrict__ parameters, const float *in, float *out, float *sums) {
    constexpr int groups = outputs / 4;
    constexpr int slices = threads / groups;
    constexpr int steps = inputs / slices;
    static_assert(groups * slices == threads && steps * slices == inputs, "each thread has as much to do");
    const int group = threadIdx.x % groups;
    const int slice = threadIdx.x / groups;
    const Number *weights = parameters + slice * outputs + group * 4;
    Four sum = {0, 0, 0, 0};
#pragma unroll 16
    for (int step = 0; step < steps; ++step) {
        const Four weight = four(weights + step * slices * outputs);
        const float value = in[step * slices + slice];
        sum.a += value * weight.a;
        sum.b += value * weight.b;
        sum.c += value * weight.c;
        sum.d += value * weight.d;
    }
    *reinterpret_cast<Four *>(sums + slice * outputs + group * 4) = sum;
    __syncthreads();
    const int output = threadIdx.x;
    if (output < outputs) {
        float whole = one(parameters + inputs * outputs + output);
#pragma unroll
        for (int other = 0; other < slices; ++other) {
            whole += sums[other * outputs + output];
        }
        out[output] = whole > 0 ? whole : 0;
    }
    __syncthreads();
    return parameters + (inputs + 1) * outputs;
}

template <class Number>
static __device__ void perceptron(const float *__restrict__ rows, float *__restrict__ scores,
                                  const Number *__restrict__ parameters) {
    alignas(16) __shared__ float even[512];
    alignas(16) __shared__ float odd[512];
    alignas(16) __shared__ float sums[4 * threads];
    if (threadIdx.x < 64) {
        even[threadIdx.x] = rows[blockIdx.x * 64 + threadIdx.x];
    }
    __syncthreads();
    parameters = layer<64, 512>(parameters, even, odd, sums);
    parameters = layer<512, 256>(parameters, odd, even, sums);
    parameters = layer<256, 128>(parameters, even, odd, sums);
    parameters = layer<128, 64>(parameters, odd, even, sums);
    if (threadIdx.x < 64) {
        sums[threadIdx.x] = even[threadIdx.x] * one(parameters + threadIdx.x);
    }
    for (int half = 32; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        scores[blockIdx.x] = 1.0f / (1.0f + expf(-(sums[0] + one(parameters + 64))));
    }
}

extern "C" __global__ void __launch_bounds__(threads)
    hwtune_perceptron_fp32(const float *__restrict__ rows, float *__restrict__ scores, const float *__restrict__ parameters) {
    perceptron(rows, scores, parameters);
}

extern "C" __global__ void __launch_bounds__(threads)
    hwtune_perceptron_fp16(const float *__restrict__ rows, float *__restrict__ scores, const unsigned short *__restrict__ parameters) {
    perceptron(rows, scores, parameters);
}
