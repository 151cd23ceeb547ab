// C[m][n] = epilogue(sum over k of A(m,k) * B(n,k)) on Hopper's tensor cores (sm_90a): operands of 16 bits or e4m3, f32 sums.
//
// One warpgroup brings tiles into a ring of STAGES slots of shared memory (TMA), two others multiply them (wgmma) and
// store. Blocks are persistent: the loads of the next tile begin while this one is stored.
//
// Set by the host, which knows what goes together (src/config.rs):
//   BM, BN      tile; BM rows in steps of 64, BN columns in steps of 8 (SWAP) or 16
//   STAGES      slots of the ring
//   CLUSTER     1, or 2 or 4 blocks one below the other that share the tile of B, or, where
//   ACROSS      is not 1, as many side by side that share the tile of A
//   SPLIT       blocks that share out the K of one tile: those of a cluster, who add up through each other's shared memory, or,
//               where a cluster shares an operand (FAR), any, who add up through the second-level cache and must all run at once
//   PINGPONG    0: both warpgroups work on one tile, half of its rows each; 1: on tiles of their own, in turns: one
//               stores while the other multiplies
//   ONE_TILE    a block has no more than one tile, so that its result goes where the ring was, which is the larger for it
//   STREAM_K    some tiles are cut along K so that all clusters have the same to do (walk.cuh)
//   SWAP        C is written transposed: the weights are A, whose rows fill the 64 of wgmma, and few tokens are B
//   OPERAND_BYTES   2, or 1: e4m3, k contiguous
//   PROMOTE     sums of e4m3, for which tensor cores keep some 14 bits, are added up in f32 after every block of K
//   A_MN, B_MN  0: k is contiguous; 1: m or n is
//   OUT_F32, OUT_F16   type of C (otherwise bf16); OUT_ADD: added to what C has (f32)
//   DIRECT      C is written from registers, element by element: any layout
//   BY_ROWS     rows of C begin anywhere (16 bits): they go through shared memory, but not by TMA, which writes nothing that
//               begins inside 16 bytes
//   GATED       B is two matrices of as many columns, one below the other: out = activation(first) * second
//   ALPHA, ACT                     of the epilogue, and how its parts lie: SCALE, BIAS, TIMES, RESIDUAL (epilogue.cuh)
//   KEEP        what goes into the activation is written too, of GATED both halves
//   GROUPED     1: rows of A (SWAP: of B) are those of one group after the other, each with a matrix of weights of its own;
//               2: k is, and each group has a result. Where groups end is read on the device (groups.cuh)
#include "ptx.cuh"
#include "walk.cuh"
#include "groups.cuh"
#include "wgmma.cuh"       // wgmma_tile_product(d, a, b, accumulate): written by the host for this BN and type

