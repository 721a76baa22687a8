// Exact Gaussian noise on consecutive elements of one range: AES-256-CTR, the coarse table, the fine
// table, rounding. The arithmetic is that of the other kernels, operation by operation, so that the
// bits are theirs, and so is the list of undecided elements.
//
// Compiled with fused multiply-add switched off, after definitions of the constants in capitals that
// nothing here defines (`source.py` takes them from the specification). Tests compile this very file
// for the processor too: it uses nothing but threadIdx, blockIdx, blockDim, gridDim, __syncthreads,
// __byte_perm, atomicAdd, conversions of bits and functions of C.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define BITS_OF(number) __double_as_longlong(number)
#define NUMBER_OF(bits) __longlong_as_double(bits)
#define EXPONENT_MASK (0x7FFLL << 52)
#define INVERSE_BASE (2046LL << 52)
#define UNIFORM_MASK ((i64)(~0ULL >> (64 - UNIFORM_BITS)))

// Every entry of an AES table is there once for each lane of a warp, in a bank of its own: no two
// lanes ever wait for each other. An entry of two tables takes 256 bytes, and the next two tables
// begin where these end.
#define TABLE_BYTES (256 * 256)
#if FOUR_TABLES
#define SHARED_BYTES (2 * TABLE_BYTES + 8 * COLUMNS)
#else
#define SHARED_BYTES TABLE_BYTES
#endif

// The 60 words of an AES-256 key schedule; those of the last round have their bytes reversed.
struct Schedule {
    u32 words[60];
};

// Rows, columns and strides of the scales of a whole matrix; no columns mean one scale for all.
struct Scales {
    const double* scales;
    u64 columns, row_stride, column_stride;
};

struct Undecided {
    u64 element;
    double value;
    i64 word;
};

struct UndecidedList {
    u64 count, failed, unused;
    Undecided entries[1];
};

struct Tables {
    const u32* aes;      // 256 entries of the first table
    const i64* coarse;   // COLUMNS words
    const i64* fine;     // three rows of COLUMNS words
};

extern __shared__ __align__(16) unsigned char shared[];

__device__ __forceinline__ u32 rotated(u32 word, int bytes) {
    return bytes == 1   ? __byte_perm(word, 0, 0x0321)
           : bytes == 2 ? __byte_perm(word, 0, 0x1032)
           : bytes == 3 ? __byte_perm(word, 0, 0x2103)
                        : word;
}

// The shared memory holds the AES tables, and where there is room the coarse table behind them.
__device__ __forceinline__ void fill_shared(const Tables& tables) {
    for (u32 i = threadIdx.x; i < 256 * LANES; i += blockDim.x) {
        u32 entry = i / LANES, first = tables.aes[entry];
        u32* lane = (u32*)(shared + 256 * entry) + i % LANES;
        lane[0] = first;
        lane[LANES] = rotated(first, 1);
#if FOUR_TABLES
        lane[TABLE_BYTES / 4] = rotated(first, 2);
        lane[TABLE_BYTES / 4 + LANES] = rotated(first, 3);
#endif
    }
#if FOUR_TABLES
    for (u32 i = threadIdx.x; i < COLUMNS; i += blockDim.x)
        ((i64*)(shared + 2 * TABLE_BYTES))[i] = tables.coarse[i];
#endif
}

__device__ __forceinline__ i64 coarse_entry(const Tables& tables, i64 column) {
#if FOUR_TABLES
    return ((const i64*)(shared + 2 * TABLE_BYTES))[column];
#else
    return tables.coarse[column];
#endif
}

// Entry `byte` (0 is the lowest) of `word` in the table that begins at an offset. One instruction
// makes the address: the byte goes above the lane's own.
template <int byte>
__device__ __forceinline__ u32 looked_up(u32 word, u32 lane, u32 offset) {
    return *(const u32*)(shared + offset + __byte_perm(word, lane, 0x7604 | (byte << 4)));
}

