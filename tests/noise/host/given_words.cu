// The arithmetic alone, for given words: kernels of the tests, behind the source of the others.

#define GIVEN_WORDS(name, Value)                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(                            \
        const i64* words, const Value* values, Value* out, u32 count, const double* scales,   \
        i64 grid_shift, const Tables tables, UndecidedList* list, u64 capacity                \
    ) {                                                                                       \
        fill_shared(tables);                                                                  \
        __syncthreads();                                                                      \
        for (u32 i = threadIdx.x; i < count; i += blockDim.x)                                 \
            finish(values, out, i, 0, words[i], scales[i], grid_shift, tables, list,          \
                   capacity);                                                                 \
    }

GIVEN_WORDS(finish_single, float)
GIVEN_WORDS(finish_double, double)
