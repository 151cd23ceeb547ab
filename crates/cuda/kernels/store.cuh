// Included by gemm_sm90.cu, whose tiles and sums these are: how sums of whole tiles become C.
#pragma once

// Through shared memory, in boxes of a warpgroup's 64 rows, or of 16 (a warp's), turned of 64 columns by tokens; two buffers in
// turns.
struct Outbox {
    u32 buffers; u32 count; int barrier; bool first;
    __device__ __forceinline__ void together() { if (ALONE) __syncwarp(); else named_sync(barrier, 128); }
    __device__ __forceinline__ u32 take() {                       // a buffer that has been read
        if (!BY_ROWS && first) tma_read_wait<1>();
        together();
        return buffers + (count++ & 1) * BOX_BYTES;
    }
    __device__ __forceinline__ void send(const TensorMap* map, u32 buffer, int c, int r, int z) {
        smem_to_tma();
        together();
        if (first) {
            if (OUT_ADD) tma_add(map, buffer, c, r, z); else tma_store(map, buffer, c, r, z);
            tma_commit();
        }
    }
};
#if BY_ROWS
using Target = Matrix;
__device__ __forceinline__ const Matrix& further(const Matrix& to, int) { return to; }
#else
using Target = const TensorMap*;
__device__ __forceinline__ const TensorMap* further(const TensorMap* maps, int by) { return maps + by; }
#endif
#if BY_ROWS || GROUPED == 1
// Rows of a box of WIDTH columns, wherever they begin. A lane has two neighbours; where a row begins in the middle of a
// word it writes its second and the next lane's first, and the ends are written alone.
template <int WIDTH, int ROWS> __device__ __forceinline__ void write_rows(const Ends& p, const Matrix& to, u32 buffer, int c, int r, int end, int z, int warp, int lane) {
    constexpr int LANES = WIDTH / 2, STEP = 32 / LANES * (ALONE ? 1 : 4), TURNS = ROWS / STEP;
    const int l = lane % LANES, first = (ALONE ? 0 : warp % 4 * (32 / LANES)) + lane / LANES;
    const int columns = (SWAP ? p.m : p.n) - c, rows = end - r;
    u32 two[TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; ++t) {
        const int row = first + t * STEP;
        const u32 turn = row * (WIDTH * 2) >> 7 & (WIDTH / 8 - 1);
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(two[t]) : "r"(buffer + row * (WIDTH * 2) + ((l / 4) ^ turn) * 16 + l % 4 * 4));
    }
    Out* at = SWAP ? to.at(c + 2 * l, r + first, z) : to.at(r + first, c + 2 * l, z);
    const i64 step = STEP * (SWAP ? to.col : to.row);
    const bool whole = columns >= WIDTH;
#pragma unroll
    for (int t = 0; t < TURNS; ++t, at += step) {
        const u32 next = __shfl_down_sync(~0u, two[t], 1, LANES);
        if (first + t * STEP >= rows) continue;
        const bool odd = (u64)at & 2;
        if (whole) {
            if (!odd) *(u32*)at = two[t];
            else if (l < LANES - 1) *(u32*)(at + 1) = __funnelshift_r(two[t], next, 16);
            if (odd && l == 0) at[0] = (Out)two[t];
            if (odd && l == LANES - 1) at[1] = (Out)(two[t] >> 16);
        } else {
            if (2 * l < columns) at[0] = (Out)two[t];
            if (2 * l + 1 < columns) at[1] = (Out)(two[t] >> 16);
        }
    }
}
#endif
#if !DIRECT && SPLIT == 1
// WIDTH columns of a warpgroup's 64 rows, or of a warp's 16; turned: WIDTH tokens by 64 columns of C. Units of 16 bytes change
// places as the swizzle of rows of 128, 64 and 32 bytes has them, by bits 7.. of the address.
template <int WIDTH> __device__ __forceinline__ void store_box([[maybe_unused]] const Ends& p, Outbox& box, const Target& to, const float* d, int c, int r, [[maybe_unused]] int end, int z, int warp, int lane) {
    const u32 buffer = box.take();
#if OUT_F32
#pragma unroll
    for (int j = 0; j < WIDTH / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const u32 row = lane / 4 + 8 * h, unit = 2 * j + lane % 4 / 2;
            const u32 turned = WIDTH == 32 ? unit ^ (row & 7) : unit ^ (row / 2 & 3);
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(buffer + row * (WIDTH * 4) + turned * 16 + (lane & 1) * 8),
                         "f"(d[4 * j + 2 * h]), "f"(d[4 * j + 2 * h + 1]) : "memory");
        }
#elif SWAP
    const u32 token = lane / 16 * 8 + lane % 8, unit = 2 * (warp % 4) + lane / 8 % 2;
#pragma unroll
    for (int j = 0; j + 1 < WIDTH / 8; j += 2) {
        const u32 at = 8 * j + token;
        stmatrix4_turned(buffer + at * 128 + (unit ^ (at & 7)) * 16, pack(d[4 * j], d[4 * j + 1]), pack(d[4 * j + 2], d[4 * j + 3]),
                         pack(d[4 * j + 4], d[4 * j + 5]), pack(d[4 * j + 6], d[4 * j + 7]));
    }
    if (WIDTH / 8 % 2) {
        constexpr int j = WIDTH / 8 - 1;
        const u32 at = 8 * j + lane % 8;
        stmatrix2_turned(buffer + at * 128 + (unit ^ (at & 7)) * 16, pack(d[4 * j], d[4 * j + 1]), pack(d[4 * j + 2], d[4 * j + 3]));
    }
