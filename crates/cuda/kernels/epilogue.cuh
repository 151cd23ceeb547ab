// What becomes of the sums in registers: out = activation(scale * (alpha * sum) + bias) * times + residual.
#pragma once
#define ACT_NONE 0
#define ACT_RELU 1
#define ACT_GELU_TANH 2
#define ACT_GELU_ERF 3
#define ACT_SILU 4

#if OUT_F32
typedef float Out;
__device__ __forceinline__ float widen(Out x) { return x; }
#else
typedef u16 Out;
#if OUT_F16
__device__ __forceinline__ float widen(Out x) { return from_f16(x); }
__device__ __forceinline__ u32 pack(float lo, float hi) { return pack_f16(lo, hi); }
#else
__device__ __forceinline__ float widen(Out x) { return from_bf16(x); }
__device__ __forceinline__ u32 pack(float lo, float hi) { return pack_bf16(lo, hi); }
#endif
#endif

// A matrix of the result's type and shape; a vector's rows or columns are 0 elements apart.
struct Part {
    const Out* first;
    i64 row, col, batch;
    __device__ __forceinline__ float at(int m, int n, int z) const { return widen(first[m * row + n * col + z * batch]); }
};

__device__ __forceinline__ float activate(float x) {
#if ACT == ACT_RELU
    return x < 0.f ? 0.f : x;                          // a NaN stays one
#elif ACT == ACT_GELU_TANH
    // x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): the same as x/2 (1 + tanh u).
    const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return x / (1.f + __expf(-2.f * u));
#elif ACT == ACT_GELU_ERF
    return 0.5f * x * (1.f + erff(x * 0.70710678118f));
#elif ACT == ACT_SILU
    return x / (1.f + __expf(-x));
#else
    return x;
#endif
}
