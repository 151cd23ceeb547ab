// Included by gemm_sm90.cu, whose tiles, ring and spots these are: how tiles come into the ring.
//
// One thread loads, whose warp goes along so that addresses are the same for all of it, where there are registers for that.
#pragma once
constexpr bool WARP_LOADS = !STREAM_K;
// What a block fetches of a slot's tiles; of what is shared each block fetches a part, and all who share it receive that: of a
// those beside one another, of b those below one another.
[[maybe_unused]] __device__ __forceinline__ u16 who_share_a(u32 rank) {
    u16 first_row = 0;
    for (int i = 0; i < ACROSS; ++i) first_row |= 1 << i * DOWN;
    return first_row << below(rank);
}
[[maybe_unused]] __device__ __forceinline__ u16 who_share_b(u32 rank) { return ((1 << DOWN) - 1) << beside(rank) * DOWN; }
__device__ __forceinline__ void load_a(const Params& p, u32 a, u32 bar, int m0, int k0, int za, [[maybe_unused]] u32 rank) {
#if ACROSS > 1 && A_MN
    for (int i = beside(rank); i < BM / 64; i += ACROSS) tma_load_all(a + i * CHUNK, &p.a, bar, m0 + i * 64, k0, za, who_share_a(rank));
#elif ACROSS > 1
    const u32 from = beside(rank) * PART_OF_A;
    tma_load_all(a + from * 128, &p.a, bar, k0, m0 + from, za, who_share_a(rank));
#elif A_MN
    for (int i = 0; i < BM / 64; ++i) tma_load(a + i * CHUNK, &p.a, bar, m0 + i * 64, k0, za);
#else
    tma_load(a, &p.a, bar, k0, m0, za);
#endif
}
__device__ __forceinline__ void load_b(const Params& p, u32 b, u32 bar, int n0, int k0, int zb, [[maybe_unused]] u32 rank) {
#if DOWN_SHARES && B_MN
    for (int i = below(rank); i < (BN + 63) / 64; i += DOWN) tma_load_all(b + i * CHUNK, &p.b, bar, n0 + i * 64, k0, zb, who_share_b(rank));
#elif DOWN_SHARES && GATED
    tma_load_all(b + rank * (B_BYTES / 2), &p.b, bar, k0, n0 + (rank ? p.ends.second : 0), zb, who_share_b(rank));
#elif DOWN_SHARES
    const u32 part = below(rank) * PART_ROWS, from = BN % (8 * DOWN) ? min(part, BN - PART_ROWS) : part;
    tma_load_all(b + from * 128, &p.b, bar, k0, n0 + from, zb, who_share_b(rank));
#elif B_MN
    for (int i = 0; i < (BN + 63) / 64; ++i) tma_load(b + i * CHUNK, &p.b, bar, n0 + i * 64, k0, zb);
#elif GATED
    tma_load(b, &p.b, bar, k0, n0, zb);
    tma_load(b + B_BYTES / 2, &p.b, bar, k0, n0 + p.ends.second, zb);
#else
    tma_load(b, &p.b, bar, k0, n0, zb);
#endif
}
// The first `count` slots in two steps: weights that no kernel writes (the caller's promise) are asked for before the kernel
// before this one has ended, what they are multiplied by after it.
__device__ __forceinline__ void load_first(const Params& p, u32 base, const Spot& at, int count, u32 rank) {
    const u32 full0 = base + OFF_BAR;
    for (int s = 0; s < count; ++s) {
        const int k0 = at.k0 + (at.from + s) * BK;
        bar_expect(full0 + s * 8, A_BYTES + B_ARRIVES);
        if (SWAP) load_a(p, base + OFF_A + s * A_BYTES, full0 + s * 8, at.m0, k0, at.za, rank);
        else load_b(p, base + OFF_B + s * B_SLOT, full0 + s * 8, at.n0, k0, at.zb, rank);
    }
    after_previous_kernel();
    for (int s = 0; s < count; ++s) {
        const int k0 = at.k0 + (at.from + s) * BK;
        if (SWAP) load_b(p, base + OFF_B + s * B_SLOT, full0 + s * 8, at.n0, k0, at.zb, rank);
        else load_a(p, base + OFF_A + s * A_BYTES, full0 + s * 8, at.m0, k0, at.za, rank);
    }
}
__device__ __forceinline__ Ring load_all(const Params& p, u32 base, const Groups& groups, const Order& order, Walk walk, u32 rank, int lane) {
    const u32 full0 = base + OFF_BAR, empty0 = full0 + STAGES * 8;
    Ring ring = {0, 0};
    auto load = [&](const Spot& at, int from, int to) {
        for (int kb = from; kb < to; ++kb, ring.step()) {
            const u32 bar = full0 + ring.slot * 8, a = base + OFF_A + ring.slot * A_BYTES, b = base + OFF_B + ring.slot * B_SLOT;
            const int k0 = at.k0 + kb * BK;
            bar_wait(empty0 + ring.slot * 8, ring.phase ^ 1);     // passes at once in the first round
            if (WARP_LOADS) __syncwarp();
            if (lane) continue;
            bar_expect(bar, A_BYTES + B_ARRIVES);                 // what lies outside of the matrix counts too
            load_a(p, a, bar, at.m0, k0, at.za, rank);
            load_b(p, b, bar, at.n0, k0, at.zb, rank);
        }
    };
    Piece piece;
#if EARLY_WEIGHTS
    // Where the first tile begins takes a while: not when everything waits for it.
    bool more = walk.next(piece);
    Spot at = {};
    if (more) at = spot_of(p, groups, order, piece, rank);
    const int count = max(min(min(at.to - at.from, STAGES), p.early), 0);
    if (count) {
        if (lane == 0) load_first(p, base, at, count, rank);
        __syncwarp();
        ring.jump(count);
    }
    after_previous_kernel();
    for (int from = at.from + count; more; from = at.from) {
        // Where the next tile begins is worked out when this one's first block is on its way: behind the last one the ring would
        // run dry meanwhile (1 % with K of 512).
        const int second = min(from + 1, at.to);
        load(at, from, second);
        more = walk.next(piece);
        const Spot next = more ? spot_of(p, groups, order, piece, rank) : at;
        load(at, second, at.to);
        at = next;
    }
#else
    after_previous_kernel();                                      // which may have written where groups end
    while (walk.next(piece)) {
        const Spot at = spot_of(p, groups, order, piece, rank);
        load(at, at.from, at.to);
    }
#endif
    return ring;
}
// Slots are freed by warps of all blocks: while one of them may still do so, this block must not leave.
__device__ __forceinline__ void wait_until_free(Ring ring, u32 empty0) {
    for (int s = 0; s < STAGES; ++s, ring.step()) bar_wait(empty0 + ring.slot * 8, ring.phase ^ 1);
}
