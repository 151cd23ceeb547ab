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

// Parts of a tile's K: each block finishes some of its cells, four sums of a thread in 64 rows by 8 columns, and is given the
// others' sums of these: a cluster's through its shared memory, where a barrier counts them, or, FAR, through memory.
#if SPLIT > 1
constexpr int ACROSS_CELLS = BN / 8;
static_assert(!FAR || (SPLIT - 1) * MOST_CELLS <= CELLS, "what a block is given has as much room as a tile");
// Of those who give to `part`, which one `from` is.
__device__ __forceinline__ int giver(int part, int from) { return from < part ? from : from - 1; }
__device__ __forceinline__ int cells_of(int part) { return max(min(CELLS - part * MOST_CELLS, MOST_CELLS), 0); }
__device__ __forceinline__ u32 given_at(int giver, int half, int cell) { return ((giver * HALVES + half) * MOST_CELLS + cell) * CELL_BYTES; }
__device__ __forceinline__ char* far_given(const Params& p, int part, u32 rank) {
    return (char*)(p.partial + (i64)((blockIdx.x / (CLUSTER * SPLIT) * SPLIT + part) * CLUSTER + rank) * (BM * BN));
}
__device__ __forceinline__ void give(const Params& p, const Sums& d, [[maybe_unused]] u32 base, int part, u32 rank, int half, int thread) {
#pragma unroll
    for (int to = 0; to < SPLIT; ++to) {
        if (to == part) continue;
        [[maybe_unused]] const u32 there = FAR ? 0 : address_in_block(base + OFF_GIVEN, to), bar = FAR ? 0 : address_in_block(base + OFF_GIVEN_BARS + half * 8, to);
        const u32 from = given_at(giver(to, part), half, 0) + thread * 16;
#pragma unroll
        for (int k = 0; k < MOST_CELLS; ++k) {
            constexpr int none = CELLS;
            const int c = to * MOST_CELLS + k;
            if (c >= none) break;
            const float* x = d[c / ACROSS_CELLS] + c % ACROSS_CELLS * 4;
#if FAR
            *(f4*)(far_given(p, to, rank) + from + k * CELL_BYTES) = f4{x[0], x[1], x[2], x[3]};
#else
            send_four(there + from + k * CELL_BYTES, x[0], x[1], x[2], x[3], bar);
#endif
        }
    }
}
// All blocks of a tile have left their sums. Each warpgroup asks for itself; the flag counts those who left, then those who
// have seen it, and is 0 again with the last of these.
__device__ __forceinline__ void far_leave(u32* flag) {
    __threadfence();                                              // behind the barrier: what all have written comes first
    atomicInc(flag, (HALVES + 1) * SPLIT - 1);
}
__device__ __forceinline__ void far_meet(u32* flag, int thread, int barrier) {
    if (thread == 0) {
        while (flag_get(flag) < SPLIT) { }
        atomicInc(flag, (HALVES + 1) * SPLIT - 1);
    }
    named_sync(barrier, 128);
}
// Results of 16 bits in rows are packed, and of four cells the lanes of a row deal each other theirs, so that each has the eight
// columns of one: 64 bytes of a row are written at once. Other results go by twos.
constexpr bool DEALT = !OUT_F32 && !DIRECT && !SWAP;
__device__ __forceinline__ void deal(u32 (&x)[4], int lane) {
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            if (e & apart) continue;
            const bool upper = lane & apart;
            const u32 other = __shfl_xor_sync(~0u, upper ? x[e] : x[e + apart], apart);
            (upper ? x[e] : x[e + apart]) = other;
        }
}
__device__ __forceinline__ void put_eight(const Ends& p, const Matrix& to, const u32 (&x)[4], int row, int col, int z) {
    if (row >= p.m) return;
    if (col + 8 <= p.n) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(to.at(row, col, z)), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e)
        if (col + e < p.n) *to.at(row, col + e, z) = (Out)(x[e / 2] >> 16 * (e % 2));
}
// Two neighbours of a row of the sums, of which C has them in a row, or (SWAP) in a column: packed, to be dealt, or written.
__device__ __forceinline__ void hold(const Ends& p, const Matrix& to, const float (&two)[2], [[maybe_unused]] u32& packed, int row, int col, int z) {
    const float x = two[0], y = two[1];
#if !OUT_F32 && !DIRECT && !SWAP
    packed = pack(x, y);
#elif !OUT_F32 && !DIRECT
    // Lanes of two rows exchange, so that each has both rows of a column.
    const bool odd = threadIdx.x & 4;
    const float other = __shfl_xor_sync(~0u, odd ? x : y, 4);
    const float above = odd ? other : x, below = odd ? y : other;
    const int r = row - odd, c = col + odd;
    if (r + 1 < p.m && c < p.n) { *(u32*)to.at(r, c, z) = pack(above, below); return; }
    put(p, to, above, r, c, z);
    put(p, to, below, r + 1, c, z);
#else
    put(p, to, x, row, col, z);
    put(p, to, y, row, col + 1, z);
#endif
}
// The cells that a block finishes, added up in the order of the parts of K.
struct Finished { float v[MOST_CELLS][4]; };
__device__ __forceinline__ Finished add_up(const Params& p, const Sums& d, [[maybe_unused]] u32 base, int part, u32 rank, int half, int thread) {
    Finished sums;
#pragma unroll
    for (int own = 0; own < SPLIT; ++own)                         // registers are not found by a number that is not known
#pragma unroll
        for (int k = 0; k < MOST_CELLS; ++k) {
            const int c = own * MOST_CELLS + k;
            if (own == part && c < CELLS)
#pragma unroll
                for (int e = 0; e < 4; ++e) sums.v[k][e] = d[c / ACROSS_CELLS][c % ACROSS_CELLS * 4 + e];
        }
#pragma unroll
    for (int k = 0; k < MOST_CELLS; ++k) {
        if (part * MOST_CELLS + k >= CELLS) break;
        float (&v)[4] = sums.v[k];
        f4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
        for (int from = 0; from < SPLIT; ++from) {
            f4 x = {v[0], v[1], v[2], v[3]};
            if (from != part) {
                const u32 at = given_at(giver(part, from), half, k) + thread * 16;
                x = FAR ? load_past_l1((const f4*)(far_given(p, part, rank) + at)) : load_four(base + OFF_GIVEN + at);
            }
            sum.x += x.x; sum.y += x.y; sum.z += x.z; sum.w += x.w;
        }
        v[0] = sum.x; v[1] = sum.y; v[2] = sum.z; v[3] = sum.w;
    }
    return sums;
}
__device__ __forceinline__ void put_cells(const Params& p, const Finished& sums, int part, int m0, int n0, int z, int warp, int lane) {
    const Nearby parts(p.ends, m0, n0, z);
#pragma unroll
    for (int first = 0; first < MOST_CELLS; first += 4) {
        u32 ready[2][4] = {}, kept[2][4] = {};
#pragma unroll
        for (int k = first; k < min(first + 4, MOST_CELLS); ++k) {
            const int cell = part * MOST_CELLS + k;
            if (cell >= CELLS) break;
            const int c = cell % ACROSS_CELLS * 8 + 2 * (lane % 4);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int r = cell / ACROSS_CELLS * 64 + 16 * (warp % 4) + lane / 4 + 8 * h;
                const Beside row = parts.of_row(r), columns[2] = {parts.of_column(c), parts.of_column(c + 1)};
                Beside own[2] = {};
                parts.of_two(r, c, own);
                float two[2] = {sums.v[k][2 * h], sums.v[k][2 * h + 1]};
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    if (SCALES) two[e] *= p.ends.scale_of_row(m0 + r) * p.ends.scale_of_column(n0 + c + e);
                    two[e] = before_activation(p.ends, two[e], row, columns[e], own[e]);
                }
                if (KEEP) hold(p.ends, p.ends.keep, two, kept[h][k - first], m0 + r, n0 + c, z);
                activate(two[0], two[1]);
#pragma unroll
                for (int e = 0; e < 2; ++e) two[e] = after_activation(two[e], row, columns[e], own[e]);
                hold(p.ends, p.ends.out, two, ready[h][k - first], m0 + r, n0 + c, z);
            }
        }
        if (!DEALT) continue;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int k = first + lane % 4, cell = part * MOST_CELLS + k;
            const int r = m0 + cell / ACROSS_CELLS * 64 + 16 * (warp % 4) + lane / 4 + 8 * h, c = n0 + cell % ACROSS_CELLS * 8;
            const bool has = k < MOST_CELLS && cell < CELLS;
            deal(ready[h], lane);
            if (has) put_eight(p.ends, p.ends.out, ready[h], r, c, z);
            if (!KEEP) continue;
            deal(kept[h], lane);
            if (has) put_eight(p.ends, p.ends.keep, kept[h], r, c, z);
        }
    }
}
#endif
