// Y[m][n] = epilogue(sum over k of X(m,k) * W(n,k)) for a few rows of x, on sm_90: weights [n, k] go through rings in shared
// memory, which TMA fills without a thread or a register waiting for them; x lies beside them, whole.
//
// A warp has a ring of its own and works on 8 rows of w at a time, the columns of mma.sync; rows of x are its rows. Of e4m3,
// as many bytes are 16 rows: those are the rows, and rows of x the columns, so that half as much is read beside what has to
// be made 16 bits. SHARE warps divide the chunks of K of the same rows among them; their sums meet in shared memory in a fixed order. As soon as
// a warp has read a slot it asks for what comes there next, of its next rows as well: between rows nothing runs dry.
// Where x is too long for one block, SPLIT blocks of a cluster have a part of K each; in the end their sums are added.
// Weights that no kernel writes (p.constant, the caller's promise) are asked for before the kernel before this one has ended.
//
// Set by the host (src/decode.rs):
//   X_ROWS      rows of x that there is room for: 1, 2, 4, 8 or 16; ODD: 2 at least; 32: weights of 16 bits, X_KEPT, not ODD
//   WARPS       of a block
//   SHARE       warps that work on the same rows of w
//   SPLIT       blocks of a cluster that share K
//   CHUNK       k of a slot
//   ODD         rows of w and x begin anywhere (one weight, SPLIT 1): see below
//   X_KEPT      chunks of K that a warp has at most, where it keeps its part of x in registers; 0: it does not
//   BLOCKS      of a multiprocessor
//   OPERAND_F16 x is f16 (otherwise bf16), and so is w, unless
//   W_BYTES     is 1: e4m3, made 16 bits on its way to the tensor cores. Beside bf16 its NaNs count as 480.
//   GATED, OUT_F32, OUT_F16, OUT_ADD, ALPHA, ACT, SCALE, BIAS, TIMES, RESIDUAL, KEEP   as in gemm_sm90.cu
//
// TMA wants rows that lie whole 16 bytes apart. Of rows that do not, every eighth does (ODD): there is a map for each of the
// eight kinds, from the 16 bytes on in which its first row begins, and a block works on rows of one kind. All of them are as
// many elements behind the map's first column, so x is laid out as many elements further on too, by the threads themselves.
// What lies before and behind a row in its first and last 16 bytes is another row's, and is cleared.
#include "few_rows.cuh"

constexpr int THREADS = WARPS * 32, SETS = WARPS / SHARE;
constexpr int ROWS = 16 / W_BYTES;                         // of w at a time
constexpr int WEIGHTS = GATED ? 2 : 1;
constexpr int STEPS = CHUNK / 32;                          // of 32 k
constexpr int W_BOX = 128 / W_BYTES;                       // k of a row of 128 bytes
constexpr int TURNS = X_KEPT ? X_KEPT : 1;
constexpr int SLOT = ROWS * CHUNK * W_BYTES;              // [W_BOX k][row][W_BOX k of 128 bytes, swizzled]
constexpr int TOKENS = (X_ROWS + 7) / 8;                  // groups of 8 rows of x
constexpr int SIXTEENS = (TOKENS + 1) / 2;                // of which a product has 16
constexpr int SUMS = 8 * TOKENS * ROWS, OF_LANE = SUMS / 32;
constexpr int X_BYTES = X_ROWS * CHUNK * 2;               // [64 k][row][64 k of 128 bytes, swizzled]
constexpr int X_CHUNK = (X_BYTES + 1023) / 1024 * 1024;   // from one to the next: the swizzle repeats after 1024 bytes
// Of many rows x takes most of the shared memory: once it is in registers, sums that wait for other blocks lie in its place.
constexpr bool OVER_X = SPLIT > 1 && X_ROWS > 16;
static_assert(X_ROWS <= 16 || (X_KEPT && W_BYTES == 2 && !ODD), "shared memory cannot be read so often for each weight");
static_assert(SLOT % 1024 == 0, "and so do slots");
static_assert(!ODD || X_CHUNK == X_BYTES, "lay_out_x leaves nothing between chunks");
static_assert(CHUNK % W_BOX == 0 && CHUNK % 64 == 0 && WARPS % SHARE == 0, "whole steps, whole sets");

