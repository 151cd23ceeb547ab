// C[m][n] = epilogue(sum over k of A(m,k) * B(n,k)) with mma.sync, for every GPU from sm_80 on: 16-bit operands, f32 sums.
//
// One block a tile. cp.async brings blocks of K into a ring of STAGES slots; every warp multiplies its part of the tile
// out of them and stores it from registers. Any leading dimension and any base is taken: GRAIN_A and GRAIN_B say how many
// bytes at a time an operand allows.
//
// Set by the host (src/mma.rs):
//   BM, BN           tile; WARPS_M by WARPS_N warps share it
//   STAGES           slots of the ring
//   A_MN, B_MN       0: k is contiguous; 1: m or n is
//   GRAIN_A, GRAIN_B 16, 8 or 4: bytes of a copy; 2: element by element, through registers
//   OPERAND_F16      operands are f16 (otherwise bf16)
//   OUT_F32, OUT_F16, OUT_ADD, ALPHA, ACT, SCALE, BIAS, TIMES, RESIDUAL, KEEP   as in gemm_sm90.cu
#include "ptx.cuh"
#include "walk.cuh"

constexpr int BK = 32;
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;       // of a warp
constexpr int MSUB = WM / 16, OUT_BN = WN;
constexpr int COLUMNS = WN, ROW_STEP = 16;                // of a thread's sums
#define GATED 0
#define ALONG 0
#define STAGED 0
#include "epilogue.cuh"
constexpr u32 A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, SLOT = A_BYTES + B_BYTES;
static_assert(WM % 16 == 0 && WN % 16 == 0, "a warp multiplies 16 by 16 at least");
static_assert(MSUB * WN / 2 <= 128, "at most 128 sums a thread");

// An operand [rows, k]: elements from row to row and from k to k, one of which is 1.
struct Operand { const u16* first; i64 row, k, batch; };
struct Params {
    Operand a, b;
    Ends ends;
    int k;
    int tiles_m, tiles_n, group;
};

