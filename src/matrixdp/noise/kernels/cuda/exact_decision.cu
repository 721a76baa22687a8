// The elements that no table decides: less than one in a million, each by a warp's first lane, in
// integers. In a warp of its own no element waits for another one's comparisons.
//
// An element is (k steps from) the nearest grid point of its value, for the smallest k >= 0 with
// |z| < b_k = (k + 1/2 - rest) / s, which is V > erfc(b_k / sqrt(2)); see `specification/exact.py`.
// V has 127 bits here, and the tail is bounded from both sides. What even that leaves open, less than
// one element in 2**100, becomes NaN, and the list is marked.

// A number in two's complement, lowest limb first: so many limbs of 32 bits before the point, and so
// many behind it. A unit is a one in the lowest bit.
template <int WHOLE, int FRACTION>
struct Wide {
    u32 limbs[WHOLE + FRACTION];
};

// The widths that are used: of |z| that a table knows, which is below 6, and of any.
#define NEAR 2, 4
#define FAR 4, 8

#define LIMBS (WHOLE + FRACTION)
#define NUMBER Wide<WHOLE, FRACTION>
#define OF_WIDTH template <int WHOLE, int FRACTION> __device__

OF_WIDTH NUMBER sum(const NUMBER& a, const NUMBER& b) {
    NUMBER result;
    u64 carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += (u64)a.limbs[i] + b.limbs[i];
        result.limbs[i] = (u32)carry, carry >>= 32;
    }
    return result;
}

OF_WIDTH NUMBER negative(const NUMBER& a) {
    NUMBER result, unit = {{1}};
    for (int i = 0; i < LIMBS; i++) result.limbs[i] = ~a.limbs[i];
    return sum(result, unit);
}

OF_WIDTH NUMBER difference(const NUMBER& a, const NUMBER& b) { return sum(a, negative(b)); }

OF_WIDTH bool is_negative(const NUMBER& a) { return a.limbs[LIMBS - 1] >> 31; }

OF_WIDTH bool is_zero(const NUMBER& a) {
    u32 all = 0;
    for (int i = 0; i < LIMBS; i++) all |= a.limbs[i];
    return !all;
}

// 2**bits units.
OF_WIDTH NUMBER power_of_two(u32 bits) {
    NUMBER result = {{0}};
    for (int i = 0; i < LIMBS; i++)
        if ((u32)i == bits / 32) result.limbs[i] = 1u << bits % 32;
    return result;
}

// a b, rounded down, of two that are not negative.
OF_WIDTH NUMBER product(const NUMBER& a, const NUMBER& b) {
    u32 whole[2 * LIMBS] = {0};
    for (int i = 0; i < LIMBS; i++) {
        u64 carry = 0;
        for (int j = 0; j < LIMBS; j++) {
            carry += (u64)a.limbs[i] * b.limbs[j] + whole[i + j];
            whole[i + j] = (u32)carry, carry >>= 32;
        }
        whole[i + LIMBS] = (u32)carry;
    }
    NUMBER result;
    for (int i = 0; i < LIMBS; i++) result.limbs[i] = whole[i + FRACTION];
    return result;
}

// a / divisor, rounded down, of one that is not negative.
OF_WIDTH NUMBER quotient(const NUMBER& a, u32 divisor) {
    NUMBER result;
    u64 rest = 0;
    for (int i = LIMBS - 1; i >= 0; i--) {
        rest = rest << 32 | a.limbs[i];
        result.limbs[i] = (u32)(rest / divisor), rest %= divisor;
    }
    return result;
}

// a 2**shift / divisor, rounded down: bit by bit, for a divisor below 2**53. The result fits.
OF_WIDTH NUMBER long_quotient(const NUMBER& a, int shift, u64 divisor) {
    NUMBER result = {{0}};
    u64 rest = 0;
    for (int bit = 32 * LIMBS - 1; bit >= -shift; bit--) {
        rest <<= 1;
        for (int i = 0; i < LIMBS; i++)
            if (bit >= 0 && i == bit / 32) rest |= a.limbs[i] >> bit % 32 & 1;
        u32 next = rest >= divisor;
        if (next) rest -= divisor;
        for (int i = LIMBS - 1; i > 0; i--) result.limbs[i] = result.limbs[i] << 1 | result.limbs[i - 1] >> 31;
        result.limbs[0] = result.limbs[0] << 1 | next;
    }
    return result;
}

