// What a benchmark and its checks need beside the products: random numbers, sums in double precision at chosen places,
// what became of poison. Each kernel takes one struct.
#include "ptx.cuh"

__device__ __forceinline__ u64 mix(u64 x) {                       // splitmix64
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// Numbers of 8 bits: 4 of exponent, 3 of mantissa, no infinities.
__device__ __forceinline__ float from_e4m3(unsigned char x) {
    const int e = x >> 3 & 15, m = x & 7;
    const float size = (x & 127) == 127 ? __int_as_float(0x7fffffff) : e ? ldexpf(1.f + m / 8.f, e - 7) : ldexpf(m / 8.f, -6);
    return x & 128 ? -size : size;
}
__device__ __forceinline__ unsigned char to_e4m3(float x) {      // to nearest, ties to even; too large ones to the largest
    const float size = fabsf(x);
    int e = max(size > 0.f ? ilogbf(size) : -6, -6), m = (int)rintf(ldexpf(size, 3 - e));      // 0..16, of 2^(e-3)
    if (m == 16) { ++e; m = 8; }
    const int code = m < 8 ? m : e > 8 || (e == 8 && m == 15) ? 126 : (e + 7) << 3 | (m - 8);
    return (unsigned char)(code | (x < 0.f ? 128 : 0));
}

// type: 0 bf16, 1 f16, 2 f32, 3 e4m3
__device__ __forceinline__ double number_at(const void* p, i64 i, int type) {
    if (type == 3) return from_e4m3(((const unsigned char*)p)[i]);
    if (type == 2) return ((const float*)p)[i];
    const u16 x = ((const u16*)p)[i];
    return type == 1 ? from_f16(x) : from_bf16(x);
}

struct Fill { void* to; u64 count; u64 seed; int type; float deviation; };
extern "C" __global__ void fill_normal(const __grid_constant__ Fill p) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < p.count; i += (u64)gridDim.x * blockDim.x) {
        const u64 h = mix(i ^ mix(p.seed));
        const float u = ((u32)h + 0.5f) * 2.3283064e-10f, v = (u32)(h >> 32) * 2.3283064e-10f;
        const float x = p.deviation * sqrtf(-2.f * logf(u)) * cospif(2.f * v);
        if (p.type == 3) ((unsigned char*)p.to)[i] = to_e4m3(x);
        else if (p.type == 2) ((float*)p.to)[i] = x;
        else ((u16*)p.to)[i] = (u16)(p.type == 1 ? pack_f16(x, 0.f) : pack_bf16(x, 0.f));
    }
}

// NaNs, and a sum over all that depends on every bit and place.
struct Scan { const void* of; u64 count; u64* found; int type; };
extern "C" __global__ void scan(const __grid_constant__ Scan p) {
    u64 nans = 0, sum = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < p.count; i += (u64)gridDim.x * blockDim.x) {
        const u32 bits = p.type == 2 ? ((const u32*)p.of)[i] : ((const u16*)p.of)[i];
        const u32 most = p.type == 2 ? 0x7f800000u : p.type == 1 ? 0x7c00u : 0x7f80u, sign = p.type == 2 ? 0x7fffffffu : 0x7fffu;
        nans += (bits & sign) > most;
        sum += mix(i * 0x100000001ull + bits);
    }
    atomicAdd(p.found, nans);
    atomicAdd(p.found + 1, sum);
}

struct View { const void* first; i64 row, col, batch; };
__device__ __forceinline__ double at(const View& v, i64 m, i64 n, i64 z, int type) {
    return number_at(v.first, m * v.row + n * v.col + z * v.batch, type);
}