__device__ __forceinline__ void fragments(u32 (&x)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
}

#if W_BYTES == 1
__device__ __forceinline__ void four_words(u32 (&x)[4], u32 from) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
}
// Two neighbours of four e4m3, as the type of x. What differs from bf16 is where the exponent ends and what it counts from;
// a product with 2^120 sets that right, for the smallest numbers too.
template <int PAIR> __device__ __forceinline__ u32 two_of_four(u32 four) {
    u32 two;
#if OPERAND_F16
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"((u16)(four >> 16 * PAIR)));
#else
    u32 wide;                                              // of each a byte, and its sign eight times
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(wide) : "r"(four), "n"(PAIR ? 0xb3a2 : 0x9180));
    const u32 placed = wide << 4 & 0x87f087f0;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(two) : "r"(placed), "r"(0x7b807b80), "r"(0x80008000));
#endif
    return two;
}
#endif

struct Tokens {                                            // 32 k of rows of x
    u32 rows[TOKENS][4];
    // Of 16 rows the first and the last 8.
    __device__ __forceinline__ u32 upper(int sixteen, int i) const { return rows[2 * sixteen][i]; }
    __device__ __forceinline__ u32 lower(int sixteen, int i) const { return TOKENS > 1 ? rows[2 * sixteen + (TOKENS > 1)][i] : 0; }
};

constexpr int KINDS = ODD ? 8 : 1;                         // of rows of w
static_assert(!ODD || (SPLIT == 1 && W_BYTES == 2 && !GATED), "a kind of rows has one weight of 16 bits");

// Sum i of a lane, by its row of x and its row of w.
__device__ __forceinline__ int x_of_sum(int lane, int i) { return W_BYTES == 1 ? i / 4 * 8 + lane % 4 * 2 + i % 2 : lane / 4 + i / 2 * 8; }
__device__ __forceinline__ int w_of_sum(int lane, int i) { return W_BYTES == 1 ? lane / 4 + i % 4 / 2 * 8 : lane % 4 * 2 + i % 2; }
constexpr int NEXT_W = W_BYTES == 1 ? 2 : 1;               // the first sum of a lane's other row of w

struct RingParams {
    TensorMap w[KINDS], x;                                        // boxes of W_BOX or 64 k, ROWS or X_ROWS rows, as often as a chunk has them
    Params all;
    int slots;                                             // of a ring
    int units;                                             // at most, of a block, each of ROWS rows of w
};

// A place in the warp's work: rows of w, one weight of a gate or the other, a chunk of K.
struct Place {
    int unit, weight, chunk;
    __device__ __forceinline__ void next(int rank, int chunks, int units) {
        if ((chunk += SHARE) < chunks) return;
        chunk = rank;
        if (++weight < WEIGHTS) return;
        weight = 0;
        unit += units;
    }
};

// The row of w that a place in a unit is.
__device__ __forceinline__ int row_of(int unit, int i) { return ODD ? (unit / KINDS * ROWS + i) * KINDS + unit % KINDS : unit * ROWS + i; }

// What belongs to the rows of w whose sums a lane will have in the end.
struct Columns {
    OfColumn of[SHARE == 1 ? 2 : 1];
#if SHARE == 1
    __device__ __forceinline__ Columns(const Params& p, int unit, int lane) : of{OfColumn(p, row_of(unit, w_of_sum(lane, 0)), 0), OfColumn(p, row_of(unit, w_of_sum(lane, NEXT_W)), 0)} {}
#else
    __device__ __forceinline__ Columns(const Params& p, int unit, int lane) : of{OfColumn(p, row_of(unit, lane % ROWS), 0)} {}
#endif
};