// One column of a round: the tables are the first one, rotated by 0, 1, 2 and 3 bytes.
__device__ __forceinline__ u32 round_column(u32 a, u32 b, u32 c, u32 d, u32 key, u32 lane) {
    u32 high = looked_up<3>(a, lane, 0) ^ looked_up<2>(b, lane, 4 * LANES) ^ key;
#if FOUR_TABLES
    return high ^ looked_up<1>(c, lane, TABLE_BYTES) ^ looked_up<0>(d, lane, TABLE_BYTES + 4 * LANES);
#else
    return high ^ rotated(looked_up<1>(c, lane, 0) ^ looked_up<0>(d, lane, 4 * LANES), 2);
#endif
}

// One column of the last round, which has no tables: the S-box is the second byte of an entry. The
// bytes come out in the order of memory.
__device__ __forceinline__ u32 last_column(u32 a, u32 b, u32 c, u32 d, u32 key, u32 lane) {
    u32 low = __byte_perm(looked_up<3>(a, lane, 0), looked_up<2>(b, lane, 0), 0x0051);
    u32 high = __byte_perm(looked_up<1>(c, lane, 0), looked_up<0>(d, lane, 0), 0x0051);
    return __byte_perm(low, high, 0x5410) ^ key;
}

// What all counters below 2**24 have in common in the first two rounds.
struct Start {
    u32 first[3], second[4];
};

__device__ __forceinline__ Start start_of(const Schedule& key, u32 lane) {
    const u32* k = key.words;
    // The counter changes the three lowest bytes of the last column alone. With an entry of zero,
    // which is what `^ z` takes off, a lookup counts for nothing.
    u32 z0 = looked_up<0>(0, lane, 0), z1 = rotated(z0, 1), z2 = rotated(z0, 2), z3 = rotated(z0, 3);
    Start start;
    start.first[0] = round_column(k[0], k[1], k[2], 0, k[4], lane) ^ z3;
    start.first[1] = round_column(k[1], k[2], 0, k[0], k[5], lane) ^ z2;
    start.first[2] = round_column(k[2], 0, k[0], k[1], k[6], lane) ^ z1;
    u32 last = round_column(k[3], k[0], k[1], k[2], k[7], lane);
    start.second[0] = round_column(0, 0, 0, last, k[8], lane) ^ z0 ^ z1 ^ z2;
    start.second[1] = round_column(0, 0, last, 0, k[9], lane) ^ z0 ^ z1 ^ z3;
    start.second[2] = round_column(0, last, 0, 0, k[10], lane) ^ z0 ^ z2 ^ z3;
    start.second[3] = round_column(last, 0, 0, 0, k[11], lane) ^ z1 ^ z2 ^ z3;
    return start;
}

#if FOUR_TABLES
#define THIRD(word) looked_up<1>(word, lane, TABLE_BYTES)
#define FOURTH(word) looked_up<0>(word, lane, TABLE_BYTES + 4 * LANES)
#else
#define THIRD(word) rotated(looked_up<1>(word, lane, 0), 2)
#define FOURTH(word) rotated(looked_up<0>(word, lane, 4 * LANES), 2)
#endif
#define FIRST(word) looked_up<3>(word, lane, 0)
#define SECOND(word) looked_up<2>(word, lane, 4 * LANES)

