// Instructions of sm_90a that C++ has no words for, one wrapper each. No header of CUDA's is needed.
#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef long long i64;

struct __align__(128) TensorMap { u64 opaque[16]; };   // CUtensorMap, filled by the host

__device__ __forceinline__ u32 smem_addr(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// ---- barriers in shared memory that count arrivals and bytes ---------------------------------------------------
__device__ __forceinline__ void bar_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void bar_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_wait(u32 bar, u32 parity) {
    u32 done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    } while (!done);
}
__device__ __forceinline__ void bar_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
// On the barrier at the same offset in another block of the cluster. No ".release.cluster": that form compiles to
// MEMBAR.ALL.GPU and takes a microsecond, and nothing needs releasing: the slot was only read, by wgmma, and wait_group
// has shown those reads done.
__device__ __forceinline__ void bar_arrive_at(u32 bar, u32 block) {
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [r]; }" :: "r"(bar), "r"(block) : "memory");
}
__device__ __forceinline__ void named_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same where nothing that was written has to be seen: the other form waits until it is, by everyone on the chip.
__device__ __forceinline__ void cluster_meet() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Its two halves: what came before the first is seen behind the second.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// ---- boxes of matrices between global and shared memory: column, row, matrix of the batch ----------------------
__device__ __forceinline__ void tma_load(u32 dst, const TensorMap* map, u32 bar, int c, int r, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 :: "r"(dst), "l"(map), "r"(bar), "r"(c), "r"(r), "r"(z) : "memory");
}
__device__ __forceinline__ void tma_load_all(u32 dst, const TensorMap* map, u32 bar, int c, int r, int z, u16 mask) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :: "r"(dst), "l"(map), "r"(bar), "r"(c), "r"(r), "r"(z), "h"(mask) : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap* map, u32 src, int c, int r, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :: "l"(map), "r"(src), "r"(c), "r"(r), "r"(z) : "memory");
}
__device__ __forceinline__ void tma_add(const TensorMap* map, u32 src, int c, int r, int z) {
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :: "l"(map), "r"(src), "r"(c), "r"(r), "r"(z) : "memory");
}
__device__ __forceinline__ void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int OPEN> __device__ __forceinline__ void tma_read_wait() {      // all but OPEN groups have read their buffers
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(OPEN) : "memory");
}
__device__ __forceinline__ void smem_to_tma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void map_prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

// ---- fragments of 8 by 8 elements into shared memory; the turned ones column by column -------------------------
__device__ __forceinline__ void stmatrix4(u32 addr, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void stmatrix4_turned(u32 addr, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void stmatrix2_turned(u32 addr, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" :: "r"(addr), "r"(a), "r"(b) : "memory");
}

// ---- wgmma -----------------------------------------------------------------------------------------------------
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int OPEN> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(OPEN) : "memory");
}
// A tile in shared memory with the 128-byte swizzle; all fields in units of 16 bytes.
// K-major:  8 rows of 128 bytes (64 k) are an atom; `stride` to the next 8 rows, `leading` unused.
// MN-major: 8 k of 128 bytes (64 mn) are an atom; `stride` to the next 8 k, `leading` to the next 64 mn.
__device__ __forceinline__ u64 wgmma_tile(u32 addr, u32 leading, u32 stride) {
    return (u64)((addr & 0x3FFFF) >> 4) | ((u64)(leading >> 4) << 16) | ((u64)(stride >> 4) << 32) | (1ull << 62);
}

// ---- the order of kernels, flags between blocks ----------------------------------------------------------------
// The kernel before this one has ended and what it wrote is seen; nothing where it was launched the ordinary way.
__device__ __forceinline__ void after_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void next_kernel_may_start() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ __forceinline__ void flag_set(u32* flag, u32 value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ u32 flag_get(const u32* flag) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
struct __align__(16) f4 { float x, y, z, w; };
__device__ __forceinline__ f4 load_past_l1(const f4* p) {
    f4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ float float_of_block(u32 addr, u32 block) {
    float v;
    asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %1, %2; ld.shared::cluster.f32 %0, [a]; }"
                 : "=f"(v) : "r"(addr), "r"(block) : "memory");
    return v;
}
// The same address in another block of the cluster, for what follows.
__device__ __forceinline__ u32 address_in_block(u32 addr, u32 block) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(addr), "r"(block));
    return there;
}
// Into the shared memory of another block; its barrier counts the bytes when they are there.
__device__ __forceinline__ void send_four(u32 there, float x, float y, float z, float w, u32 bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 :: "r"(there), "f"(x), "f"(y), "f"(z), "f"(w), "r"(bar) : "memory");
}
__device__ __forceinline__ f4 load_four(u32 addr) {
    f4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(addr) : "memory");
    return v;
}

// ---- numbers ---------------------------------------------------------------------------------------------------
__device__ __forceinline__ u32 pack_bf16(float lo, float hi) {             // to nearest, ties to even
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
__device__ __forceinline__ u32 pack_f16(float lo, float hi) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
__device__ __forceinline__ float from_bf16(u16 x) { return __uint_as_float((u32)x << 16); }
__device__ __forceinline__ float from_f16(u16 x) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
    return f;
}