#else
    const u32 start = ((ALONE ? 0 : 16 * (warp % 4)) + lane % 16) * (WIDTH * 2);    // stmatrix: a lane has the address of one row
    const u32 turn = start >> 7 & (WIDTH / 8 - 1);
#pragma unroll
    for (int q = 0; q < WIDTH / 16; ++q)
        stmatrix4(buffer + start + ((q * 2 + lane / 16) ^ turn) * 16, pack(d[8 * q], d[8 * q + 1]), pack(d[8 * q + 2], d[8 * q + 3]),
                  pack(d[8 * q + 4], d[8 * q + 5]), pack(d[8 * q + 6], d[8 * q + 7]));
#endif
#if BY_ROWS
    box.together();
    write_rows<SWAP ? 64 : WIDTH, SWAP ? WIDTH : 16>(p, to, buffer, c, r, end, z, warp, lane);
#elif GROUPED == 1
    if (r + (SWAP ? WIDTH : 16) <= end) box.send(to, buffer, c, r, z);
    else {                                                        // rows behind the end are the next group's
        box.together();
        write_rows<SWAP ? 64 : WIDTH, SWAP ? WIDTH : 16>(p, p.out, buffer, c, r, end, z, warp, lane);
        if (box.first) tma_commit();                              // of nothing: buffers are counted by it
    }
#else
    box.send(to, buffer, c, r, z);
#endif
}
// Columns of the sums from FROM on, box by box; `ready(i, column, width)` makes a box's sums what is written, right before they
// are: sums of one box at a time leave registers for what an activation needs, and the first box is on its way earlier.
template <int FROM, typename Ready> __device__ __forceinline__ void store(const Ends& p, Outbox& box, const Target& to, const Sums& d, int m0, int n0, int end, int z, int warp, int lane, Ready ready) {
    constexpr int WIDE = OUT_F32 ? 32 : 64, REST = OUT_BN % WIDE, x = OUT_BN - REST;
#pragma unroll
    for (int i = 0; i < MSUB; ++i) {
        const int r = m0 + i * 64 + (ALONE ? 16 * (warp % 4) : 0);
        const float* from = d[i] + FROM / 2;
#if SWAP
#pragma unroll
        for (int c = 0; c < x; c += WIDE) {
            ready(i, c, WIDE);
            store_box<WIDE>(p, box, to, from + c / 2, r, n0 + c, end, z, warp, lane);
        }
        if (REST) {
            ready(i, x, REST);
            store_box<REST ? REST : 8>(p, box, further(to, 1), from + x / 2, r, n0 + x, end, z, warp, lane);
        }
#else
#pragma unroll
        for (int c = 0; c < x; c += WIDE) {
            ready(i, c, WIDE);
            store_box<WIDE>(p, box, to, from + c / 2, n0 + c, r, end, z, warp, lane);
        }
        if (REST & WIDE / 2) {
            ready(i, x, WIDE / 2);
            store_box<WIDE / 2>(p, box, further(to, 1), from + x / 2, n0 + x, r, end, z, warp, lane);
        }
        if (!OUT_F32 && (REST & 16)) {
            constexpr int last = x + REST / 32 * 32;
            ready(i, last, 16);
            store_box<16>(p, box, further(to, 2), from + last / 2, n0 + last, r, end, z, warp, lane);
        }
#endif
    }
}
#endif
#if SPLIT == 1
__device__ __forceinline__ void finish_and_store(const Params& p, [[maybe_unused]] Outbox& box, Sums& d, const Ahead& ahead, u32 staged, int m0, int n0, int end, int z, int warp, int lane) {
    const Finish finish(p.ends, ahead, staged, m0, n0, z, 16 * (warp % 4), lane);
#if DIRECT
    const int row = m0 + 16 * (warp % 4);
    if (KEEP) {
        finish.all<true, false>(d);
        store_direct<0>(p.ends, p.ends.keep, d, row, n0, z, lane);
        if (GATED) store_direct<GATED ? OUT_BN : 0>(p.ends, p.ends.keep.from(p.ends.second), d, row, n0, z, lane);
    }
    finish.all<!KEEP, true>(d);
    store_direct<0>(p.ends, p.ends.out, d, row, n0, z, lane);
#else
#if KEEP
    store<0>(p.ends, box, p.kept[0], d, m0, n0, end, z, warp, lane, [&](int i, int c, int width) { finish.some<true, false>(d, i, i + 1, c, width); });
    if (GATED) store<GATED ? OUT_BN : 0>(p.ends, box, p.kept[1], d, m0, n0, end, z, warp, lane, [](int, int, int) {});
#endif
#if BY_ROWS
    const Matrix& out = p.ends.out;
#else
    const TensorMap* out = p.c;
#endif
    store<0>(p.ends, box, out, d, m0, n0, end, z, warp, lane, [&](int i, int c, int width) { finish.some<!KEEP, true>(d, i, i + 1, c, width); });
#endif
}
#endif