// The words of the two elements of an AES block, by its number in the range.
__device__ __forceinline__ void words_of(
    const Schedule& key, const Start& start, u32 block, u32 lane, i64* even, i64* odd
) {
    const u32* k = key.words;
    u32 counter = k[3] ^ block;
    // Two rounds in which most lookups are those of `start`. Byte 1 of the counter is looked up in
    // the third table, byte 0 in the fourth, byte 2 in the second.
    u32 x = start.first[0] ^ FOURTH(counter);
    u32 y = start.first[1] ^ THIRD(counter);
    u32 z = start.first[2] ^ SECOND(counter);
    u32 a = start.second[0] ^ FIRST(x) ^ SECOND(y) ^ THIRD(z);
    u32 b = start.second[1] ^ FIRST(y) ^ SECOND(z) ^ FOURTH(x);
    u32 c = start.second[2] ^ FIRST(z) ^ THIRD(x) ^ FOURTH(y);
    u32 d = start.second[3] ^ SECOND(x) ^ THIRD(y) ^ FOURTH(z);
#pragma unroll
    for (int i = 12; i < 56; i += 4) {
        u32 e = round_column(a, b, c, d, k[i], lane), f = round_column(b, c, d, a, k[i + 1], lane);
        u32 g = round_column(c, d, a, b, k[i + 2], lane), h = round_column(d, a, b, c, k[i + 3], lane);
        a = e, b = f, c = g, d = h;
    }
    *even = (i64)last_column(a, b, c, d, k[56], lane) | ((i64)last_column(b, c, d, a, k[57], lane) << 32);
    *odd = (i64)last_column(c, d, a, b, k[58], lane) | ((i64)last_column(d, a, b, c, k[59], lane) << 32);
}

__device__ __forceinline__ double scale_of(const Scales& scales, u64 element) {
    if (!scales.columns) return scales.scales[0];
    u64 row;
    if ((element | scales.columns) >> 32)
        row = element / scales.columns;
    else  // much faster
        row = (u32)element / (u32)scales.columns;
    u64 column = element - row * scales.columns;
    return scales.scales[row * scales.row_stride + column * scales.column_stride];
}

// An element between the draw and its decision.
struct Element {
    double value, scale, step, inverse_step;
    i64 word, uniform_bits;
};

__device__ __forceinline__ Element element_of(double value, double scale, i64 word, i64 grid_shift) {
    i64 step_bits = (BITS_OF(scale) & EXPONENT_MASK) - grid_shift;
    return {value, scale, NUMBER_OF(step_bits), NUMBER_OF(INVERSE_BASE - step_bits),
            word, BITS_OF((double)(word & UNIFORM_MASK))};
}

__device__ __forceinline__ i64 column_of(i64 uniform_bits, int segment_bits, i64 first_column) {
    i64 column = (uniform_bits >> (52 - segment_bits)) - first_column;
    return column > 0 ? column : 0;
}

__device__ __forceinline__ double coordinate_of(i64 uniform_bits, i64 fraction_mask, double centre) {
    return NUMBER_OF((uniform_bits & fraction_mask) | ONE_BITS) - centre;
}

// Whether the absolute value of the noise, known up to the error of a table, decides the element.
__device__ __forceinline__ bool decided(
    const Element& element, double normal, double decided_below, double* noisy
) {
    double noise = NUMBER_OF(BITS_OF(normal) ^ (element.word & ~UNIFORM_MASK));
    double scaled = element.value * element.inverse_step, whole = rint(scaled);
    double rest = (scaled - whole) + (element.scale * element.inverse_step) * noise;
    double nearest = rint(rest);
    // The sign of a zero would tell on which side of it the value lay: -0.0 + 0.0 is 0.0.
    *noisy = (whole + nearest) * element.step + 0.0;
    // False for the NaN of a column outside of the table.
    return fabs(rest - nearest) < decided_below;
}

__device__ __forceinline__ bool decided_coarsely(
    const Element& element, const Tables& tables, double* noisy
) {
    i64 bits = element.uniform_bits;
    i64 packed = coarse_entry(tables, column_of(bits, COARSE_SEGMENT_BITS, COARSE_FIRST_COLUMN));
    double t = coordinate_of(bits, COARSE_FRACTION_MASK, COARSE_CENTRE);
    // Shifted arithmetically: the sign bit of a sentinel makes a NaN.
    double c0 = NUMBER_OF((packed >> C0_SHIFT) | EIGHT_BITS) - 8.0;
    double a = NUMBER_OF((i64)((u64)packed << A_SHIFT & DOUBLE_FRACTION) | ONE_BITS) - 1.0;
    double q = a * t;
    return decided(element, (c0 * q - ROOT_TWO) * q + c0, COARSE_DECIDED_BELOW, noisy);
}

