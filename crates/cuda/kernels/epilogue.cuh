// What becomes of the sums in registers: out = activation(scale * (alpha * sum) + bias) * times + residual. Where operands
// have factors (SCALES), of a whole matrix or of its rows along k, sums are multiplied with them first.
#pragma once
#define ACT_NONE 0
#define ACT_RELU 1
#define ACT_GELU_TANH 2
#define ACT_GELU_ERF 3
#define ACT_SILU 4

// A part is absent, has one number for every column or every row of the sums, or for every element; two neighbours of a
// row come at once where they lie on a boundary of theirs.
#define NO_PART 0
#define PER_COLUMN 1
#define PER_ROW 2
#define PER_ELEMENT 3
#define PER_PAIR 4

#if OUT_F32
typedef float Out;
__device__ __forceinline__ float widen(Out x) { return x; }
#else
typedef u16 Out;
#if OUT_F16
__device__ __forceinline__ float widen(Out x) { return from_f16(x); }
__device__ __forceinline__ u32 pack(float lo, float hi) { return pack_f16(lo, hi); }
#else
__device__ __forceinline__ float widen(Out x) { return from_bf16(x); }
__device__ __forceinline__ u32 pack(float lo, float hi) { return pack_bf16(lo, hi); }
#endif
#endif
struct __align__(2 * sizeof(Out)) Pair { Out lo, hi; };

// A matrix of the result's type: rows and columns are those of the sums, so that of a turned product changes sides.
struct Matrix {
    Out* first;
    i64 row, col, batch;
    __device__ __forceinline__ Out* at(int r, int c, int z) const { return first + (r * row + c * col + z * batch); }
    __device__ __forceinline__ Matrix from(int c) const { return {at(0, c, 0), row, col, batch}; }
};

// A part as seen from a tile: rows and columns are counted from the tile's first, in 32 bits (the host knows the steps).
struct Near {
    const Out* first;
    int row, col;
    __device__ __forceinline__ float at(int r, int c) const { return widen(first[r * row + c * col]); }
};
template <int WAY> __device__ __forceinline__ Near near(const Matrix& part, int m0, int n0, int z) {
    if (WAY == NO_PART) return {};
    return {part.at(WAY == PER_COLUMN ? 0 : m0, WAY == PER_ROW ? 0 : n0, z), (int)part.row, (int)part.col};
}

// Numbers of the parts for one row, one column or one element; those that are not asked for stay unread.
struct Beside { float scale, bias, times, residual; };
template <int WAY> __device__ __forceinline__ float part_of_row(const Near& part, int r) { return WAY == PER_ROW ? part.at(r, 0) : 0.f; }
template <int WAY> __device__ __forceinline__ float part_of_column(const Near& part, int c) { return WAY == PER_COLUMN ? part.at(0, c) : 0.f; }
template <int WAY> __device__ __forceinline__ void part_of_two(const Near& part, int r, int c, int next, float& lo, float& hi) {
    if (WAY == PER_PAIR) {
        const Pair both = *(const Pair*)(part.first + (r * part.row + c));
        lo = widen(both.lo);
        hi = widen(both.hi);
    } else if (WAY == PER_ELEMENT) {
        lo = part.at(r, c);
        hi = part.at(r, next);
    }
}
template <int WAY> __device__ __forceinline__ float by_way(float row, float column, float element) {
    return WAY == PER_ROW ? row : WAY == PER_COLUMN ? column : element;
}

// x / (1 + 2^s) and y / (1 + 2^t), which is x and y times a sigmoid. Where nothing else is going on, the unit for such
// functions is the slowest part of an epilogue: both share one reciprocal, and powers end at 2^60, where nothing is left of x
// and y, lest their product has none. Where others multiply meanwhile, the fewest instructions are best (ALONG).
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ void over_one_and_power(float& x, float s, float& y, float t) {
    if (ALONG) {
        x *= reciprocal(1.f + power_of_two(s));
        y *= reciprocal(1.f + power_of_two(t));
    } else {
        const float p = 1.f + power_of_two(fminf(s, 60.f)), q = 1.f + power_of_two(fminf(t, 60.f)), share = reciprocal(p * q);
        x *= share * q;
        y *= share * p;
    }
}
__device__ __forceinline__ void activate(float& x, float& y) {
#if ACT == ACT_RELU
    x = x < 0.f ? 0.f : x;                             // a NaN stays one
    y = y < 0.f ? 0.f : y;
#elif ACT == ACT_GELU_TANH
    // x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), the same as x/2 (1 + tanh u); factors times -2 / ln 2.
    over_one_and_power(x, x * (-2.302208198f - 0.1029432396f * x * x), y, y * (-2.302208198f - 0.1029432396f * y * y));
#elif ACT == ACT_GELU_ERF
    x = 0.5f * x * (1.f + erff(x * 0.70710678118f));
    y = 0.5f * y * (1.f + erff(y * 0.70710678118f));
#elif ACT == ACT_SILU
    over_one_and_power(x, -1.442695041f * x, y, -1.442695041f * y);
#endif
}