// ---- one operand's block of K on its way into a slot ------------------------------------------------------------
// Lines are rows of 32 k, or (MN) k of ROWS rows, in units of 16 bytes that change places so that eight lines of one
// unit, as ldmatrix reads them, lie in different banks.
template <int LINE> __device__ __forceinline__ u32 unit_at(int line, int unit) {
    constexpr int UNITS = LINE / 8;
    const int turned = UNITS == 2 ? unit ^ (line / 4 & 1) : UNITS == 4 ? unit ^ (line / 2 & 3) : unit ^ (line & 7);
    return (line * UNITS + turned) * 16;
}
template <int GRAIN> __device__ __forceinline__ void copy_async(u32 to, const void* from, int bytes) {
    if (GRAIN == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
    else if (GRAIN == 8) asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
// What a thread brings of each block: the same units every time, a block further on. Elements outside are zeros.
template <int ROWS, bool MN, int GRAIN> struct Feed {
    static constexpr int LINE = MN ? ROWS : BK, LINES = MN ? BK : ROWS, UNITS = LINE / 8;
    static constexpr int COUNT = (LINES * UNITS + THREADS - 1) / THREADS;
    const u16 *from[COUNT], *base;
    int rows[COUNT];                     // of the unit's elements (MN) or of its line, that are there
    i64 step;                            // elements to the next block
    int depth;
    static __device__ __forceinline__ int line(int c) { return (threadIdx.x + c * THREADS) / UNITS; }
    static __device__ __forceinline__ int unit(int c) { return (threadIdx.x + c * THREADS) % UNITS; }
    __device__ __forceinline__ Feed(const Operand& x, int r0, int all, int depth_, int z) : base(x.first + z * x.batch), step(BK * x.k), depth(depth_) {
#pragma unroll
        for (int c = 0; c < COUNT; ++c) {
            const int r = r0 + (MN ? unit(c) * 8 : line(c)), k = MN ? line(c) : unit(c) * 8;
            rows[c] = line(c) < LINES ? min(max(all - r, 0), 8) : 0;
            from[c] = base + (r * x.row + k * x.k);
        }
    }
    __device__ __forceinline__ void bring(u32 slot, int k0) {
#pragma unroll
        for (int c = 0; c < COUNT; ++c) {
            if (LINES * UNITS % THREADS && line(c) >= LINES) break;
            const int k = k0 + (MN ? line(c) : unit(c) * 8);
            const int left = MN ? (k < depth ? rows[c] : 0) : rows[c] ? min(max(depth - k, 0), 8) : 0;
            const u32 to = slot + unit_at<LINE>(line(c), unit(c));
            if (GRAIN > 2) {
#pragma unroll
                for (int e = 0; e < 16; e += GRAIN) {
                    const int bytes = min(max(left * 2 - e, 0), GRAIN);
                    copy_async<GRAIN>(to + e, bytes ? (const char*)from[c] + e : (const char*)base, bytes);
                }
            } else {
                u32 two[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) two[e] = (2 * e < left ? from[c][2 * e] : 0u) | (2 * e + 1 < left ? (u32)from[c][2 * e + 1] << 16 : 0u);
                asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(to), "r"(two[0]), "r"(two[1]), "r"(two[2]), "r"(two[3]) : "memory");
            }
            from[c] += step;
        }
    }
};

// ---- fragments --------------------------------------------------------------------------------------------------
template <bool TURNED> __device__ __forceinline__ void ldmatrix4(u32 (&r)[4], u32 addr) {
    if (TURNED) asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
    else asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}
__device__ __forceinline__ void mma(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
#if OPERAND_F16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// 16 rows by 16 k of an operand whose tile has ROWS rows. Of A the four matrices are rows 0-7, 8-15 of the first 8 k, then of
// the others; of B (SECOND) both halves of k of rows 0-7, then of 8-15.
template <int ROWS, bool MN, bool SECOND> __device__ __forceinline__ void fragment(u32 (&r)[4], u32 tile, int row, int k, int lane) {
    const int low = lane % 8, mid = lane / 8 % 2, high = lane / 16;
    const int r8 = SECOND ? high : mid, k8 = SECOND ? mid : high;
    if (MN) ldmatrix4<true>(r, tile + unit_at<ROWS>(k + k8 * 8 + low, row / 8 + r8));
    else ldmatrix4<false>(r, tile + unit_at<BK>(row + r8 * 8 + low, k / 8 + k8));
}

// Two neighbours at once where they lie together, or one by one.
__device__ __forceinline__ void store_all(const Ends& p, const Matrix& to, const Sums& d, int m0, int n0, int z, int lane) {
#if !OUT_F32
    if (to.col == 1 && to.row % 2 == 0 && to.batch % 2 == 0 && (u64)to.first % 4 == 0 && p.n % 2 == 0) {
#pragma unroll
        for (int i = 0; i < MSUB; ++i)
#pragma unroll
            for (int j = 0; j < WN / 8; ++j)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int row = m0 + i * 16 + lane / 4 + 8 * h, col = n0 + 8 * j + 2 * (lane % 4);
                    if (row < p.m && col < p.n) *(u32*)to.at(row, col, z) = pack(d[i][4 * j + 2 * h], d[i][4 * j + 2 * h + 1]);
                }
        return;
    }
#endif
    store_direct<0>(p, to, d, m0, n0, z, lane);
}

// Left alone, the compiler keeps blocks of four warps to 96 registers, which a long epilogue is one short with.
#if WARPS_M * WARPS_N <= 4
#define BOUNDS THREADS, 4
#else
#define BOUNDS THREADS
#endif
extern "C" __global__ void __launch_bounds__(BOUNDS) gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) unsigned char smem[];
    const u32 ring = smem_addr(smem);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp % WARPS_M * WM, col = warp / WARPS_M * WN;      // of the warp, in the tile
    const Place at = Order{p.tiles_m, p.tiles_n, p.group, false}.at(blockIdx.x);
    const int m0 = at.m * BM, n0 = at.n * BN, blocks = (p.k + BK - 1) / BK;
    Feed<BM, A_MN, GRAIN_A> a_feed(p.a, m0, p.ends.m, p.k, at.batch);
    Feed<BN, B_MN, GRAIN_B> b_feed(p.b, n0, p.ends.n, p.k, at.batch);
    int into = 0, out_of = 0;                                           // slots
    auto load = [&](int kb) {                                           // one block after the other
        if (kb < blocks) {
            a_feed.bring(ring + into * SLOT, kb * BK);
            b_feed.bring(ring + into * SLOT + A_BYTES, kb * BK);
        }
        into = into + 1 == STAGES ? 0 : into + 1;
        asm volatile("cp.async.commit_group;" ::: "memory");            // an empty one counts too
    };
    Sums d;
#pragma unroll
    for (int i = 0; i < MSUB; ++i)
#pragma unroll
        for (int x = 0; x < WN / 2; ++x) d[i][x] = 0.f;
    for (int s = 0; s < STAGES - 1; ++s) load(s);
    for (int kb = 0; kb < blocks; ++kb) {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
        __syncthreads();                                                // this block is there, and the one before was read
        load(kb + STAGES - 1);
        const u32 a_tile = ring + out_of * SLOT, b_tile = a_tile + A_BYTES;
        out_of = out_of + 1 == STAGES ? 0 : out_of + 1;
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            u32 a[MSUB][4];
#pragma unroll
            for (int i = 0; i < MSUB; ++i) fragment<BM, A_MN, false>(a[i], a_tile, row + i * 16, k, lane);
#pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                u32 b[4];
                fragment<BN, B_MN, true>(b, b_tile, col + j * 16, k, lane);
#pragma unroll
                for (int i = 0; i < MSUB; ++i) {
                    mma(d[i] + 8 * j, a[i], b[0], b[1]);
                    mma(d[i] + 8 * j + 4, a[i], b[2], b[3]);
                }
            }
        }
    }
    const int m = m0 + row, n = n0 + col;
    const Ahead ahead(p.ends, m, n, at.batch, 0, lane, 0);
    // Made anew for what comes behind the activation: there are no registers for it in between.
    auto finish = [&] { return Finish(p.ends, ahead, 0, m, n, at.batch, 0, lane); };
#if KEEP
    finish().all<true, false>(d);
    store_all(p.ends, p.ends.keep, d, m, n, at.batch, lane);
    finish().all<false, true>(d);
#else
    finish().all<true, true>(d);
#endif
    store_all(p.ends, p.ends.out, d, m, n, at.batch, lane);
}