constexpr int BK = 128 / OPERAND_BYTES;                   // one row of the swizzle
constexpr int WG_ROWS = PINGPONG ? BM : BM / 2;           // rows of a tile that a warpgroup has
constexpr int MSUB = WG_ROWS / 64;
constexpr int OUT_BN = GATED ? BN / 2 : BN;               // columns that are written
constexpr int COLUMNS = BN, ROW_STEP = 64;                // of a thread's sums
#define FAR (CLUSTER > 1 && SPLIT > 1)
#define NEAR_SPLIT (FAR ? 1 : SPLIT)
#define ALONG PINGPONG
#define STAGED (SPLIT == 1)
#include "epilogue.cuh"
constexpr u32 CHUNK = 64 * 128;                           // bytes of 64 rows by BK, and of 64 k by 64 columns
constexpr u32 A_BYTES = BM * 128;
constexpr u32 B_BYTES = B_MN ? (BN + 63) / 64 * CHUNK : BN * 128;
// Of a shared tile every block fetches a part, in whole atoms of the swizzle: the last ones may fetch the same rows.
constexpr int DOWN = CLUSTER / ACROSS;
constexpr u32 PART_ROWS = GATED ? BN / 2 : (BN / DOWN + 7) / 8 * 8, PART_OF_A = BM / ACROSS;
constexpr u32 B_ARRIVES = DOWN > 1 && !B_MN ? DOWN * PART_ROWS * 128 : B_BYTES;
static_assert(DOWN == 1 || ACROSS == 1, "one of both is shared");
constexpr u32 OFF_A = 0;
constexpr u32 OFF_B = STAGES * A_BYTES;
constexpr u32 B_SLOT = (B_BYTES + 1023) / 1024 * 1024;
constexpr u32 OFF_RING_END = OFF_B + STAGES * B_SLOT, OFF_OUT = ONE_TILE ? 0 : OFF_RING_END;
// Sums go out through two buffers of 64 rows by 128 bytes for each warpgroup; each of its warps has a quarter of them to
// itself, but for turned ones, where a warp's part of a row is too short to be sent alone.
constexpr bool ALONE = !SWAP;
constexpr u32 BOX_BYTES = ALONE ? 2048 : ((BN < 64 ? BN : 64) * 128 + 1023) / 1024 * 1024;
constexpr u32 OUT_BYTES = DIRECT || SPLIT > 1 ? 0 : (ALONE ? 8 : 2) * 2 * BOX_BYTES;
constexpr u32 OFF_BAR = OFF_RING_END + (ONE_TILE ? 0 : OUT_BYTES);
constexpr u32 OFF_STAGED = OFF_BAR + 2 * STAGES * 8;           // numbers of columns for the epilogue, of either warpgroup
constexpr u32 STAGED_BYTES = STAGED ? BY_COLUMN * BN * sizeof(Out) : 0;
constexpr u32 OFF_GROUPS = OFF_STAGED + 2 * STAGED_BYTES;
constexpr u32 SMEM_BYTES = OFF_GROUPS + GROUPS_BYTES;
static_assert(MSUB >= 1 && MSUB * BN <= 384, "at most 192 sums a thread");
static_assert(SMEM_BYTES <= 232448, "more shared memory than a block may have");
static_assert(SPLIT == 1 || !STREAM_K, "K is cut in one way");
static_assert(!ONE_TILE || OUT_BYTES <= OFF_RING_END, "the result goes where the ring was");
static_assert(NEAR_SPLIT == 1 || (SWAP ? BN * (BM + 4) : BM * (BN + 8)) * 4 <= OFF_BAR, "sums of a split tile go where the ring was");
static_assert(!GATED || (!SWAP && !B_MN && BN % 32 == 0 && CLUSTER <= 2), "gate and up lie side by side in a tile of B");
static_assert(!OUT_ADD || (OUT_F32 && !KEEP), "only f32 is added to, and nothing that is kept");
static_assert(!GATED || !PARTS, "a gate has no other parts");
static_assert(SPLIT == 1 || !PAIRS, "split sums come one by one");
static_assert(!OUT_F32 || !SWAP || DIRECT, "f32 is not turned on its way out");
static_assert(!BY_ROWS || (!OUT_F32 && !DIRECT && SPLIT == 1), "rows of 16 bits, of sums that lie with one block");
static_assert(!BY_ROWS || !KEEP, "what is kept begins on 16 bytes");
static_assert(OPERAND_BYTES == 2 || (!A_MN && !B_MN), "of e4m3 k is contiguous");
static_assert(!PROMOTE || (OPERAND_BYTES == 1 && MSUB * BN <= 128), "sums of two blocks beside those of all");
static_assert(!GROUPED || (CLUSTER == 1 && !ONE_TILE && SPLIT == 1 && !STREAM_K && !PARTS && !KEEP && !BY_ROWS && !DIRECT), "groups have whole tiles and no parts");
static_assert(GROUPED != 1 || !OUT_F32, "rows of groups are of 16 bits");
static_assert(GROUPED != 2 || (A_MN && B_MN && !SWAP), "k of groups is not contiguous");
extern "C" __constant__ const u32 smem_bytes = SMEM_BYTES;

