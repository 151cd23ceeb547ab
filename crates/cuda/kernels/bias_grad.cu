// The gradient of a bias: out[n] = sum over m of dy[m][n], in f32, in an order that does not depend on who comes first.
//
// A block adds up ROWS rows of 256 columns, eight neighbours a thread, and leaves its sums; the last block of a strip of
// columns adds up what all left, from the first to the last.
//   TYPE, OUT_TYPE   0 bf16, 1 f16, 2 f32;  ADD: added to what out has
#include "ptx.cuh"

struct Params {
    const void* dy;
    void* out;
    float* partial;          // [slabs][columns]
    u32* counters;           // one for each strip, 0 before and after
    i64 row;                 // elements from row to row
    int rows, columns, slabs, wide;      // wide: eight neighbours lie on a boundary of 16 bytes
};

__device__ __forceinline__ float number(const void* p, i64 i, int type) {
    if (type == 2) return ((const float*)p)[i];
    const u16 x = ((const u16*)p)[i];
    return type == 1 ? from_f16(x) : from_bf16(x);
}

extern "C" __global__ void __launch_bounds__(256) bias_grad(const __grid_constant__ Params p) {
    __shared__ float sums[8][256];
    __shared__ bool last;
    const int strip = blockIdx.x / p.slabs, slab = blockIdx.x % p.slabs;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, c0 = strip * 256 + lane * 8;
    const int from = (int)((i64)p.rows * slab / p.slabs), to = (int)((i64)p.rows * (slab + 1) / p.slabs);
    float s[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
    for (int r = from + warp; r < to; r += 8) {
        const i64 at = r * p.row + c0;
        if (TYPE != 2 && p.wide && c0 + 8 <= p.columns) {
            const uint4 v = *(const uint4*)((const u16*)p.dy + at);
            const u32 two[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                s[2 * e] += TYPE == 1 ? from_f16((u16)two[e]) : from_bf16((u16)two[e]);
                s[2 * e + 1] += TYPE == 1 ? from_f16((u16)(two[e] >> 16)) : from_bf16((u16)(two[e] >> 16));
            }
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) if (c0 + e < p.columns) s[e] += number(p.dy, at + e, TYPE);
        }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) sums[warp][lane * 8 + e] = s[e];
    __syncthreads();
    const int c = strip * 256 + threadIdx.x;
    if (c < p.columns) {
        float total = 0.f;
#pragma unroll
        for (int w = 0; w < 8; ++w) total += sums[w][threadIdx.x];
        p.partial[(i64)slab * p.columns + c] = total;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(p.counters + strip, 1u) == (u32)p.slabs - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    if (threadIdx.x == 0) p.counters[strip] = 0;
    if (c >= p.columns) return;
    float total = 0.f;
    for (int i = 0; i < p.slabs; ++i) total += __ldcg(p.partial + (i64)i * p.columns + c);
    if (ADD) total += number(p.out, c, OUT_TYPE);
    if (OUT_TYPE == 2) ((float*)p.out)[c] = total;
    else ((u16*)p.out)[c] = (u16)(OUT_TYPE == 1 ? pack_f16(total, 0.f) : pack_bf16(total, 0.f));
}
