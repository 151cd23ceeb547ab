// C[m][n] = epilogue(sum over k of A(m,k) * B(n,k)) on Hopper's tensor cores (sm_90a): operands of 16 bits or e4m3, f32 sums.
//
// One warpgroup brings tiles into a ring of STAGES slots of shared memory (TMA), two others multiply them (wgmma) and
// store. Blocks are persistent: the loads of the next tile begin while this one is stored.
//
// Set by the host, which knows what goes together (src/config.rs):
//   BM, BN      tile; BM rows in steps of 64, BN columns in steps of 8 (SWAP) or 16
//   STAGES      slots of the ring
//   CLUSTER     1, or so many blocks: CLUSTER / ACROSS of them one below the other share the tile of B,
//   ACROSS      of them side by side that of A
//   SPLIT       blocks that share out the K of one tile: those of a cluster, who give each other their sums through shared memory,
//               or, where a cluster shares an operand (FAR), any, who do through the second-level cache and must all run at once
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
//   ALONE       C leaves in boxes of 16 rows, each of a warp's own: where rows are written by hand, or end inside of a box, of
//               f32, and of gates, who have no register for more; otherwise of a warpgroup's 64 rows, or turned ones
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
#define EARLY_WEIGHTS (!STREAM_K && !GROUPED)            // whoever loads cut tiles has no registers for it
#define DOWN_SHARES (CLUSTER > ACROSS)
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
// Blocks of a cluster are counted down first. What is known of them has to be: whoever loads cut tiles has no register to spare.
__device__ __forceinline__ u32 below(u32 rank) { return DOWN == 1 ? 0 : ACROSS == 1 ? rank : rank % DOWN; }
__device__ __forceinline__ u32 beside(u32 rank) { return ACROSS == 1 ? 0 : DOWN == 1 ? rank : rank / DOWN; }
constexpr int NEIGHBOURS = DOWN + ACROSS - 1;             // who bring parts of a block's tiles, itself among them
constexpr u32 OFF_A = 0;
constexpr u32 OFF_B = STAGES * A_BYTES;
constexpr u32 B_SLOT = (B_BYTES + 1023) / 1024 * 1024;
constexpr u32 OFF_RING_END = OFF_B + STAGES * B_SLOT, OFF_OUT = ONE_TILE ? 0 : OFF_RING_END;
// Sums go out through two buffers of 64 rows by 128 bytes for each warpgroup, which a box of 64 rows fills: four boxes of 16
// rows, each of a warp's own (ALONE), take up to 2 % longer where nothing hides the way out.
constexpr u32 BOX_BYTES = ALONE ? 2048 : ((BN < 64 ? BN : 64) * 128 + 1023) / 1024 * 1024;
// Of a split tile, what the other blocks of the cluster give: the four sums that a thread has of 64 rows by 8 columns are a cell,
// and every block finishes some of them (meet.cuh).
constexpr int CELLS = MSUB * (BN / 8), MOST_CELLS = (CELLS + SPLIT - 1) / SPLIT, HALVES = PINGPONG ? 1 : 2;
constexpr u32 CELL_BYTES = 128 * 16, GIVEN_BYTES = NEAR_SPLIT > 1 ? (SPLIT - 1) * HALVES * MOST_CELLS * CELL_BYTES : 0, OFF_GIVEN = OFF_RING_END;
constexpr u32 OUT_BYTES = DIRECT || SPLIT > 1 ? 0 : (ALONE ? 8 : 2) * 2 * BOX_BYTES;
constexpr u32 OFF_BAR = OFF_RING_END + (ONE_TILE ? 0 : OUT_BYTES) + GIVEN_BYTES, OFF_GIVEN_BARS = OFF_BAR + 2 * STAGES * 8;
constexpr u32 OFF_STAGED = OFF_GIVEN_BARS + (NEAR_SPLIT > 1 ? 16 : 0);           // numbers of columns for the epilogue, of either warpgroup
constexpr u32 STAGED_BYTES = STAGED ? BY_COLUMN * BN * sizeof(Out) : 0;
constexpr u32 OFF_GROUPS = OFF_STAGED + 2 * STAGED_BYTES;
constexpr u32 SMEM_BYTES = OFF_GROUPS + GROUPS_BYTES;
static_assert(MSUB >= 1 && MSUB * BN <= 384, "at most 192 sums a thread");
static_assert(SMEM_BYTES <= 232448, "more shared memory than a block may have");
static_assert(SPLIT == 1 || !STREAM_K, "K is cut in one way");
static_assert(!ONE_TILE || OUT_BYTES <= OFF_RING_END, "the result goes where the ring was");
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
    int early;                      // slots whose weights are loaded before the kernel before this one has ended (EARLY_WEIGHTS)
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