struct Params {
    TensorMap a, b;
    TensorMap c[3];                 // boxes of 64, 32 and 16 columns; of f32 32 and 16; SWAP: of 64 tokens and of the rest
    TensorMap kept[2][3];           // KEEP: the same; GATED: of either half
    Ends ends;                      // its m and n are the sums': SWAP: m counts weights, n tokens
    float* partial;                 // STREAM_K, FAR: BM * BN sums for every block
    u32* flags;                     // two for every block, 0 before and after
    int k;
    int tiles_m, tiles_n, group;    // both count clusters; group < 0: bands along N, not STREAM_K
    int whole, shared;              // tiles of all batches
    int z_a, z_b;                   // 0 for an operand that all matrices of a batch share
    int groups;                     // GROUPED
    const int* group_ends;          // of each: the row, or k, that is not its own any more
};

// The ring, as seen by one who walks around it.
struct Ring {
    int slot; u32 phase;
    __device__ __forceinline__ void step() { if (++slot == STAGES) { slot = 0; phase ^= 1; } }
    __device__ __forceinline__ void jump(int count) {
        const u32 s = slot + count;
        slot = s % STAGES;
        phase ^= (s / STAGES) & 1;
    }
};

// ---- a piece of the result: where it begins, in which matrices, and which blocks of K ---------------------------
struct Spot {
    int m0, n0, za, zb, z;
    int k0, from, to;               // k of block 0; blocks
    int rest;                       // GROUPED 2: k of the last block that are the group's
    int end;                        // GROUPED 1: of the group's rows
};
// A tile that would reach over the edge begins earlier instead, and computes again what its neighbour does, to the same bits:
// TMA takes several times as long for rows that are not there. Not where results are added to, or may be read as a part of
// the epilogue, or where the cuts along K differ.
constexpr bool MOVED = !STREAM_K && !OUT_ADD && !BY_ELEMENT;
__device__ __forceinline__ int begin_of(int tile, int size, int extent, bool contiguous) {
    // Along contiguous elements TMA wants whole 16 bytes; elsewhere neighbours stay pairs, whose activations share a division.
    const int whole = contiguous ? 8 : 2, last = max(extent - size, 0);
    return MOVED ? min(tile * size, (last + whole - 1) / whole * whole) : tile * size;
}
// Where the tile of a block of a cluster begins.
__device__ __forceinline__ int first_row(const Params& p, const Place& at, u32 rank) { return begin_of(at.m * DOWN + (DOWN > 1 ? rank : 0), BM, p.ends.m, A_MN); }
__device__ __forceinline__ int first_column(const Params& p, const Place& at, u32 rank) { return begin_of(at.n * ACROSS + (ACROSS > 1 ? rank : 0), OUT_BN, p.ends.n, B_MN); }
// Of a split tile, which part of K this block has.
__device__ __forceinline__ u32 part_of_k(u32 rank) { return FAR ? blockIdx.x / CLUSTER % SPLIT : rank; }
__device__ __forceinline__ Spot spot_of(const Params& p, [[maybe_unused]] const Groups& groups, const Order& order, const Piece& piece, u32 rank) {
    Spot s;
#if GROUPED == 1
    const Share share = groups.of(piece.tile, SWAP ? BN : BM);
    const int token = share.first + share.across * (SWAP ? BN : BM);
    s.m0 = SWAP ? share.weights * BM : token;
    s.n0 = SWAP ? token : share.weights * OUT_BN;
    s.za = SWAP ? share.group : 0;
    s.zb = SWAP ? 0 : share.group;
    s.z = 0;
    s.end = share.end;
    s.k0 = 0; s.from = piece.from; s.to = piece.to; s.rest = BK;
#else
    const Place at = order.at(piece.tile);
    s.m0 = first_row(p, at, rank);
    s.n0 = first_column(p, at, rank);
    s.z = at.batch;
#if GROUPED == 2
    const int first = at.batch ? p.group_ends[at.batch - 1] : 0, k = min(p.group_ends[at.batch], p.k) - first;
    s.za = s.zb = 0;
    s.k0 = first; s.from = 0; s.to = max((k + BK - 1) / BK, 0); s.rest = k - (s.to - 1) * BK;
#else
    s.za = at.batch * p.z_a; s.zb = at.batch * p.z_b;
    s.k0 = 0; s.from = piece.from; s.to = piece.to; s.rest = BK;
    if (SPLIT > 1) { s.from = part_of_k(rank) * piece.to / SPLIT; s.to = (part_of_k(rank) + 1) * piece.to / SPLIT; }
#endif
    s.end = SWAP ? p.ends.n : p.ends.m;
#endif
    return s;
}

