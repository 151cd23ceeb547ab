// Copies of matrices of 16-bit elements whose rows begin anywhere, onto rows that begin on 128 bytes: what TMA can read.
//
// A warp copies DEEP times 256 neighbours of a row, eight a lane: it reads the words of 16 bytes that hold them and shifts, so that
// memory is asked for whole words whatever the row begins on. What lies behind a row's end is not written.
#include "ptx.cuh"
constexpr int DEEP = 4;

struct Source {
    const u16* from;
    u16* to;
    u64 first, end;               // addresses that may be read: of the first element, and behind the last
    i64 row, batch;               // elements from row to row
    i64 to_row, to_batch;
    int rows, columns, pieces;    // pieces of 256 * DEEP in a row
    int warps;                    // batch * rows * pieces
};
struct Params {
    Source of[2];
    int warps;
};

// Sixteen bytes at a multiple of 16, of which only what may be read is.
__device__ __forceinline__ uint4 words(const Source& s, u64 at) {
    if (at >= s.first && at + 16 <= s.end) return __ldcs((const uint4*)at);
    if (at >= s.end) return {0, 0, 0, 0};
    u32 w[4] = {0, 0, 0, 0};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        const u64 address = at + 2 * e;
        if (address >= s.first && address + 2 <= s.end) w[e / 2] |= (u32) * (const u16*)address << (e % 2 * 16);
    }
    return {w[0], w[1], w[2], w[3]};
}

extern "C" __global__ void __launch_bounds__(256) pad(const __grid_constant__ Params p) {
    after_previous_kernel();
    const int lane = threadIdx.x % 32;
    for (int task = blockIdx.x * 8 + threadIdx.x / 32; task < p.warps; task += gridDim.x * 8) {
        const bool second = task >= p.of[0].warps;
        const Source& s = p.of[second];
        const int i = second ? task - p.of[0].warps : task;
        const int line = i / s.pieces, c = (i - line * s.pieces) * (256 * DEEP) + lane * 8, z = line / s.rows, r = line - z * s.rows;
        const u64 from = (u64)(s.from + z * s.batch + r * s.row + c);
        const u32 shift = (u32)from & 15;
        u16* to = s.to + z * s.to_batch + r * s.to_row + c;
        // All on their way before the first is waited for.
        uint4 here[DEEP], next[DEEP];
#pragma unroll
        for (int d = 0; d < DEEP; ++d) {
            here[d] = words(s, from - shift + d * 512);
            if (lane == 31) next[d] = words(s, from - shift + d * 512 + 16);
        }
#pragma unroll
        for (int d = 0; d < DEEP; ++d) {
            const uint4 after = {__shfl_down_sync(~0u, here[d].x, 1), __shfl_down_sync(~0u, here[d].y, 1), __shfl_down_sync(~0u, here[d].z, 1), __shfl_down_sync(~0u, here[d].w, 1)};
            if (lane != 31) next[d] = after;
            u32 w[8] = {here[d].x, here[d].y, here[d].z, here[d].w, next[d].x, next[d].y, next[d].z, next[d].w};
            // By 8, 4 and 2 bytes, so that no register is indexed by what is not known.
            if (shift & 8)
#pragma unroll
                for (int e = 0; e < 6; ++e) w[e] = w[e + 2];
            if (shift & 4)
#pragma unroll
                for (int e = 0; e < 5; ++e) w[e] = w[e + 1];
            if (shift & 2)
#pragma unroll
                for (int e = 0; e < 4; ++e) w[e] = __funnelshift_r(w[e], w[e + 1], 16);
            if (c + d * 256 < s.columns) *(uint4*)(to + d * 256) = {w[0], w[1], w[2], w[3]};
        }
    }
}