#if ODD
// x, `by` elements further on and with zeros around it, where TMA would have put its boxes.
__device__ __forceinline__ void lay_out_x(const Params& p, u32 to, int by, int chunks) {
    const int units = chunks * (CHUNK / 8);                // of 8 elements, of each row
#pragma unroll 8
    for (int i = threadIdx.x; i < X_ROWS * units; i += THREADS) {
        const int m = i / units, u = i - m * units, line = u / 8 * X_ROWS + m, k = u * 8 - by;
        const u16* from = (const u16*)(p.x + m * p.x_row) + k;
        const bool half = (u64)from & 2;                   // of a word
        u32 two[5];
#pragma unroll
        for (int e = 0; e < 5; ++e) {                      // words that hold an element of the row, behind it nothing
            const int first = k + 2 * e - half;
            two[e] = m < p.ends.m && first > -2 && first < p.k && (e < 4 || half) ? *(const u32*)(from + 2 * e - half) : 0;
            if (first == -1) two[e] &= 0xffff0000;
            if (first == p.k - 1) two[e] &= 0xffff;
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) two[e] = half ? __funnelshift_r(two[e], two[e + 1], 16) : two[e];
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(to + line * 128 + ((u ^ line) & 7) * 16), "r"(two[0]), "r"(two[1]), "r"(two[2]), "r"(two[3]) : "memory");
    }
}
// Clears elements `from` to `to` of a unit of 16 bytes in each row of a slot.
__device__ __forceinline__ void clear(u32 slot, int unit, int from, int to, int lane) {
    if (lane >= ROWS) return;
    const u32 at = slot + unit / 8 * 1024 + lane * 128 + ((unit ^ lane) & 7) * 16;
    for (int e = from; e < to; ++e) asm volatile("st.shared.u16 [%0], %1;" :: "r"(at + 2 * e), "h"((u16)0) : "memory");
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
#if SPLIT > 1
__cluster_dims__(SPLIT, 1, 1)
#endif
decode(const __grid_constant__ RingParams params) {
    extern __shared__ __align__(1024) char shared[];
    const Params& p = params.all;
    const int slots = params.slots;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, set = warp / SHARE, rank = warp % SHARE;
    const int part = blockIdx.x % SPLIT, first = blockIdx.x / SPLIT, blocks = gridDim.x / SPLIT, step = blocks * SETS;
    // Of K the block has `chunks` from this one on.
    [[maybe_unused]] const int kind = first % KINDS, by = ODD ? (int)((u64)(p.w + kind * p.w_row) & 15) / 2 : 0;
    const int all_chunks = (p.k + by + CHUNK - 1) / CHUNK, most = (all_chunks + SPLIT - 1) / SPLIT, from = part * most;
    const int chunks = min(most, all_chunks - from);
    const u32 rings = smem_addr(shared), x_at = rings + WARPS * slots * SLOT, behind_x = x_at + most * X_CHUNK;
    const u32 kept_bytes = SPLIT > 1 ? params.units * WEIGHTS * SUMS * 4 : 0, kept = OVER_X ? x_at : behind_x;
    const u32 parts = OVER_X ? max(behind_x, kept + kept_bytes) : kept + kept_bytes;
    const u32 bars = parts + (SHARE > 1 ? 2 * WEIGHTS * WARPS * SUMS * 4 : 0), x_bars = bars + WARPS * slots * 8;
    const u32 ring = rings + warp * slots * SLOT, mine = bars + warp * slots * 8;

    // A warp's ring and the chunks of x that it brings are its own: nobody has to wait for others before he begins.
    if (lane == 0) {
        map_prefetch(&params.w[kind]);
        if (!ODD) map_prefetch(&params.x);
#pragma unroll 1
        for (int s = 0; s < slots; ++s) bar_init(mine + 8 * s, 1);
#pragma unroll 1
        for (int c = warp; c < chunks; c += WARPS) bar_init(x_bars + 8 * c, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    const bool any = rank < chunks;                        // K may leave a warp without a chunk
    Place ahead = {first + blocks * set, 0, rank};
    auto ask = [&](int slot, u32 nothing = 0) {
        if (!any || ahead.unit >= p.all) return;
        const u32 bar = mine + 8 * slot;
        if (lane == 0) {
            bar_expect(bar, SLOT + nothing);               // what lies outside of w comes as zeros
#if ODD
#pragma unroll
            for (int c = 0; c < CHUNK / 64; ++c) tma_load(ring + slot * SLOT + c * 1024, &params.w[kind], bar, ahead.chunk * CHUNK + c * 64, ahead.unit / KINDS * ROWS, 0);
#else
            tma_load(ring + slot * SLOT, &params.w[0], bar, 0, ahead.unit * ROWS + (ahead.weight ? p.ends.second : 0), (from + ahead.chunk) * (CHUNK / W_BOX));
#endif
        }
        ahead.next(rank, chunks, step);
    };
    // Code that runs once comes from memory too: it is short rather than unrolled.
    int asked = 0;
#pragma unroll 1
    while (p.constant && asked < slots) ask(asked++);
    after_previous_kernel();
    // From here on x may be read, and the result written.
    next_kernel_may_start();                               // not before: it would not wait for the one before this one
    if (asked == 0) ask(asked++);                          // memory begins with w, which is further away than x
    // What the first sums will be multiplied with and so on. Behind more of w it would come after that; before all of it, w
    // would wait until the addresses are known.
#if SPLIT > 1
    // Where a thread's first sum of all blocks goes.
    const int sums_of_unit = p.ends.m * ROWS, first_sum = part * THREADS + threadIdx.x;
    auto column_of = [&](int i) { return (first + blocks * (i / sums_of_unit)) * ROWS + i % sums_of_unit % ROWS; };
    const OfColumn first_column(p, column_of(first_sum), 0);
    const float first_row = factor_of_row(p, first_sum % sums_of_unit / ROWS);
#else
    const float first_row = factor_of_row(p, SHARE == 1 ? x_of_sum(lane, 0) : (rank * 32 + lane) / ROWS);
#endif
    Columns columns(p, first + blocks * set, lane);
#if ODD
    lay_out_x(p, x_at, by, chunks);
#else
    // Warps bring the chunks of x in turns: those that are needed before the first product in front of more of w.
    int chunk_of_x = warp;
    auto bring_x = [&] {
        if (lane == 0) {
            bar_expect(x_bars + 8 * chunk_of_x, X_BYTES);
            tma_load(x_at + chunk_of_x * X_CHUNK, &params.x, x_bars + 8 * chunk_of_x, 0, 0, (from + chunk_of_x) * (CHUNK / 64));
        }
        chunk_of_x += WARPS;
    };
#pragma unroll 1
    while (chunk_of_x < (X_KEPT ? chunks : min(chunks, WARPS))) bring_x();
#endif
#pragma unroll 1
    while (asked < slots) ask(asked++);
#if !ODD
#pragma unroll 1
    while (chunk_of_x < chunks) bring_x();
#endif
    __syncthreads();                                       // everyone sees the barriers of x; ODD: x

    u32 phase = 0;
    int slot = 0, turn = 0;
    // Where a lane finds its row of a fragment: 16 bytes change places by the row of 128 bytes that they are in.
    const u32 w_lane = lane % 8 * 128 + (lane / 8 ^ lane % 8) * 16;
    const u32 x_row = min(lane % 8, X_ROWS - 1), x_lane = x_row * 128 + (lane / 8 ^ x_row) * 16;
#if W_BYTES == 1
    // Of a row of 128 bytes of w a lane has two units of 16 k, so it has those of x. Which ones: lanes that read at a time
    // find no bank of shared memory busy, of w nor of x.
    const u32 unit_of_lane = 2 * (lane % 4) + (X_ROWS > 2 && lane % 4 > 1);   // the other one is its neighbour
    const u32 w_unit = lane / 4 * 128 + (unit_of_lane ^ lane / 4) * 16;
    const u32 x_line = unit_of_lane / 4 * X_ROWS + min(lane / 4, X_ROWS - 1), x_unit = x_line * 128 + (unit_of_lane % 4 * 2 ^ x_line % 8) * 16;
    auto tokens_at = [&](int chunk, int s) {
        const u32 from = x_at + chunk * X_CHUNK + s / 4 * (2 * X_ROWS * 128) + (x_unit ^ s / 2 % 2 * 32 ^ s / 4 * 2 * X_ROWS % 8 * 16 ^ s % 2 * 16);
        Tokens x;
#pragma unroll
        for (int t = 0; t < TOKENS; ++t) four_words(x.rows[t], from + t * 8 * 128);
        return x;
    };
#else
    auto tokens_at = [&](int chunk, int s) {
        const u32 from = x_at + chunk * X_CHUNK + s / 2 * (X_ROWS * 128) + (x_lane ^ (s / 2 * X_ROWS % 8 * 16 ^ s % 2 * 64));
        Tokens x;
#pragma unroll
        for (int t = 0; t < TOKENS; ++t) fragments(x.rows[t], from + t * 8 * 128);
        return x;
    };
#endif
    [[maybe_unused]] Tokens tokens[TURNS][STEPS];
#pragma unroll
    for (int c = 0; c < X_KEPT; ++c) {
        const int chunk = rank + c * SHARE;
        if (chunk >= chunks) break;
        if (!ODD) bar_wait(x_bars + 8 * chunk, 0);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) tokens[c][s] = tokens_at(chunk, s);
    }
    if (OVER_X) __syncthreads();                           // nobody reads x there any more
    [[maybe_unused]] bool x_is_here = ODD;
    // Sum i of the block, [row of x][row of w].
    auto done = [&](int unit, int i, const float (&sum)[WEIGHTS], const OfColumn& column, float of_row) {
        if (SPLIT == 1) finish_one(p, sum[0], sum[WEIGHTS - 1], i / ROWS, row_of(unit, i % ROWS), 0, column, of_row);
        else
#pragma unroll
            for (int weight = 0; weight < WEIGHTS; ++weight)
                ((float*)(shared + (kept - rings)))[(unit / blocks * WEIGHTS + weight) * SUMS + i] = sum[weight];
    };
    for (int unit = first + blocks * set; unit < p.all; unit += step, turn ^= 1) {
        Columns after = columns;
        if (unit + step < p.all) after = Columns(p, unit + step, lane);   // they have as long as these rows take
        float sums[WEIGHTS][OF_LANE];
#pragma unroll
        for (int weight = 0; weight < WEIGHTS; ++weight) {
            float four[4][4] = {};                         // four, lest each product waits for the one before
#pragma unroll TURNS
            for (int c = 0; c < (X_KEPT ? X_KEPT : chunks); ++c) {
                const int chunk = rank + c * SHARE;
                if (chunk >= chunks) break;
                const u32 w_from = ring + slot * SLOT;
                if (!X_KEPT && !x_is_here) bar_wait(x_bars + 8 * chunk, 0);
                bar_wait(mine + 8 * slot, phase);
#if ODD
                const int end = p.k + by - chunk * CHUNK;  // of the row, counted from the chunk's first element
                const bool begins = chunk == 0 && by, ends = end < CHUNK && end % 8;
                if (begins) clear(w_from, 0, 0, by, lane);
                if (ends) clear(w_from, end / 8, end % 8, 8, lane);
                if (begins || ends) {
                    smem_to_tma();                         // which fills the slot again
                    __syncwarp();
                }
#endif
#if W_BYTES == 1
                // Read before most of the work on its numbers, which takes long, so that the slot is free by then.
                u32 all[STEPS / 2][2][4];
#pragma unroll
                for (int i = 0; i < STEPS; ++i) four_words(all[i / 2][i % 2], w_from + i / 4 * (ROWS * 128) + i % 2 * 1024 + (w_unit ^ i / 2 % 2 * 16));
#pragma unroll
                for (int s = 0; s < STEPS; s += 2) {
                    const u32 (&w)[2][4] = all[s / 2];
#pragma unroll
                    for (int h = 0; h < 4; h += 2) {
                        const Tokens x = X_KEPT ? tokens[c % TURNS][s + h / 2] : tokens_at(chunk, s + h / 2);
#pragma unroll
                        for (int i = 0; i < 2; ++i) {
                            const u32 a[4] = {two_of_four<0>(w[0][h + i]), two_of_four<0>(w[1][h + i]), two_of_four<1>(w[0][h + i]), two_of_four<1>(w[1][h + i])};
#pragma unroll
                            for (int t = 0; t < TOKENS; ++t) mma(four[TOKENS * i + (TOKENS > 1 ? t : h)], a[0], a[1], a[2], a[3], x.rows[t][2 * i], x.rows[t][2 * i + 1]);
                        }
                    }
                    if (s == 0) {
                        // All lanes have what they read: the request depends on it, by bits that are cleared with the zero
                        // that a grid of one row has there.
                        u32 read = 0;
#pragma unroll
                        for (int i = 0; i < STEPS; ++i) read |= all[i / 2][i % 2][0];
                        __syncwarp();
                        ask(slot, read & blockIdx.y);
                    }
                }
#else
#pragma unroll
                for (int s = 0; s < STEPS; ++s) {          // behind the end of K both are zeros
                    u32 w[4];
                    fragments(w, w_from + s / 2 * 1024 + (w_lane ^ s % 2 * 64));
                    const Tokens x = X_KEPT ? tokens[c % TURNS][s] : tokens_at(chunk, s);
#pragma unroll
                    for (int h = 0; h < 4; h += 2)
#pragma unroll
                        for (int i = 0; i < SIXTEENS; ++i)
                            mma(four[SIXTEENS > 1 ? h + i : s % 2 * 2 + h / 2], x.upper(i, h), x.lower(i, h), x.upper(i, h + 1), x.lower(i, h + 1), w[h], w[h + 1]);
                }
                __syncwarp();                              // all lanes have what they read
                ask(slot);
#endif
                if (++slot == slots) slot = 0, phase ^= 1;
            }
#pragma unroll
            for (int i = 0; i < OF_LANE; ++i) sums[weight][i] = OF_LANE > 4 ? four[i / 4][i % 4] + four[i / 4 + 2][i % 4] : (four[0][i] + four[1][i]) + (four[2][i] + four[3][i]);
        }
        x_is_here = true;
#if SHARE == 1
#pragma unroll
        for (int i = 0; i < OF_LANE; ++i) {
            float sum[WEIGHTS];
#pragma unroll
            for (int weight = 0; weight < WEIGHTS; ++weight) sum[weight] = sums[weight][i];
            done(unit, x_of_sum(lane, i) * ROWS + w_of_sum(lane, i), sum, columns.of[w_of_sum(0, i) != 0], x_of_sum(0, i) ? factor_of_row(p, x_of_sum(lane, i)) : first_row);
        }
#else
        // Who is a row of w ahead writes into the other half, and nobody is two ahead: one barrier is enough.
        float* const of_set = (float*)(shared + (parts - rings)) + (turn * SETS + set) * WEIGHTS * SHARE * SUMS;   // [weight][rank][row of x][row of w]
#pragma unroll
        for (int weight = 0; weight < WEIGHTS; ++weight)
#pragma unroll
            for (int i = 0; i < OF_LANE; ++i)
                of_set[(weight * SHARE + rank) * SUMS + x_of_sum(lane, i) * ROWS + w_of_sum(lane, i)] = sums[weight][i];
        named_sync(1 + set, SHARE * 32);
        for (int i = rank * 32 + lane; i < min(SUMS, p.ends.m * ROWS); i += SHARE * 32) {
            float sum[WEIGHTS] = {};
#pragma unroll
            for (int weight = 0; weight < WEIGHTS; ++weight)
#pragma unroll
                for (int r = 0; r < SHARE; ++r) sum[weight] += of_set[(weight * SHARE + r) * SUMS + i];
            done(unit, i, sum, columns.of[0], i < SHARE * 32 ? first_row : factor_of_row(p, i / ROWS));
        }
#endif
        columns = after;
    }
#if SPLIT > 1
    cluster_sync();
    const int units = (p.all - first + blocks - 1) / blocks;
    for (int i = first_sum; i < units * sums_of_unit; i += SPLIT * THREADS) {
        const int unit = i / sums_of_unit, at = i - unit * sums_of_unit, m = at / ROWS;
        float sum[WEIGHTS] = {};
#pragma unroll
        for (int weight = 0; weight < WEIGHTS; ++weight)
#pragma unroll
            for (int block = 0; block < SPLIT; ++block) sum[weight] += float_of_block(kept + ((unit * WEIGHTS + weight) * SUMS + at) * 4, block);
        const bool is_first = i == first_sum;
        finish_one(p, sum[0], sum[WEIGHTS - 1], m, column_of(i), 0, is_first ? first_column : OfColumn(p, column_of(i), 0), is_first ? first_row : factor_of_row(p, m));
    }
    cluster_sync();                                        // nobody leaves while others read
#endif
}