// ---- the warpgroup that loads: one thread of it, whose warp goes along so that addresses are the same for all of it, where
// there are registers for that ---------------------------------------------------------------------------------
constexpr bool WARP_LOADS = !STREAM_K;
__device__ __forceinline__ Ring load_all(const Params& p, u32 base, const Groups& groups, const Order& order, Walk walk, u32 rank, int lane) {
    const u32 full0 = base + OFF_BAR, empty0 = full0 + STAGES * 8;
    Ring ring = {0, 0};
    Piece piece;
    while (walk.next(piece)) {
        const Spot at = spot_of(p, groups, order, piece, rank);
        const int m0 = at.m0, n0 = at.n0, za = at.za, zb = at.zb;
        for (int kb = at.from; kb < at.to; ++kb, ring.step()) {
            const u32 bar = full0 + ring.slot * 8, a = base + OFF_A + ring.slot * A_BYTES, b = base + OFF_B + ring.slot * B_SLOT;
            const int k0 = at.k0 + kb * BK;
            bar_wait(empty0 + ring.slot * 8, ring.phase ^ 1);     // passes at once in the first round
            if (WARP_LOADS) __syncwarp();
            if (lane) continue;
            bar_expect(bar, A_BYTES + B_ARRIVES);                 // what lies outside of the matrix counts too
            // Of what is shared each block fetches a part, and all receive it.
            [[maybe_unused]] constexpr u16 ALL = (1 << CLUSTER) - 1;
#if ACROSS > 1 && A_MN
            for (int i = rank; i < BM / 64; i += ACROSS) tma_load_all(a + i * CHUNK, &p.a, bar, m0 + i * 64, k0, za, ALL);
#elif ACROSS > 1
            tma_load_all(a + rank * PART_OF_A * 128, &p.a, bar, k0, m0 + rank * PART_OF_A, za, ALL);
#elif A_MN
            for (int i = 0; i < BM / 64; ++i) tma_load(a + i * CHUNK, &p.a, bar, m0 + i * 64, k0, za);
#else
            tma_load(a, &p.a, bar, k0, m0, za);
#endif
#if CLUSTER > ACROSS
#if B_MN
            for (int i = rank; i < (BN + 63) / 64; i += CLUSTER) tma_load_all(b + i * CHUNK, &p.b, bar, n0 + i * 64, k0, zb, ALL);
#elif GATED
            tma_load_all(b + rank * (B_BYTES / 2), &p.b, bar, k0, n0 + (rank ? p.ends.second : 0), zb, ALL);
#else
            const u32 from = BN % (8 * CLUSTER) ? min(rank * PART_ROWS, BN - PART_ROWS) : rank * PART_ROWS;
            tma_load_all(b + from * 128, &p.b, bar, k0, n0 + from, zb, ALL);
#endif
#elif B_MN
            for (int i = 0; i < (BN + 63) / 64; ++i) tma_load(b + i * CHUNK, &p.b, bar, n0 + i * 64, k0, zb);
#elif GATED
            tma_load(b, &p.b, bar, k0, n0, zb);
            tma_load(b + B_BYTES / 2, &p.b, bar, k0, n0 + p.ends.second, zb);
#else
            tma_load(b, &p.b, bar, k0, n0, zb);
#endif
        }
    }
    return ring;
}
// Slots are freed by warps of all blocks: while one of them may still do so, this block must not leave.
__device__ __forceinline__ void wait_until_free(Ring ring, u32 empty0) {
    for (int s = 0; s < STAGES; ++s, ring.step()) bar_wait(empty0 + ring.slot * 8, ring.phase ^ 1);
}


