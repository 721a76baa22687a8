// What the GPU kernels use of CUDA, on a processor: threads one after the other. A kernel runs twice
// for each block, first up to its barrier, by which the shared memory is filled.
#include <cmath>
#include <cstring>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __syncthreads() \
    if (filling) return

using std::erfc, std::exp, std::fabs, std::log, std::rint, std::sqrt;

struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx, blockDim, gridDim;
static bool filling;
unsigned char shared[256 * 1024] __attribute__((aligned(16)));

static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    unsigned long long both = (unsigned long long)high << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
    return result;
}

static inline long long __double_as_longlong(double number) {
    long long bits;
    std::memcpy(&bits, &number, 8);
    return bits;
}

static inline double __longlong_as_double(long long bits) {
    double number;
    std::memcpy(&number, &bits, 8);
    return number;
}

static inline unsigned long long atomicAdd(unsigned long long* count, unsigned long long one) {
    unsigned long long before = *count;
    *count += one;
    return before;
}
