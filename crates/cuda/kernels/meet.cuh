// Included by gemm_sm90.cu, whose tiles and parameters these are: sums of one tile that several blocks have, each of a part of
// K. Added in the order of the parts, so that every run has the same bits.
#pragma once

// STREAM_K: who has the last part takes what the others left in memory.
#if STREAM_K
__device__ __forceinline__ void leave(const Sums& d, float* partial, u32* flag, int thread, int barrier) {
    f4* to = (f4*)partial + thread;
#pragma unroll
    for (int i = 0; i < MSUB; ++i)
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
            const f4 v = {d[i][4 * j], d[i][4 * j + 1], d[i][4 * j + 2], d[i][4 * j + 3]};
            to[(i * (BN / 8) + j) * 128] = v;
        }
    __threadfence();
    named_sync(barrier, 128);
    if (thread == 0) flag_set(flag, 1);
}
__device__ __forceinline__ void take(Sums& d, const float* partial, u32* flag, int thread, int barrier) {
    if (thread == 0) while (!flag_get(flag)) { }
    named_sync(barrier, 128);
    const f4* from = (const f4*)partial + thread;
#pragma unroll
    for (int i = 0; i < MSUB; ++i)
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
            const f4 v = load_past_l1(from + (i * (BN / 8) + j) * 128);
            d[i][4 * j] += v.x; d[i][4 * j + 1] += v.y; d[i][4 * j + 2] += v.z; d[i][4 * j + 3] += v.w;
        }
    named_sync(barrier, 128);
    if (thread == 0) flag_set(flag, 0);                           // as it was found, for the next launch
}
#endif

// The sums of the blocks that share a tile, added in the order of their parts of K, each block a part of the tile. Rows of C
// lie one after the other where the ring was, a little apart so that no bank is asked twice; FAR: in memory.
#if SPLIT > 1
constexpr int C_COLUMNS = SWAP ? BM : OUT_BN, C_ROWS = SWAP ? OUT_BN : BM, PITCH = FAR ? C_COLUMNS : C_COLUMNS + (SWAP ? 4 : 8);
__device__ __forceinline__ float* far_sums(const Params& p, u32 part, u32 rank) {
    return p.partial + (i64)((blockIdx.x / (CLUSTER * SPLIT) * SPLIT + part) * CLUSTER + rank) * (BM * BN);
}
// All blocks of a tile have left their sums. Each warpgroup asks for itself; the flag counts those who left, then those who
// have seen it, and is 0 again with the last of these.
__device__ __forceinline__ void far_leave(u32* flag) {
    __threadfence();                                              // behind the barrier: what all have written comes first
    atomicInc(flag, 3 * SPLIT - 1);
}
__device__ __forceinline__ void far_meet(u32* flag, int thread, int barrier) {
    if (thread == 0) {
        while (flag_get(flag) < SPLIT) { }
        atomicInc(flag, 3 * SPLIT - 1);
    }
    named_sync(barrier, 128);
}
__device__ __forceinline__ void lay_out(const Sums& d, [[maybe_unused]] u32 base, [[maybe_unused]] float* far, int row0, int warp, int lane) {
#pragma unroll
    for (int i = 0; i < MSUB; ++i)
#pragma unroll
        for (int j = 0; j < BN / 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = row0 + i * 64 + 16 * (warp % 4) + lane / 4 + 8 * h, col = 8 * j + 2 * (lane % 4);
                const float lo = d[i][4 * j + 2 * h], hi = d[i][4 * j + 2 * h + 1];
#if FAR && SWAP
                far[col * PITCH + row] = lo;
                far[(col + 1) * PITCH + row] = hi;
#elif FAR
                *(float2*)(far + row * PITCH + col) = make_float2(lo, hi);
#elif SWAP
                const u32 at = base + (col * PITCH + row) * 4;
                asm volatile("st.shared.f32 [%0], %1;\nst.shared.f32 [%2], %3;" :: "r"(at), "f"(lo), "r"(at + PITCH * 4), "f"(hi) : "memory");
#else
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(base + (row * PITCH + col) * 4), "f"(lo), "f"(hi) : "memory");
#endif
            }
}
// Eight neighbours of a row of C.
__device__ __forceinline__ void put_eight(const Ends& p, const Matrix& to, const float (&v)[8], int row, int col, int z) {
#if !OUT_F32 && !DIRECT
    if ((SWAP ? col < p.n && row + 8 <= p.m : row < p.m && col + 8 <= p.n)) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(to.at(row, col, z)), "r"(pack(v[0], v[1])), "r"(pack(v[2], v[3])),
                     "r"(pack(v[4], v[5])), "r"(pack(v[6], v[7])) : "memory");
        return;
    }
#endif
#pragma unroll
    for (int e = 0; e < 8; ++e) put(p, to, v[e], SWAP ? row + e : row, SWAP ? col : col + e, z);
}
__device__ __forceinline__ void add_up(const Params& p, u32 base, u32 rank, int m0, int n0, int z, int thread) {
    const Nearby parts(p.ends, m0, n0, z);
    auto sums_of = [&](u32 block, int at) { return FAR ? load_past_l1((const f4*)(far_sums(p, block, rank) + at)) : load_of_block(base + at * 4, block); };
#pragma unroll 4                                                  // what other blocks have is far away
    for (int i = part_of_k(rank) * 256 + thread; i < C_ROWS * C_COLUMNS / 8; i += SPLIT * 256) {
        const int down = i / (C_COLUMNS / 8), across = i % (C_COLUMNS / 8) * 8;
        float v[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
#pragma unroll
        for (u32 block = 0; block < SPLIT; ++block) {
            const f4 x = sums_of(block, down * PITCH + across), y = sums_of(block, down * PITCH + across + 4);
            v[0] += x.x; v[1] += x.y; v[2] += x.z; v[3] += x.w; v[4] += y.x; v[5] += y.y; v[6] += y.z; v[7] += y.w;
        }
        const int row = SWAP ? m0 + across : m0 + down, col = SWAP ? n0 + down : n0 + across;
        Beside rows[8], columns[8], own[8][2];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const int r = (SWAP ? row + e : row) - m0, c = (SWAP ? col : col + e) - n0;
            rows[e] = parts.of_row(r);
            columns[e] = parts.of_column(c);
            own[e][0] = own[e][1] = {};
            parts.of_two(r, c, own[e]);
            if (SCALES) v[e] *= p.ends.scale_of_row(m0 + r) * p.ends.scale_of_column(n0 + c);
            v[e] = before_activation(p.ends, v[e], rows[e], columns[e], own[e][0]);
        }
        if (KEEP) put_eight(p.ends, p.ends.keep, v, row, col, z);
#pragma unroll
        for (int e = 0; e < 8; e += 2) activate(v[e], v[e + 1]);
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = after_activation(v[e], rows[e], columns[e], own[e][0]);
        put_eight(p.ends, p.ends.out, v, row, col, z);
    }
}
#endif