// Whole tiles have one block of K at least (of a K of nothing, one of zeros): sums that might have to be cleared cost an
// instruction each in every tile, between one warpgroup's products and the other's. Groups may have no K at all, and parts of
// K no block; who adds up parts, pairs columns or keeps sums has no registers for it.
constexpr bool KNOWN_K = CLUSTER * SPLIT == 1 && !GROUPED && !STREAM_K && !PROMOTE && !GATED && !KEEP;
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
__device__ __forceinline__ int first_row(const Params& p, const Place& at, u32 rank) { return begin_of(at.m * DOWN + below(rank), BM, p.ends.m, A_MN); }
__device__ __forceinline__ int first_column(const Params& p, const Place& at, u32 rank) { return begin_of(at.n * ACROSS + beside(rank), OUT_BN, p.ends.n, B_MN); }
// Of a split tile, which part of K this block has.
__device__ __forceinline__ u32 part_of_k(u32 rank) { return FAR ? blockIdx.x / CLUSTER % SPLIT : rank; }
__device__ __forceinline__ Spot spot_of(const Params& p, [[maybe_unused]] const Groups& groups, const Order& order, const Piece& piece, u32 rank) {
    Spot s;
    [[maybe_unused]] const int beyond = KNOWN_K && p.k == 0 ? BK : 0;       // where operands have nothing, TMA brings zeros
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
    s.k0 = beyond; s.from = piece.from; s.to = piece.to; s.rest = BK;
    if (SPLIT > 1) { s.from = part_of_k(rank) * piece.to / SPLIT; s.to = (part_of_k(rank) + 1) * piece.to / SPLIT; }
#endif
    s.end = SWAP ? p.ends.n : p.ends.m;
#endif
    return s;
}

#include "load.cuh"

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
template <class F> __device__ __forceinline__ void multiply(Sums& d, Ring& ring, int count, [[maybe_unused]] int rest, u32 full0, u32 empty0, [[maybe_unused]] u32 base, u64 tile_a, u64 tile_b, int lane, [[maybe_unused]] u32 rank, F all_begun) {
    constexpr u32 A_STEP = (A_MN ? 16 * 128 : 32) >> 4, B_STEP = (B_MN ? 16 * 128 : 32) >> 4;    // 16 k further, of e4m3 32
    constexpr int PRODUCTS = 4;                                   // along K, of a block
    auto free_slot = [&](int slot) {
        if (CLUSTER > 1) { if (lane < CLUSTER && (NEIGHBOURS == CLUSTER || below(lane) == below(rank) || beside(lane) == beside(rank))) bar_arrive_at(empty0 + slot * 8, lane); }
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

#include "meet.cuh"
#include "store.cuh"

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
            bar_init(empty0 + s * 8, (PINGPONG ? 4 : 8) * NEIGHBOURS);      // every warp that reads the slot
        }
        if (NEAR_SPLIT > 1 && warp == 11)
            for (int half = 0; half < 2; ++half) bar_init(base + OFF_GIVEN_BARS + half * 8, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    // Of a split tile nobody reaches into another block before sums are there. What was fenced above needs no more than that.
    if (CLUSTER > 1) cluster_meet(); else __syncthreads();
    if (NEAR_SPLIT > 1) cluster_arrive();

    // Whoever loads cut tiles has no registers for a choice.
    const bool along = !STREAM_K && p.group < 0;
    const Order order = {p.tiles_m, p.tiles_n, along ? -p.group : p.group, along};
    const int k_blocks = (p.k + BK - 1) / BK, blocks = KNOWN_K ? max(k_blocks, 1) : k_blocks;
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
            const Ring ring = load_all(p, base, groups, order, walk, rank, lane);
            next_kernel_may_start();                              // not before: its blocks would wait where ours could run
            if (CLUSTER > 1) wait_until_free(ring, empty0);
        }
        __syncwarp();
        if (NEAR_SPLIT > 1) cluster_wait();
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
            if (KNOWN_K && PINGPONG && (turn++ & 1) != mine) { ring.jump(piece.to - piece.from); continue; }
            const Spot at = spot_of(p, groups, order, piece, rank);
            const int count = at.to - at.from;
            if (PINGPONG) {
                if (!KNOWN_K && (turn++ & 1) != mine) { ring.jump(count); continue; }
                named_sync(3 + mine, 256);
            }
            const int m0 = at.m0 + row0, n0 = at.n0;
            if (!KNOWN_K && count == 0) {                         // of a K of nothing, or of fewer blocks than parts
#pragma unroll
                for (int i = 0; i < MSUB; ++i)
#pragma unroll
                    for (int x = 0; x < BN / 2; ++x) d[i][x] = 0.f;
            }
#if SPLIT == 1
            const Ahead ahead(p.ends, m0, n0, at.z, 16 * (warp % 4), lane, thread);
#endif
            multiply(d, ring, count, at.rest, full0, empty0, base, tile_a, tile_b, lane, rank, [&] { if (PINGPONG) named_arrive(3 + (1 - mine), 256); });
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
            // One tile for each cluster, or for SPLIT of them: the grid is as large as that.
            const int part = part_of_k(rank), half = PINGPONG ? 0 : mine;
            if (!FAR) {
                cluster_wait();                                   // their barriers are set up
                const u32 bar = base + OFF_GIVEN_BARS + half * 8;
                if (thread == 0 && cells_of(part)) bar_expect(bar, (SPLIT - 1) * cells_of(part) * CELL_BYTES);
                give(p, d, base, part, rank, half, thread);
                if (cells_of(part)) bar_wait(bar, 0);
            } else {
                give(p, d, base, part, rank, half, thread);
                __threadfence();
                named_sync(5, PINGPONG ? 128 : 256);
                if (threadIdx.x == 128) far_leave(p.flags + me * CLUSTER + rank);
                far_meet(p.flags + me * CLUSTER + rank, thread, group);
            }
            put_cells(p, add_up(p, d, base, part, rank, half, thread), part, m0, n0, at.z, warp, lane);
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
        if (NEAR_SPLIT > 1 && PINGPONG && mine == 1) cluster_wait();     // who has no tile
#elif !DIRECT
        if (box.first) tma_read_wait<0>();                        // shared memory must last as long as it is read
#endif
    }
}