// |number| in units, rounded down; |number| <= 1/2.
OF_WIDTH NUMBER magnitude_of(double number) {
    i64 bits = BITS_OF(number);
    u64 fraction = (u64)bits & DOUBLE_FRACTION;
    int exponent = (int)(bits >> 52 & 0x7FF);
    if (exponent) fraction |= 1ULL << 52;
    else exponent = 1;
    // The number is fraction * 2**(exponent - 1075).
    int shift = exponent - 1075 + 32 * FRACTION;
    NUMBER result = {{0}};
    if (shift <= -64) return result;
    if (shift < 0) fraction >>= -shift, shift = 0;
    for (int i = 0; i < LIMBS; i++) {
        int from = 32 * i - shift;  // the bit of the fraction that is lowest in this limb
        if (from >= 0 && from < 64) result.limbs[i] = (u32)(fraction >> from);
        else if (from < 0 && from > -32) result.limbs[i] = (u32)(fraction << -from);
    }
    return result;
}

template <int WHOLE, int FRACTION>
struct Bounds {
    NUMBER low, high;
};

// Bounds of erfc(b / sqrt(2)) = 1 - sqrt(2/pi) * sum of (-1)**n b**(2n+1) / (2**n n! (2n+1)), for any b
// that is at most two units above the given one, below 12, or below 9 in numbers that are NEAR.
//
// With x = b**2 / 2, every power p_n = b x**n / n! is rounded down, and so is x itself. That leaves p_n
// too small by e_n <= e_(n-1) x' / n + p_(n-1) / n + 1 units, x' = x + 1 unit, which is at most
// b x'**(n-1) / (n-1)! + exp(x'). In N < 500 terms these sum up to (b + N) exp(x'), and every term is
// rounded by another unit. The series alternates: once the terms fall, the rest is at most the last
// one, which is below e_N if p_N is rounded to 0. All of it, and two units for b, is below
// 2**11 exp(x') units, and exp(x') <= 2**(3/2 (floor(x) + 1)).
OF_WIDTH Bounds<WHOLE, FRACTION> tail_of(const NUMBER& b) {
    NUMBER square = product(b, b);
    for (int i = 0; i < LIMBS; i++) square.limbs[i] = square.limbs[i] >> 1 | (i + 1 < LIMBS ? square.limbs[i + 1] << 31 : 0);
    u32 whole = square.limbs[FRACTION];
    NUMBER power = b, total = b;
    for (u32 n = 1; n <= whole || !is_zero(power); n++) {
        power = quotient(product(power, square), n);
        NUMBER term = quotient(power, 2 * n + 1);
        total = n % 2 ? difference(total, term) : sum(total, term);
    }
    NUMBER error = power_of_two<WHOLE, FRACTION>(11 + (3 * (whole + 1) + 1) / 2);
    NUMBER least = difference(total, error), most = sum(total, error);
    if (is_negative(least)) least = {{0}};
    const u32 digits[8] = {
        ROOT_TWO_OVER_PI_0, ROOT_TWO_OVER_PI_1, ROOT_TWO_OVER_PI_2, ROOT_TWO_OVER_PI_3,
        ROOT_TWO_OVER_PI_4, ROOT_TWO_OVER_PI_5, ROOT_TWO_OVER_PI_6, ROOT_TWO_OVER_PI_7,
    };
    // Rounded down, by less than a unit.
    NUMBER factor = {{0}}, unit = {{1}}, slack = {{4}}, one = power_of_two<WHOLE, FRACTION>(32 * FRACTION);
    for (int i = 0; i < FRACTION; i++) factor.limbs[i] = digits[8 - FRACTION + i];
    Bounds<WHOLE, FRACTION> bounds;
    bounds.high = difference(one, product(factor, least));
    bounds.low = difference(difference(one, product(sum(factor, unit), most)), slack);
    return bounds;
}