// ---- on registers: sums d[i][4j + 2h + e] of a thread are row ROW_STEP i + lane/4 + 8h from its warp's first on, column
// 8j + 2(lane%4) + e of the tile -----------------------------------------------------------------------------------
typedef float Sums[MSUB][COLUMNS / 2];

struct Ends {
    Matrix out, keep;                    // keep: what goes into the activation, of a gate both halves
    Matrix scale, bias, times, residual;
    int m, n;                            // of the sums, and of what is written
    int second;                          // of a gate: columns from the first half to the second
    float alpha;
    const float *scales_a, *scales_b;    // factors of rows and of columns of the sums
    int step_a, step_b;                  // from one to the next; 0: one for all
    __device__ __forceinline__ float scale_of_row(int r) const { return scales_a ? scales_a[min(r, m - 1) * step_a] : 1.f; }
    __device__ __forceinline__ float scale_of_column(int c, int half = 0) const { return scales_b ? scales_b[(min(c, n - 1) + half) * step_b] : 1.f; }
};

constexpr int PARTS = (SCALE != 0) + (BIAS != 0) + (TIMES != 0) + (RESIDUAL != 0);
constexpr bool PAIRS = SCALE == PER_PAIR || BIAS == PER_PAIR || TIMES == PER_PAIR || RESIDUAL == PER_PAIR;
constexpr bool BY_ELEMENT = SCALE >= PER_ELEMENT || BIAS >= PER_ELEMENT || TIMES >= PER_ELEMENT || RESIDUAL >= PER_ELEMENT;

// What the epilogue of a tile needs of rows and columns, fetched before its products begin so that nobody waits for it
// afterwards. Columns go on to shared memory (STAGED), COLUMNS of each part that has them, for the 128 threads of a group.
constexpr int BY_COLUMN = (SCALE == PER_COLUMN) + (BIAS == PER_COLUMN) + (TIMES == PER_COLUMN) + (RESIDUAL == PER_COLUMN);
constexpr int BY_ROW = (SCALE == PER_ROW) + (BIAS == PER_ROW) + (TIMES == PER_ROW) + (RESIDUAL == PER_ROW);
template <int WAY, int INDEX> __device__ __forceinline__ float staged_column(u32 staged, int c) {
    if (WAY != PER_COLUMN) return 0.f;
    const u32 at = staged + (INDEX * COLUMNS + c) * sizeof(Out);
#if OUT_F32
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
    return x;
#else
    u16 x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at) : "memory");
    return widen(x);