// ---- K of a group ends inside of a block: what the next group has there counts as nothing ----------------------
#if GROUPED == 2
// Both warpgroups clear all of it, and neither waits for the other: what it would overwrite are zeros.
__device__ __forceinline__ void clear_rest(u32 a, u32 b, int rest) {
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
    const int units = (BK - rest) * 8;                            // of 16 bytes, of 64 columns
    auto clear = [&](u32 from, int chunks) {
        for (int i = thread; i < chunks * units; i += 128)
            asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" :: "r"(from + i / units * CHUNK + rest * 128 + i % units * 16), "r"(0) : "memory");
    };
    clear(a, BM / 64);
    clear(b, (BN + 63) / 64);
    smem_to_tma();
    named_sync(group, 128);
}
#endif

// ---- sums: d[i] is rows 64i + 16 (warp % 4) and on of a tile, as epilogue.cuh has it ---------------------------
// Multiplies blocks of K of one tile, freeing each slot when the next block's products have begun.
// Of the last block of a group's K only `rest` are its own. `all_begun` runs when nothing is left to begin, before the last
// products are done: who takes turns passes on there, and the tensor cores go from one tile to the next without a pause.
template <class F> __device__ __forceinline__ void multiply(Sums& d, Ring& ring, int count, [[maybe_unused]] int rest, u32 full0, u32 empty0, [[maybe_unused]] u32 base, u64 tile_a, u64 tile_b, int lane, F all_begun) {
    constexpr u32 A_STEP = (A_MN ? 16 * 128 : 32) >> 4, B_STEP = (B_MN ? 16 * 128 : 32) >> 4;    // 16 k further, of e4m3 32
    constexpr int PRODUCTS = 4;                                   // along K, of a block
    auto free_slot = [&](int slot) {
        if (CLUSTER > 1) { if (lane < CLUSTER) bar_arrive_at(empty0 + slot * 8, lane); }
        else if (lane == 0) bar_arrive(empty0 + slot * 8);
    };
    // Begins the products of the block in the ring's slot, on top of what `to` has, or anew.
    auto begin = [&](Sums& to, [[maybe_unused]] bool last, bool anew) {
        bar_wait(full0 + ring.slot * 8, ring.phase);
#if GROUPED == 2
        if (rest < BK && last) clear_rest(base + OFF_A + ring.slot * A_BYTES, base + OFF_B + ring.slot * B_SLOT, rest);
#endif
        const u64 a = tile_a + (u64)(ring.slot * (A_BYTES >> 4)), b = tile_b + (u64)(ring.slot * (B_SLOT >> 4));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < PRODUCTS; ++k)
#pragma unroll
            for (int i = 0; i < MSUB; ++i) wgmma_tile_product(to[i], a + k * A_STEP + i * (CHUNK >> 4), b + k * B_STEP, !anew || k);
        wgmma_commit();
    };
    int before = -1;
#if PROMOTE
    // While a block is multiplied, the sums of the one before go on.
    Sums even, odd;
#pragma unroll
    for (int i = 0; i < MSUB; ++i)
#pragma unroll
        for (int x = 0; x < BN / 2; ++x) d[i][x] = 0.f;
    auto take = [&](const Sums& part) {
        free_slot(before);
#pragma unroll
        for (int i = 0; i < MSUB; ++i)
#pragma unroll
            for (int x = 0; x < BN / 2; ++x) d[i][x] += part[i][x];
    };
    for (int kb = 0; kb < count; kb += 2) {
        begin(even, false, true);
        wgmma_wait<1>();
        if (kb) take(odd);
        before = ring.slot;
        ring.step();
        if (kb + 1 == count) {
            all_begun();
            wgmma_wait<0>();
            take(even);
            return;
        }
        begin(odd, false, true);
        wgmma_wait<1>();
        take(even);
        before = ring.slot;
        ring.step();
    }
    all_begun();
    wgmma_wait<0>();
    if (count) take(odd);
#else
    for (int kb = 0; kb < count; ++kb) {
        // Where the next block is not there yet, the ring is what is short: this one's slot does not wait for it. Warps may
        // see that differently: PTX has a warpgroup wait as one, the instruction it becomes is each warp's own (WARPGROUP.DEPBAR).
        if (before >= 0 && !bar_ready(full0 + ring.slot * 8, ring.phase)) {
            wgmma_wait<0>();
            free_slot(before);
            before = -1;
        }
        begin(d, kb + 1 == count, kb == 0);
        wgmma_wait<1>();                                          // the block before is done
        if (before >= 0) free_slot(before);
        before = ring.slot;
        ring.step();
    }
    all_begun();
    wgmma_wait<0>();
    if (before >= 0) free_slot(before);