// Words 0 and 1 behind the first word of an element: the AES block of a counter with its number above.
__device__ i64 further_word(const Schedule& key, u64 element, u32 lane) {
    const u32* k = key.words;
    u32 a = (u32)(element >> 32) ^ k[0], b = (u32)element ^ k[1], c = k[2], d = k[3];
    for (int i = 4; i < 56; i += 4) {
        u32 e = round_column(a, b, c, d, k[i], lane), f = round_column(b, c, d, a, k[i + 1], lane);
        u32 g = round_column(c, d, a, b, k[i + 2], lane), h = round_column(d, a, b, c, k[i + 3], lane);
        a = e, b = f, c = g, d = h;
    }
    return (i64)last_column(a, b, c, d, k[56], lane) | ((i64)last_column(b, c, d, a, k[57], lane) << 32);
}

// A comparison of |z| with a bound.
enum Verdict { BELOW, ABOVE, OPEN };

// What is known of an element: its bounds are (k + 1/2 - rest) / s, and V has the 63 bits of the first
// word, then the 64 of a further one, and then more.
struct Uncertain {
    u64 first, further;
    double rest, scale;  // in grid steps
};

// Not inlined, as it is long, and called five times.
OF_WIDTH __noinline__ Verdict compared(const Uncertain& element, u32 k) {
    // k + 1/2 - rest, at most a unit above this.
    NUMBER magnitude = magnitude_of<WHOLE, FRACTION>(element.rest), unit = {{1}}, half = {{0}}, uniform = {{0}};
    half.limbs[FRACTION - 1] = 1u << 31, half.limbs[FRACTION] = k;
    NUMBER above = element.rest > 0 ? difference(half, sum(magnitude, unit)) : sum(half, magnitude);
    if (is_negative(above)) above = {{0}};  // rest is 1/2, and k is 0
    i64 bits = BITS_OF(element.scale);
    u64 divisor = ((u64)bits & DOUBLE_FRACTION) | 1ULL << 52;
    NUMBER bound = long_quotient(above, 1075 - (int)(bits >> 52), divisor);
    // V is from this to 2**-127 above it.
    uniform.limbs[FRACTION - 4] = (u32)(element.further << 1);
    uniform.limbs[FRACTION - 3] = (u32)(element.further >> 31);
    uniform.limbs[FRACTION - 2] = (u32)(element.first << 1 | element.further >> 63);
    uniform.limbs[FRACTION - 1] = (u32)(element.first >> 31);
    // Beyond 9 the tail is below 2**-61, and beyond 12 below 2**-107.
    const u32 furthest = WHOLE > 2 ? 12 : 9, tail_bits = WHOLE > 2 ? 107 : 61;
    if (bound.limbs[FRACTION] >= furthest) {
        NUMBER most_of_tail = power_of_two<WHOLE, FRACTION>(32 * FRACTION - tail_bits);
        return is_negative(difference(uniform, most_of_tail)) ? OPEN : BELOW;
    }
    Bounds<WHOLE, FRACTION> tail = tail_of(bound);
    if (!is_negative(difference(uniform, tail.high))) return BELOW;
    NUMBER most = sum(uniform, power_of_two<WHOLE, FRACTION>(32 * FRACTION - 127));
    if (!is_negative(difference(tail.low, most))) return ABOVE;
    return OPEN;
}

// Find k from a guess that is less than half a step off: by one comparison, of few digits if they do.
__device__ bool found_near(const Uncertain& element, u32* k) {
    Verdict verdict = compared<NEAR>(element, *k);
    if (verdict == OPEN) verdict = compared<FAR>(element, *k);
    if (verdict == ABOVE) ++*k;
    return verdict != OPEN;
}

