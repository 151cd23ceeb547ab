// Y[m][n] = epilogue(sum over k of X(m,k) * W(n,k)) for a few rows of x, for every GPU from sm_80 on: weights [n, k] are
// read once, at the pace of memory, and everything else serves to keep many of their bytes on the way.
//
// Tensor cores multiply with the sides changed: 16 rows of w are the rows of mma.sync, 8 rows of x its columns. In which order
// k is summed does not matter as long as w and x agree, so a lane takes 16 neighbouring bytes of a row, as they lie: lane
// 4g + t has piece t of rows g and g + 8 of w and of row g of x. Nothing goes through shared memory on the way in. The
// WARPS warps of a block and the SPLIT blocks of a cluster share K; their sums meet in shared memory in a fixed order.
// Weights that no kernel writes (p.constant, the caller's promise) are asked for before the kernel before this one has ended.
//
// Set by the host (src/decode.rs):
//   TOKENS      groups of 8 rows of x: 1 or 2
//   GROUPS      groups of 16 rows of w of a block at a time; of a gate half of them are the second weight's
//   WARPS       of a block
//   SPLIT       blocks of a cluster that share K
//   AHEAD       pieces of K that a warp has on the way
//   BLOCKS      of a multiprocessor at least, for the number of registers
//   W_SHIFTED, X_SHIFTED   rows begin anywhere: 16 bytes are made of two that lie on their boundary, of which the next lane has
//               the second; behind a warp's last piece they are read for that alone
//   K_TAIL      K is no multiple of the elements in 16 bytes
//   OPERAND_F16 operands are f16 (otherwise bf16)
//   GATED, OUT_F32, OUT_F16, OUT_ADD, ALPHA, ACT, SCALE, BIAS, TIMES, RESIDUAL, KEEP   as in gemm_sm90.cu
#include "few_rows.cuh"

constexpr int THREADS = WARPS * 32;
constexpr int ROWS = 16 * GROUPS;                          // of w in a tile
constexpr int OUT_ROWS = GATED ? ROWS / 2 : ROWS;          // columns of the result in a tile
constexpr int COLS = 8 * TOKENS;
constexpr int PER = 8;                                     // k of a lane in a piece
constexpr int PIECE = 4 * PER;
static_assert(!GATED || GROUPS % 2 == 0, "both weights have as many rows in a tile");

// ---- sixteen bytes ---------------------------------------------------------------------------------------------
struct Sixteen { u32 x[4]; };
__device__ __forceinline__ Sixteen stream(const char* from) {      // read once: nothing of it stays in the first cache
    Sixteen v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3]) : "l"(from));
    return v;
}
__device__ __forceinline__ Sixteen keep_near(const char* from) {   // read again soon; not .nc: the kernel before may have written it
    Sixteen v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3]) : "l"(from) : "memory");
    return v;
}
// Eight elements from element `by` of the first sixteen bytes on.
__device__ __forceinline__ Sixteen shifted(const Sixteen& first, const Sixteen& next, int by) {
    u32 v[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = first.x[i], v[4 + i] = next.x[i];
#pragma unroll
    for (int i = 0; i < 6; ++i) v[i] = by & 4 ? v[i + 2] : v[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) v[i] = by & 2 ? v[i + 1] : v[i];
    Sixteen out;
#pragma unroll
    for (int i = 0; i < 4; ++i) out.x[i] = __funnelshift_r(v[i], v[i + 1], by & 1 ? 16 : 0);
    return out;
}
// Zeros behind the first `left` elements.
__device__ __forceinline__ void cut(Sixteen& v, int left) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v.x[i] = left <= 2 * i ? 0 : left == 2 * i + 1 ? v.x[i] & 0xffff : v.x[i];
}

// A row as a lane sees it, from its own piece on. Sixteen bytes that hold an element of the row are read whole.
template <bool SHIFTED> struct Line {
    const char* from;
    int by;                                                // elements from there to the row's first
    __device__ __forceinline__ void begin(const char* first, int lane_bytes) {
        by = SHIFTED ? (int)((u64)first & 15) / 2 : 0;
        from = first - 2 * by + lane_bytes;
    }
};