#endif
}

// ---- sums of tiles that are cut along K ------------------------------------------------------------------------
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

// ---- on the way out --------------------------------------------------------------------------------------------
// Through shared memory, in boxes of 16 rows (a warp's), or of 64 columns by the tokens of a warpgroup; two buffers in turns.
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
// WIDTH columns of a warp's 16 rows; turned: WIDTH tokens by 64 columns of C. Units of 16 bytes change places as the
// swizzle of rows of 128, 64 and 32 bytes has them, by bits 7.. of the address.
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
    const u32 start = lane % 16 * (WIDTH * 2);                    // stmatrix: a lane has the address of row lane % 16
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

extern "C" __global__ void __launch_bounds__(384, 1)
#if CLUSTER * NEAR_SPLIT > 1
__cluster_dims__(CLUSTER * NEAR_SPLIT, 1, 1)
#endif
gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char smem[];
    const u32 base = smem_addr(smem);
    const u32 full0 = base + OFF_BAR, empty0 = full0 + STAGES * 8;
    const int warp = WARP_LOADS ? __shfl_sync(~0u, threadIdx.x / 32, 0) : threadIdx.x / 32, group = warp / 4, lane = threadIdx.x % 32;
    const u32 rank = CLUSTER * SPLIT > 1 ? cluster_rank() : 0;

    // A barrier takes some 24 ns to set up, and lanes of a warp take turns: warps share them.
    if (lane == 0) {
        if (base & 1023) asm volatile("trap;");                   // the swizzle goes by the address
        if (warp == 0) {
            map_prefetch(&p.a);
            map_prefetch(&p.b);
            if (!DIRECT && SPLIT == 1) map_prefetch(&p.c[0]);
        }
        for (int s = warp; s < STAGES; s += 12) {
            bar_init(full0 + s * 8, 1);                           // the one who loads, and the bytes
            bar_init(empty0 + s * 8, (PINGPONG ? 4 : 8) * CLUSTER);      // every warp that reads the slot
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    // Of a split tile nobody reaches into another block before sums are there. What was fenced above needs no more than that.
    if (CLUSTER > 1) cluster_meet(); else __syncthreads();

    // Whoever loads cut tiles has no registers for a choice.
    const bool along = !STREAM_K && p.group < 0;
    const Order order = {p.tiles_m, p.tiles_n, along ? -p.group : p.group, along};
    const int blocks = (p.k + BK - 1) / BK;
    const int me = blockIdx.x / (CLUSTER * SPLIT), clusters = gridDim.x / (CLUSTER * SPLIT);
#if GROUPED == 1
    after_previous_kernel();                                      // which may have written where groups end
    const Groups groups(p.group_ends, p.groups, SWAP ? p.ends.n : p.ends.m, SWAP ? BN : BM, SWAP ? p.tiles_m : p.tiles_n, (int*)(smem + OFF_GROUPS));
    Walk walk(me, clusters, groups.tiles(), 0, blocks);
#else
    const Groups groups{};
    Walk walk(me, clusters, p.whole, STREAM_K ? p.shared : 0, blocks);
#endif

    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (WARP_LOADS ? warp == 0 : threadIdx.x == 0) {
            after_previous_kernel();
            const Ring ring = load_all(p, base, groups, order, walk, rank, lane);
            next_kernel_may_start();                              // not before: its blocks would wait where ours could run
            if (CLUSTER > 1) wait_until_free(ring, empty0);
        }
        __syncwarp();
#if NEAR_SPLIT > 1
        cluster_sync();
#endif
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        after_previous_kernel();
        const int mine = group - 1, thread = threadIdx.x % 128;
        const int row0 = PINGPONG ? 0 : mine * WG_ROWS;
        const u64 tile_a = wgmma_tile(base + OFF_A + row0 / 64 * CHUNK, CHUNK, 1024), tile_b = wgmma_tile(base + OFF_B, CHUNK, 1024);
        [[maybe_unused]] Outbox box = {base + OFF_OUT + (ALONE ? warp - 4 : mine) * 2 * BOX_BYTES, 0, group, ALONE ? lane == 0 : thread == 0};
        Ring ring = {0, 0};
        Sums d;
        Piece piece;
        [[maybe_unused]] int turn = 0;
        if (PINGPONG && mine == 1) named_arrive(3, 256);          // the first turn is the other's
        while (walk.next(piece)) {
            const Spot at = spot_of(p, groups, order, piece, rank);
            const int count = at.to - at.from;
            if (PINGPONG) {
                if ((turn++ & 1) != mine) { ring.jump(count); continue; }
                named_sync(3 + mine, 256);
            }
            const int m0 = at.m0 + row0, n0 = at.n0;
            if (count == 0) {                                     // of a K of nothing, or of fewer blocks than parts
#pragma unroll
                for (int i = 0; i < MSUB; ++i)
#pragma unroll
                    for (int x = 0; x < BN / 2; ++x) d[i][x] = 0.f;
            }
#if SPLIT == 1
            const Ahead ahead(p.ends, m0, n0, at.z, 16 * (warp % 4), lane, thread);
#endif
            multiply(d, ring, count, at.rest, full0, empty0, base, tile_a, tile_b, lane, [&] { if (PINGPONG) named_arrive(3 + (1 - mine), 256); });
#if STREAM_K
            const int slot = me * CLUSTER + rank;
            const int half = PINGPONG ? 0 : mine;
            if (piece.to < blocks) {
                leave(d, p.partial + ((i64)slot * BM + half * WG_ROWS) * BN, p.flags + slot * 2 + half, thread, group);
                continue;
            }
            if (piece.from > 0) {
                // Shares that hold the blocks before ours, in their order.
                const i64 total = p.shared * (i64)blocks, first = (piece.tile - p.whole) * (i64)blocks;
                int other = me;
                while (Walk::share(other, clusters, total) > first) --other;
                for (; other < me; ++other) {
                    if (Walk::share(other, clusters, total) == Walk::share(other + 1, clusters, total)) continue;
                    const int theirs = other * CLUSTER + rank;
                    take(d, p.partial + ((i64)theirs * BM + half * WG_ROWS) * BN, p.flags + theirs * 2 + half, thread, group);
                }
            }
#endif
#if SPLIT > 1
            if (!FAR) named_sync(5, PINGPONG ? 128 : 256);        // both warpgroups have read the ring
            lay_out(d, base, FAR ? far_sums(p, part_of_k(rank), rank) : nullptr, row0, warp, lane);
            if (FAR) {
                __threadfence();
                named_sync(5, PINGPONG ? 128 : 256);
                if (threadIdx.x == 128) far_leave(p.flags + me * CLUSTER + rank);
            }
#else
            if (ONE_TILE && !DIRECT) named_sync(5, PINGPONG ? 128 : 256);        // both warpgroups have read the ring
            const u32 staged = base + OFF_STAGED + mine * STAGED_BYTES;
            if (BY_COLUMN) {
                named_sync(group, 128);                           // of the tile before nobody reads any more
                ahead.stage(staged, thread);
                named_sync(group, 128);
            }
            finish_and_store(p, box, d, ahead, staged, m0, n0, at.end, at.z, warp, lane);
#endif
        }
#if SPLIT > 1
        // One tile for each cluster, or for SPLIT of them: the grid is as large as that.
        if (FAR) far_meet(p.flags + me * CLUSTER + rank, thread, group); else cluster_sync();
        const Place at = order.at(me);
        add_up(p, base, rank, first_row(p, at, rank), first_column(p, at, rank), at.batch, threadIdx.x - 128);
#elif !DIRECT
        if (box.first) tma_read_wait<0>();                        // shared memory must last as long as it is read
#endif
    }
    // No block may leave while another still reads its sums.
    if (NEAR_SPLIT > 1) { __syncwarp(); cluster_meet(); }
}
