// Rows that belong to one group after the other: which rows of which group a tile has. `src/groups.rs` is the same on the
// host, and is what the tests hold against brute force: change both.
#pragma once
#if GROUPED == 1
constexpr int MOST_GROUPS = 512;
constexpr int GROUPS_BYTES = 2 * (MOST_GROUPS + 1) * 4;

// Rows [first, end) of a group, of which a tile has those from tile `across` on; `weights` counts tiles of its weights.
struct Share { int group, first, end, across, weights; };

// A table in shared memory: rows and tiles before each group. Tiles of the same weights are neighbours, so that blocks which
// run at the same time read them once from memory.
struct Groups {
    const int *rows, *before;
    int count;
    // All threads of a block come here. Of ends that are none (less than those before, more than there are rows) nothing
    // comes but rows that two groups have, or fewer: none lies outside.
    __device__ __forceinline__ Groups(const int* ends, int groups, int all_rows, int tile_rows, int weight_tiles, int* table)
        : rows(table), before(table + MOST_GROUPS + 1), count(groups) {
        int *const to_rows = table, *const to_before = table + MOST_GROUPS + 1;
        for (int g = threadIdx.x; g < groups; g += blockDim.x) to_rows[g + 1] = max(0, min(ends[g], all_rows));
        if (threadIdx.x == 0) to_rows[0] = 0;
        __syncthreads();
        if (threadIdx.x < 32) {
            int sum = 0;
            for (int g0 = 0; g0 < groups; g0 += 32) {
                const int g = g0 + threadIdx.x;
                const int tiles = g < groups ? max(0, to_rows[g + 1] - to_rows[g] + tile_rows - 1) / tile_rows * weight_tiles : 0;
                int upto = tiles;
#pragma unroll
                for (int o = 1; o < 32; o *= 2) {
                    const int x = __shfl_up_sync(~0u, upto, o);
                    if (threadIdx.x >= o) upto += x;
                }
                if (g < groups) to_before[g] = sum + upto - tiles;
                sum += __shfl_sync(~0u, upto, 31);
            }
            if (threadIdx.x == 0) to_before[groups] = sum;
        }
        __syncthreads();
    }
    __device__ __forceinline__ int tiles() const { return before[count]; }
    __device__ __forceinline__ Share of(int tile, int tile_rows) const {
        int low = 0, high = count;                                // before[low] <= tile < before[high]
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (before[middle] <= tile) low = middle; else high = middle;
        }
        const int first = rows[low], end = rows[low + 1], down = (end - first + tile_rows - 1) / tile_rows;
        tile -= before[low];
        return {low, first, end, tile % down, tile / down};
    }
};
#else
constexpr int GROUPS_BYTES = 0;
struct Groups {};
#endif