// Find k from any guess: the bound of k must be above |z|, and that of k - 1 below.
__device__ bool found_far(const Uncertain& element, u32* k) {
    Verdict verdict = compared<FAR>(element, *k);
    if (verdict == ABOVE) {
        do verdict = compared<FAR>(element, ++*k);
        while (verdict == ABOVE);
        return verdict != OPEN;
    }
    Verdict before = ABOVE;
    while (verdict == BELOW && *k && (before = compared<FAR>(element, *k - 1)) == BELOW) --*k;
    return verdict != OPEN && before != OPEN;
}

// Roughly |z|, by Newton's method; no result depends on it.
__device__ double guessed_normal(u64 first, u64 further) {
    double v = (double)first * 0x1p-63 + ((double)further + 0.5) * 0x1p-127;
    double z = v < 0.5 ? sqrt(-2.0 * log(v)) : 1.0 - v;
    for (int i = 0; i < 60; i++) z += (erfc(z / ROOT_TWO) - v) / (0.7978845608028654 * exp(-0.5 * z * z));
    return z;
}

// Whether the element is decided. Where a table knows its noise, the error is far below half a step.
__device__ bool decided_exactly(
    const Schedule& further_key, u64 number, double value, i64 word, double scale, i64 grid_shift,
    const Tables& tables, u32 lane, double* noisy
) {
    Element element = element_of(value, scale, word, grid_shift);
    double scaled = value * element.inverse_step, nearest = rint(scaled), steps = scale * element.inverse_step;
    double sign = word < 0 ? -1.0 : 1.0, rest = sign * (scaled - nearest);
    u64 first = (u64)(word & UNIFORM_MASK), further = (u64)further_word(further_key, number, lane);
    double normal = table_normal(element, tables);
    bool is_known = normal == normal;
    double guess = rest + steps * (is_known ? normal : guessed_normal(first, further));
    // Not for a value that is NaN.
    if (!(guess < 16.0 * steps + 1.0)) return false;
    u32 k = guess < 0.0 ? 0 : (u32)guess;
    Uncertain open = {first, further, rest, steps};
    bool is_found = is_known ? found_near(open, &k) : found_far(open, &k);
    *noisy = (nearest + sign * k) * element.step + 0.0;
    return is_found;
}

template <typename Value>
__device__ void decide(
    const Schedule& further_key, Value* out, u64 size, const Scales& scales, i64 grid_shift,
    const Tables& tables, UndecidedList* list, u64 capacity
) {
    bool overflows = list->count > capacity;
    u64 warp = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, warps = gridDim.x * blockDim.x / LANES;
    u64 wanted = overflows ? 0 : list->count;
    // A whole block that has nothing to do.
    if (!overflows && blockIdx.x * blockDim.x / LANES >= wanted) return;
    fill_shared(tables);
    __syncthreads();
    for (u64 i = warp; i < (threadIdx.x % LANES ? 0 : wanted); i += warps) {
        Undecided entry = list->entries[i];
        double scale = scales.columns ? scale_of(scales, entry.element) : scales.scales[0], noisy;
        if (!decided_exactly(further_key, entry.element, entry.value, entry.word, scale, grid_shift, tables, 0, &noisy)) {
            noisy = NUMBER_OF(EXPONENT_MASK | 1);
            list->failed = 1;
        }
        out[entry.element] = (Value)noisy;
        // With values and words it would give the noise away.
        list->entries[i] = {0, 0.0, 0};
    }
    if (!overflows) return;
    // Nobody knows which ones have no noise.
    u64 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (u64 i = thread; i < size; i += threads) out[i] = (Value)NUMBER_OF(EXPONENT_MASK | 1);
    for (u64 i = thread; i < capacity; i += threads) list->entries[i] = {0, 0.0, 0};
    list->failed = 1;
}

#define DECISION(name, Value)                                                                    \
    extern "C" __global__ void __launch_bounds__(DECIDING_THREADS, 1) name(                      \
        const Schedule further_key, Value* out, u64 size, const Scales scales, i64 grid_shift,   \
        const Tables tables, UndecidedList* list, u64 capacity                                   \
    ) {                                                                                          \
        decide<Value>(further_key, out, size, scales, grid_shift, tables, list, capacity);       \
    }

DECISION(decide_single, float)
DECISION(decide_double, double)