#endif
}
__device__ __forceinline__ Beside staged_of(u32 staged, int c) {
    constexpr int S = SCALE == PER_COLUMN, B = S + (BIAS == PER_COLUMN), T = B + (TIMES == PER_COLUMN);
    return {staged_column<SCALE, 0>(staged, c), staged_column<BIAS, S>(staged, c), staged_column<TIMES, B>(staged, c), staged_column<RESIDUAL, T>(staged, c)};
}
struct Ahead {
    static constexpr int EACH = (COLUMNS + 127) / 128;
    Out columns[BY_COLUMN ? BY_COLUMN : 1][EACH];
    Beside rows[MSUB][2];
    __device__ __forceinline__ Ahead(const Ends& p, int m0, int n0, int z, int row, int lane, int thread) {
        if (!PARTS) return;
        int index = 0;
        auto fetch = [&](const Matrix& part) {
#pragma unroll
            for (int q = 0; q < EACH; ++q) columns[index][q] = *part.at(0, min(n0 + min(thread + 128 * q, COLUMNS - 1), p.n - 1), z);
            ++index;
        };
        if (STAGED && SCALE == PER_COLUMN) fetch(p.scale);
        if (STAGED && BIAS == PER_COLUMN) fetch(p.bias);
        if (STAGED && TIMES == PER_COLUMN) fetch(p.times);
        if (STAGED && RESIDUAL == PER_COLUMN) fetch(p.residual);
#pragma unroll
        for (int i = 0; i < MSUB; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int r = min(m0 + row + lane / 4 + i * ROW_STEP + 8 * h, p.m - 1);
                rows[i][h] = {row_of<SCALE>(p.scale, r, z), row_of<BIAS>(p.bias, r, z), row_of<TIMES>(p.times, r, z), row_of<RESIDUAL>(p.residual, r, z)};
            }
    }
    template <int WAY> static __device__ __forceinline__ float row_of(const Matrix& part, int r, int z) { return WAY == PER_ROW ? widen(*part.at(r, 0, z)) : 0.f; }
    __device__ __forceinline__ void stage(u32 staged, int thread) const {
#pragma unroll
        for (int part = 0; part < BY_COLUMN; ++part)
#pragma unroll
            for (int q = 0; q < EACH; ++q) {
                if (thread + 128 * q >= COLUMNS) continue;
                const u32 at = staged + (part * COLUMNS + thread + 128 * q) * sizeof(Out);
#if OUT_F32
                asm volatile("st.shared.f32 [%0], %1;" :: "r"(at), "f"(columns[part][q]) : "memory");
#else
                asm volatile("st.shared.u16 [%0], %1;" :: "r"(at), "h"(columns[part][q]) : "memory");
#endif
            }
    }
};
// The parts from a tile on. Rows and columns outside of the matrix read what its last ones do; nobody writes what comes
// of it.
struct Nearby {
    Near scale, bias, times, residual;
    int last_row, last_column;
    __device__ __forceinline__ Nearby(const Ends& p, int m0, int n0, int z)
        : scale(near<SCALE>(p.scale, m0, n0, z)), bias(near<BIAS>(p.bias, m0, n0, z)), times(near<TIMES>(p.times, m0, n0, z)),
          residual(near<RESIDUAL>(p.residual, m0, n0, z)), last_row(p.m - 1 - m0), last_column(p.n - 1 - n0) {}
    __device__ __forceinline__ Beside of_row(int r) const {
        r = min(r, last_row);
        return {part_of_row<SCALE>(scale, r), part_of_row<BIAS>(bias, r), part_of_row<TIMES>(times, r), part_of_row<RESIDUAL>(residual, r)};
    }
    __device__ __forceinline__ Beside of_column(int c) const {
        c = min(c, last_column);
        return {part_of_column<SCALE>(scale, c), part_of_column<BIAS>(bias, c), part_of_column<TIMES>(times, c), part_of_column<RESIDUAL>(residual, c)};
    }
    // At c and c + 1; pairs are only asked for where the matrix has whole ones.
    __device__ __forceinline__ void of_two(int r, int c, Beside (&two)[2]) const {
        const int next = min(c + 1, last_column);
        r = min(r, last_row);
        c = min(c, PAIRS ? last_column - 1 : last_column);
        part_of_two<SCALE>(scale, r, c, next, two[0].scale, two[1].scale);
        part_of_two<BIAS>(bias, r, c, next, two[0].bias, two[1].bias);
        part_of_two<TIMES>(times, r, c, next, two[0].times, two[1].times);
        part_of_two<RESIDUAL>(residual, r, c, next, two[0].residual, two[1].residual);
    }
};
__device__ __forceinline__ float before_activation(const Ends& p, float x, const Beside& row, const Beside& column, const Beside& own) {
    if (ALPHA) x *= p.alpha;
    if (SCALE) x *= by_way<SCALE>(row.scale, column.scale, own.scale);
    if (BIAS) x += by_way<BIAS>(row.bias, column.bias, own.bias);
    return x;
}
__device__ __forceinline__ float after_activation(float x, const Beside& row, const Beside& column, const Beside& own) {
    if (TIMES) x *= by_way<TIMES>(row.times, column.times, own.times);
    if (RESIDUAL) x += by_way<RESIDUAL>(row.residual, column.residual, own.residual);
    return x;
}
// The sums of a thread whose warp begins at a row of the tile at m0, n0: up to the activation (BEFORE), from it on (AFTER), or both.
struct Finish {
    const Ends& p;
    const Ahead& ahead;
    const Nearby parts;
    const u32 staged;
    const int n0, r0, c0;
    float by_row[MSUB][2];
    __device__ __forceinline__ Finish(const Ends& p, const Ahead& ahead, u32 staged, int m0, int n0, int z, int row, int lane)
        : p(p), ahead(ahead), parts(p, m0, n0, z), staged(staged), n0(n0), r0(row + lane / 4), c0(2 * (lane % 4)) {
#pragma unroll
        for (int i = 0; i < MSUB; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) by_row[i][h] = SCALES ? p.scale_of_row(m0 + r0 + i * ROW_STEP + 8 * h) : 1.f;
    }
    // Rows `i` up to `last`, `width` columns from `from` on.
    template <bool BEFORE, bool AFTER> __device__ __forceinline__ void some(Sums& d, int i, int last, int from, int width) const {
        if (!(ALPHA || SCALE || BIAS || ACT || TIMES || RESIDUAL || GATED || SCALES)) return;
        Beside rows[MSUB][2];
#pragma unroll
        for (int row = i; row < last; ++row)
#pragma unroll
            for (int h = 0; h < 2; ++h) rows[row][h] = anew(ahead.rows[row][h]);
#pragma unroll
        for (int j = from / 8; j < (from + width) / 8; ++j) {
            // Not all loads at once: there are no registers for what they bring.
            if (PARTS && j % (BY_ELEMENT ? 1 : PARTS > 1 ? 2 : 4) == 0) __syncwarp();
#if STAGED
            const Beside columns[2] = {staged_of(staged, c0 + 8 * j), staged_of(staged, c0 + 8 * j + 1)};
#else
            const Beside columns[2] = {parts.of_column(c0 + 8 * j), parts.of_column(c0 + 8 * j + 1)};
#endif
#pragma unroll
            for (int row = i; row < last; ++row)
#pragma unroll
                for (int h = 0; h < 2; ++h) two<BEFORE, AFTER>(d, row, h, j, columns, rows[row][h]);
        }
    }
    // The same, but not before this place: sums that wait for it are not all begun at once, for which there are no registers.
    static __device__ __forceinline__ Beside anew(Beside x) {
        if (ACT && BIAS == PER_ROW) x.bias = __shfl_sync(~0u, x.bias, threadIdx.x % 32);
        return x;
    }
    template <bool BEFORE, bool AFTER> __device__ __forceinline__ void two(Sums& d, int i, int h, int j, const Beside (&columns)[2], const Beside& of_row) const {
        Beside own[2] = {};
        parts.of_two(r0 + i * ROW_STEP + 8 * h, c0 + 8 * j, own);
        float* x = d[i] + 4 * j + 2 * h;
        [[maybe_unused]] float* other = x + (GATED ? COLUMNS / 4 : 0);
#pragma unroll
        for (int e = 0; e < 2 && BEFORE; ++e) {
            if (SCALES) x[e] *= by_row[i][h] * p.scale_of_column(n0 + c0 + 8 * j + e);
            if (SCALES && GATED) other[e] *= by_row[i][h] * p.scale_of_column(n0 + c0 + 8 * j + e, p.second);
            x[e] = before_activation(p, x[e], of_row, columns[e], own[e]);
            if (GATED && ALPHA) other[e] *= p.alpha;
        }
        if (AFTER) activate(x[0], x[1]);
#pragma unroll
        for (int e = 0; e < 2 && AFTER; ++e) {
            if (GATED) x[e] *= other[e];
            x[e] = after_activation(x[e], of_row, columns[e], own[e]);
        }
    }
    template <bool BEFORE, bool AFTER> __device__ __forceinline__ void all(Sums& d) const {
        // With three parts of each row only some rows at a time have registers for them.
        constexpr int STEP = BY_ROW > 2 ? 1 : MSUB;
#pragma unroll
        for (int i = 0; i < MSUB; i += STEP) some<BEFORE, AFTER>(d, i, i + STEP, 0, OUT_BN);
    }
};

// ---- on the way out --------------------------------------------------------------------------------------------
__device__ __forceinline__ void put(const Ends& p, const Matrix& to, float x, int row, int col, int z) {
    if (row >= p.m || col >= p.n) return;
    Out* at = to.at(row, col, z);
#if OUT_F32
    *at = OUT_ADD ? *at + x : x;
#else
    *at = (Out)pack(x, 0.f);
#endif
}
// Columns of the sums from FROM on.
template <int FROM> __device__ __forceinline__ void store_direct(const Ends& p, const Matrix& to, const Sums& d, int m0, int n0, int z, int lane) {
#pragma unroll
    for (int i = 0; i < MSUB; ++i)
#pragma unroll
        for (int j = 0; j < OUT_BN / 8; ++j)
#pragma unroll
            for (int x = 0; x < 4; ++x)
                put(p, to, d[i][FROM / 2 + 4 * j + x], m0 + i * ROW_STEP + lane / 4 + 8 * (x / 2), n0 + 8 * j + 2 * (lane % 4) + x % 2, z);
}