// The absolute value of the noise by the fine table; NaN outside of it.
__device__ __forceinline__ double table_normal(const Element& element, const Tables& tables) {
    i64 bits = element.uniform_bits;
    const i64* entry = tables.fine + column_of(bits, SEGMENT_BITS, FIRST_COLUMN);
    double t = coordinate_of(bits, FRACTION_MASK, CENTRE);
    double c0 = NUMBER_OF(entry[0]), c1 = NUMBER_OF(entry[COLUMNS]), c2 = NUMBER_OF(entry[2 * COLUMNS]);
    double c3 = NUMBER_OF((i64)((u64)entry[2 * COLUMNS] << PACKED_SHIFT));
    return ((c3 * t + c2) * t + c1) * t + c0;
}

__device__ __forceinline__ bool decided_finely(
    const Element& element, const Tables& tables, double* noisy
) {
    return decided(element, table_normal(element, tables), DECIDED_BELOW, noisy);
}

template <typename Value>
__device__ __forceinline__ void finish(
    const Value* values, Value* out, u32 place, u64 first, i64 word, double scale, i64 grid_shift,
    const Tables& tables, UndecidedList* list, u64 capacity
) {
    double value = (double)values[place], noisy;
    Element element = element_of(value, scale, word, grid_shift);
    if (decided_coarsely(element, tables, &noisy) || decided_finely(element, tables, &noisy)) {
        out[place] = (Value)noisy;
        return;
    }
    // What is not finished is not written: others may see the output.
    u64 number = atomicAdd(&list->count, 1ULL);
    if (number < capacity) list->entries[number] = {first + place, value, word};
}

template <typename Value, bool one_scale>
__device__ __forceinline__ void add_noise(
    const Schedule& key, const Value* values, Value* out, u32 count, u64 first, const Scales& scales,
    i64 grid_shift, const Tables& tables, UndecidedList* list, u64 capacity
) {
    fill_shared(tables);
    __syncthreads();
    u32 lane = 4 * (threadIdx.x % LANES);
    Start start = start_of(key, lane);
    double only_scale = scales.scales[0];
    u32 blocks = (count + 1) / 2;
    for (u32 block = blockIdx.x * blockDim.x + threadIdx.x; block < blocks; block += gridDim.x * blockDim.x) {
        i64 words[2];
        words_of(key, start, block, lane, &words[0], &words[1]);
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 place = 2 * block + half;
            if (place < count) {
                double scale = one_scale ? only_scale : scale_of(scales, first + place);
                finish(values, out, place, first, words[half], scale, grid_shift, tables, list, capacity);
            }
        }
    }
}

#define KERNEL(name, Value, one_scale)                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(                               \
        const Schedule key, const Value* values, Value* out, u32 count, u64 first,               \
        const Scales scales, i64 grid_shift, const Tables tables, UndecidedList* list,           \
        u64 capacity                                                                             \
    ) {                                                                                          \
        add_noise<Value, one_scale>(                                                             \
            key, values, out, count, first, scales, grid_shift, tables, list, capacity           \
        );                                                                                       \
    }

KERNEL(add_noise_single_one_scale, float, true)
KERNEL(add_noise_single, float, false)
KERNEL(add_noise_double_one_scale, double, true)
KERNEL(add_noise_double, double, false)

// Coins: whether the word of each record is at most a threshold.
extern "C" __global__ void __launch_bounds__(THREADS, 1) draw_coins(
    const Schedule key, bool* taken, u32 count, u64 most, const Tables tables
) {
    fill_shared(tables);
    __syncthreads();
    u32 lane = 4 * (threadIdx.x % LANES);
    Start start = start_of(key, lane);
    u32 blocks = (count + 1) / 2;
    for (u32 block = blockIdx.x * blockDim.x + threadIdx.x; block < blocks; block += gridDim.x * blockDim.x) {
        i64 words[2];
        words_of(key, start, block, lane, &words[0], &words[1]);
        for (u32 half = 0; half < 2; half++)
            if (2 * block + half < count) taken[2 * block + half] = (u64)words[half] <= most;
    }
}
