// What the kernels for a few rows of x have in common: their parameters, the product of fragments, and a sum on its way out.
#pragma once
#include "ptx.cuh"
// The epilogue takes sums one by one here.
constexpr int MSUB = 1, OUT_BN = 8, COLUMNS = 8, ROW_STEP = 16;
#define ALONG 1
#define STAGED 0
#include "epilogue.cuh"

struct Params {
    const char* w;
    i64 w_row, w_batch;                                    // bytes
    const char* x;
    i64 x_row, x_batch;                                    // bytes
    Ends ends;
    int k, tiles, all;                                     // tiles of a matrix, and of all matrices of the batch
    int constant;                                          // no kernel writes w
};

// ---- tensor cores ----------------------------------------------------------------------------------------------
__device__ __forceinline__ void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if OPERAND_F16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- a sum on its way out --------------------------------------------------------------------------------------
// What it needs of its column; fetched before the products, nobody waits for memory after them.
struct OfColumn {
    float factors[1 + GATED];
    Beside parts;
    // Of a column behind the last one it has what that one does.
    __device__ __forceinline__ OfColumn(const Params& p, int n, int z) : parts(Nearby(p.ends, 0, min(n, p.ends.n - 1), z).of_column(0)) {
#pragma unroll
        for (int half = 0; half <= GATED; ++half) factors[half] = SCALES ? p.ends.scale_of_column(n, half ? p.ends.second : 0) : 1.f;
    }
};
__device__ __forceinline__ float factor_of_row(const Params& p, int m) { return SCALES ? p.ends.scale_of_row(m) : 1.f; }
__device__ __forceinline__ void finish_one(const Params& p, float sum, [[maybe_unused]] float other, int m, int n, int z, const OfColumn& column, float of_row) {
    if (m >= p.ends.m || n >= p.ends.n) return;
    const Nearby parts(p.ends, m, n, z);
    const Beside row = parts.of_row(0);
    Beside own[2] = {};
    parts.of_two(0, 0, own);
    if (SCALES) {
        sum *= of_row * column.factors[0];
        if (GATED) other *= of_row * column.factors[GATED];
    }
    if (ALPHA) other *= p.ends.alpha;
    float x = before_activation(p.ends, sum, row, column.parts, own[0]), unused = 0.f;
#if KEEP
    put(p.ends, p.ends.keep, x, m, n, z);
    if (GATED) put(p.ends, p.ends.keep.from(p.ends.second), other, m, n, z);
#endif
    activate(x, unused);
    if (GATED) x *= other;
    put(p.ends, p.ends.out, after_activation(x, row, column.parts, own[0]), m, n, z);
}
__device__ __forceinline__ void finish_one(const Params& p, float sum, float other, int m, int n, int z) {
    finish_one(p, sum, other, m, n, z, OfColumn(p, n, z), factor_of_row(p, m));
}
