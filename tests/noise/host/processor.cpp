// The GPU kernels for a processor: this file is compiled with the source of the kernels included.
#include "processor.h"
#include KERNEL_SOURCE

template <typename Kernel>
static void launched(u32 blocks, u32 threads, Kernel kernel) {
    gridDim.x = blocks, blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        // What a block left there must not help the next one.
        std::memset(shared, 0xA5, sizeof shared);
        for (int pass = 0; pass < 2; pass++) {
            filling = pass == 0;
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) kernel();
        }
    }
}

#define LAUNCH(name, Value)                                                                          \
    extern "C" void launch_##name(                                                                   \
        u32 blocks, u32 threads, const Schedule* key, const Value* values, Value* out, u32 count,    \
        u64 first, const Scales* scales, i64 grid_shift, const Tables* tables, UndecidedList* list,  \
        u64 capacity                                                                                 \
    ) {                                                                                              \
        launched(blocks, threads, [&] {                                                              \
            name(*key, values, out, count, first, *scales, grid_shift, *tables, list, capacity);     \
        });                                                                                          \
    }

LAUNCH(add_noise_single_one_scale, float)
LAUNCH(add_noise_single, float)
LAUNCH(add_noise_double_one_scale, double)
LAUNCH(add_noise_double, double)

#define LAUNCH_DECISION(name, Value)                                                                 \
    extern "C" void launch_##name(                                                                   \
        u32 blocks, u32 threads, const Schedule* further_key, Value* out, u64 size,                  \
        const Scales* scales, i64 grid_shift, const Tables* tables, UndecidedList* list, u64 capacity \
    ) {                                                                                              \
        launched(blocks, threads, [&] {                                                              \
            name(*further_key, out, size, *scales, grid_shift, *tables, list, capacity);             \
        });                                                                                          \
    }

LAUNCH_DECISION(decide_single, float)
LAUNCH_DECISION(decide_double, double)

extern "C" void launch_draw_coins(
    u32 blocks, u32 threads, const Schedule* key, bool* taken, u32 count, u64 most, const Tables* tables
) {
    launched(blocks, threads, [&] { draw_coins(*key, taken, count, most, *tables); });
}

#define LAUNCH_GIVEN_WORDS(name, Value)                                                              \
    extern "C" void launch_##name(                                                                   \
        u32 blocks, u32 threads, const i64* words, const Value* values, Value* out, u32 count,       \
        const double* scales, i64 grid_shift, const Tables* tables, UndecidedList* list,             \
        u64 capacity                                                                                 \
    ) {                                                                                              \
        launched(blocks, threads, [&] {                                                              \
            name(words, values, out, count, scales, grid_shift, *tables, list, capacity);            \
        });                                                                                          \
    }

LAUNCH_GIVEN_WORDS(finish_single, float)
LAUNCH_GIVEN_WORDS(finish_double, double)