// One warp a place: the product's element in double precision beside the result's, in units of what may be between them.
struct Sample {
    View a, b, out, before;              // a [M, K], b [K, N]; before: what out had (add)
    View parts[4];                       // scale, bias, times, residual; without address where not given
    double* worst;                       // the largest difference; 1e30 for a NaN
    i64 m, n, k, batch;
    i64 second;                          // columns of b from the gate to the other half, or 0
    u64 samples;                         // as many as there are elements: all of them
    double alpha, rounding;              // of the result's type, relative
    double lost;                         // of a sum, relative to that of its sizes
    const float *scales_a, *scales_b;    // factors of rows of a and of columns of b, or of all
    int step_a, step_b;
    int type, weight_type, out_type, activation, add;
};
__device__ __forceinline__ double activated(double x, int activation) {
    switch (activation) {
        case 1: return x < 0 ? 0 : x;
        case 2: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
        case 3: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
        case 4: return x / (1 + exp(-x));
        default: return x;
    }
}
extern "C" __global__ void sample(const __grid_constant__ Sample p) {
    const u64 w = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (w >= p.samples) return;
    const u64 all = (u64)p.m * p.n * p.batch, h = mix(w * 7919 + 17);
    i64 m, n, z;
    if (p.samples == all) { n = w % p.n; m = w / p.n % p.m; z = w / p.n / p.m; }
    else {
        m = (i64)((u32)h % (u64)p.m); n = (i64)((u32)(h >> 32) % (u64)p.n); z = (i64)(mix(h) % (u64)p.batch);
        if (w % 8 == 0) m = p.m - 1 - (i64)(w / 8) % min(p.m, (i64)70);      // edges are where mistakes are
        if (w % 8 == 1) n = p.n - 1 - (i64)(w / 8) % min(p.n, (i64)70);
    }
    double s = 0, t = 0, size = 0, size2 = 0;
    for (i64 k = lane; k < p.k; k += 32) {
        const double x = at(p.a, m, k, z, p.type), y = at(p.b, k, n, z, p.weight_type);
        s += x * y; size += fabs(x * y);
        if (p.second) { const double v = at(p.b, k, n + p.second, z, p.weight_type); t += x * v; size2 += fabs(x * v); }
    }
    for (int o = 16; o; o /= 2) {
        s += __shfl_xor_sync(~0u, s, o); t += __shfl_xor_sync(~0u, t, o);
        size += __shfl_xor_sync(~0u, size, o); size2 += __shfl_xor_sync(~0u, size2, o);
    }
    if (lane) return;
    const double lost = p.lost, by_row = p.scales_a ? p.scales_a[m * p.step_a] : 1.;
    const double by_column = p.scales_b ? p.scales_b[n * p.step_b] : 1., by_other = p.scales_b ? p.scales_b[(n + p.second) * p.step_b] : 1.;
    s *= by_row * by_column; size *= fabs(by_row * by_column);
    t *= by_row * by_other; size2 *= fabs(by_row * by_other);
    double v = s * p.alpha, error = size * fabs(p.alpha) * lost;
    if (p.parts[0].first) { const double x = at(p.parts[0], m, n, z, p.out_type); v *= x; error *= fabs(x); }
    if (p.parts[1].first) v += at(p.parts[1], m, n, z, p.out_type);
    error += fabs(v) * 1e-6;
    v = activated(v, p.activation);
    error = error * 1.2 + fabs(v) * 1e-5;                         // no activation is steeper; the fast exponential
    if (p.second) {
        const double u = t * p.alpha;
        error = error * fabs(u) + fabs(v) * size2 * fabs(p.alpha) * lost;
        v *= u;
    }
    if (p.parts[2].first) { const double x = at(p.parts[2], m, n, z, p.out_type); v *= x; error *= fabs(x); }
    if (p.parts[3].first) v += at(p.parts[3], m, n, z, p.out_type);
    if (p.add) v += at(p.before, m, n, z, p.out_type);
    error += fabs(v) * p.rounding + 1e-30;
    double off = fabs(at(p.out, m, n, z, p.out_type) - v) / error;
    if (!(off == off)) off = 1e30;
    atomicMax((u64*)p.worst, (u64)__double_as_longlong(off));     // no less than 0: the bits are in order
}

// How fast memory is read: sixteen bytes at a time, four of them on the way for each thread; what was read matters to nobody, but the
// compiler must not know.
struct Reading { const f4* from; u64 count; float* never; };
extern "C" __global__ void read_all(const __grid_constant__ Reading p) {
    float sum = 0.f;
    const u64 all = (u64)gridDim.x * blockDim.x;
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    for (; i + 3 * all < p.count; i += 4 * all) {
        f4 v[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) v[u] = load_past_l1(p.from + i + u * all);
#pragma unroll
        for (int u = 0; u < 4; ++u) sum += v[u].x + v[u].y + v[u].z + v[u].w;
    }
    for (; i < p.count; i += all) sum += load_past_l1(p.from + i).x;
    if (sum == 1.2345e-30f) *p.never = sum;
}