// ---- what a warp has on the way --------------------------------------------------------------------------------
struct Ring {
    Sixteen w[AHEAD][GROUPS][2];
    Sixteen x[AHEAD][TOKENS];
    Sixteen w_behind[GROUPS][2], x_behind[TOKENS];         // the last piece, where rows are shifted: of the last lane of a row
    Line<W_SHIFTED> rows[GROUPS][2];
    Line<X_SHIFTED> tokens[TOKENS];
    int k, lane, lane_k;                                   // K, and the lane's first in a piece

    // Rows past the last read the last one again; nobody writes what comes of them.
    __device__ __forceinline__ void tile(const Params& p, int index, int lane) {
        const int z = index / p.tiles, n0 = (index - z * p.tiles) * OUT_ROWS, g = lane / 4, at = lane % 4 * 16;
#pragma unroll
        for (int r = 0; r < GROUPS; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int second = GATED && r >= GROUPS / 2;
                const int n = min(n0 + (second ? r - GROUPS / 2 : r) * 16 + 8 * h + g, p.ends.n - 1) + (second ? p.ends.second : 0);
                rows[r][h].begin(p.w + n * p.w_row + z * p.w_batch, at);
            }
#pragma unroll
        for (int m = 0; m < TOKENS; ++m) tokens[m].begin(p.x + min(8 * m + g, p.ends.m - 1) * p.x_row + z * p.x_batch, at);
    }
    // Whether the sixteen bytes from a lane's piece on, or those behind them, hold an element of the row.
    template <bool SHIFTED> __device__ __forceinline__ bool has(const Line<SHIFTED>& line, int at) const { return at + lane_k - line.by < k; }
    template <bool SHIFTED> __device__ __forceinline__ void load_behind(Sixteen& behind, const Line<SHIFTED>& line, int at) {
        behind = Sixteen{};
        if (lane % 4 == 3 && line.by && has(line, at + PER)) behind = keep_near(line.from + at * 2 + 16);
    }
    __device__ __forceinline__ void load_w(int u, int at) {
#pragma unroll
        for (int r = 0; r < GROUPS; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const Line<W_SHIFTED>& line = rows[r][h];
                w[u][r][h] = Sixteen{};
                if (has(line, at)) w[u][r][h] = W_SHIFTED ? keep_near(line.from + at * 2) : stream(line.from + at * 2);
                if (W_SHIFTED && u == AHEAD - 1) load_behind(w_behind[r][h], line, at);
            }
    }
    __device__ __forceinline__ void load_x(int u, int at) {
#pragma unroll
        for (int m = 0; m < TOKENS; ++m) {
            x[u][m] = Sixteen{};
            if (has(tokens[m], at)) x[u][m] = keep_near(tokens[m].from + at * 2);
            if (X_SHIFTED && u == AHEAD - 1) load_behind(x_behind[m], tokens[m], at);
        }
    }
    // A lane's eight elements of a piece. `following` is the piece after it; the last one's is not here but for `behind`.
    template <bool SHIFTED> __device__ __forceinline__ Sixteen taken(const Sixteen& piece, const Sixteen& following, const Sixteen& behind, bool last, const Line<SHIFTED>& line, int at) const {
        Sixteen v = piece;
        if (SHIFTED) {
            Sixteen next;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u32 given = lane % 4 == 0 && !last ? following.x[i] : piece.x[i];
                next.x[i] = __shfl_sync(~0u, given, (lane & ~3) | (lane + 1 & 3));
                if (last && lane % 4 == 3) next.x[i] = behind.x[i];
            }
            v = shifted(piece, next, line.by);
        }
        if ((K_TAIL || SHIFTED) && at + PIECE > k) cut(v, k - at - lane_k);
        return v;
    }
    __device__ __forceinline__ void multiply(int u, int at, float (&sums)[GROUPS][TOKENS][4]) const {
        const bool last = u == AHEAD - 1;
        const int after = last ? u : u + 1;
        Sixteen token[TOKENS];
#pragma unroll
        for (int m = 0; m < TOKENS; ++m) token[m] = taken(x[u][m], x[after][m], x_behind[m], last, tokens[m], at);
#pragma unroll
        for (int r = 0; r < GROUPS; ++r) {
            const Sixteen upper = taken(w[u][r][0], w[after][r][0], w_behind[r][0], last, rows[r][0], at);
            const Sixteen lower = taken(w[u][r][1], w[after][r][1], w_behind[r][1], last, rows[r][1], at);
#pragma unroll
            for (int m = 0; m < TOKENS; ++m) {
                mma(sums[r][m], upper.x[0], lower.x[0], upper.x[1], lower.x[1], token[m].x[0], token[m].x[1]);
                mma(sums[r][m], upper.x[2], lower.x[2], upper.x[3], lower.x[3], token[m].x[2], token[m].x[3]);
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
#if SPLIT > 1
__cluster_dims__(SPLIT, 1, 1)
#endif
decode(const __grid_constant__ Params p) {
    __shared__ float part[WARPS][COLS * ROWS];             // [row of x][row of w] of every warp
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int rank = SPLIT > 1 ? blockIdx.x % SPLIT : 0, step = gridDim.x / SPLIT;
    constexpr int TURN = AHEAD * PIECE, ALL = SPLIT * WARPS * TURN;
    const int first = (rank * WARPS + warp) * TURN;
    const int turns = max((p.k + ALL - 1) / ALL, 1);

    int index = blockIdx.x / SPLIT;
    Ring ring;
    ring.k = p.k ? p.k : -PER;                             // of nothing nothing is read, wherever it would begin
    ring.lane = lane;
    ring.lane_k = t * PER;
    ring.tile(p, index, lane);
#if __CUDA_ARCH__ >= 900
    if (!p.constant) after_previous_kernel();
#endif
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) ring.load_w(u, first + u * PIECE);
#if __CUDA_ARCH__ >= 900
    after_previous_kernel();                               // from here on x may be read, and the result written
    next_kernel_may_start();                               // not before: it would not wait for the one before this one
#endif
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) ring.load_x(u, first + u * PIECE);

    for (; index < p.all; index += step) {
        float sums[GROUPS][TOKENS][4] = {};
        for (int turn = 0; turn < turns; ++turn) {
            const int at = first + turn * ALL;
            const bool last = turn + 1 == turns;
            const int next = last ? first : at + ALL;
            // The next tile's first pieces come in while this one is finished; behind the last there are none.
            const bool more = !last || index + step < p.all;
            Ring before = ring;                            // where lines lie, for the pieces that are here
            if (last && more) ring.tile(p, index + step, lane);
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                before.multiply(u, at + u * PIECE, sums);
                if (more) {
                    ring.load_w(u, next + u * PIECE);
                    ring.load_x(u, next + u * PIECE);
                }
            }
        }
        __syncthreads();                                   // the tile before has been read
#pragma unroll
        for (int r = 0; r < GROUPS; ++r)
#pragma unroll
            for (int m = 0; m < TOKENS; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) part[warp][(8 * m + 2 * t + i % 2) * ROWS + 16 * r + g + 8 * (i / 2)] = sums[r][m][i];
        __syncthreads();
        const int z = index / p.tiles, n0 = (index - z * p.tiles) * OUT_ROWS;
#if SPLIT == 1
        for (int i = threadIdx.x; i < COLS * OUT_ROWS; i += THREADS) {
            const int m = i / OUT_ROWS, n = i % OUT_ROWS;
            float sum = 0.f, other = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                sum += part[w][m * ROWS + n];
                if (GATED) other += part[w][m * ROWS + OUT_ROWS + n];
            }
            finish_one(p, sum, other, m, n0 + n, z);
        }
#else
        for (int i = threadIdx.x; i < COLS * ROWS; i += THREADS) {
            float sum = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) sum += part[w][i];
            part[0][i] = sum;                              // nobody else reads or writes this column
        }
        cluster_sync();
        const u32 mine = smem_addr(&part[0][0]);
        auto of_all = [&](int i) {                         // the blocks' sums, in their order
            float sum = 0.f;
#pragma unroll
            for (u32 block = 0; block < SPLIT; ++block) sum += float_of_block(mine + 4 * i, block);
            return sum;
        };
        for (int i = rank * THREADS + threadIdx.x; i < COLS * OUT_ROWS; i += SPLIT * THREADS) {
            const int m = i / OUT_ROWS, n = i % OUT_ROWS;
            finish_one(p, of_all(m * ROWS + n), GATED ? of_all(m * ROWS + OUT_ROWS + n) : 0.f, m, n0 + n, z);
        }
        cluster_sync();                                    // nobody leaves or goes on while others read
#endif
    }
}
