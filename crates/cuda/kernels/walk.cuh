// Which tiles a cluster of blocks computes, and which part of K of each. `src/walk.rs` is the same on the host, and is
// what the tests hold against brute force: change both.
#pragma once

// Bands of `group` tiles down M, so that the tiles in flight are a near-square patch of C and their rows of A and B
// stay in the second-level cache, or higher, where all of a band's A does. A band meets all of B: where that is the larger
// operand, bands may lie along N.
struct Place { int m, n, batch; };
struct Order {
    int tm, tn, group;
    bool along;
    __device__ __forceinline__ Place at(int tile) const {
        const int wide = along ? tn : tm, far = along ? tm : tn;
        const int batch = tile / (tm * tn);
        tile -= batch * tm * tn;
        const int band = tile / (group * far), first = band * group;
        const int rows = min(group, wide - first), r = tile - band * group * far;
        const int x = first + r % rows, y = r / rows;
        return along ? Place{y, x, batch} : Place{x, y, batch};
    }
};

// Blocks of K [from, to) of a tile.
struct Piece { int tile, from, to; };

// Tiles below `whole` are computed whole, in turns; those from there on are cut into as many shares of equal numbers of
// blocks of K as there are clusters, and walked backwards: the part of a tile that another one finishes comes first, so
// that it is there when that one asks for it, and no cluster waits for one that starts after it.
struct Walk {
    int tile, step, whole, blocks;
    int from, to;
    __device__ __forceinline__ Walk(int me, int clusters, int whole_, int shared, int blocks_)
        : tile(me), step(clusters), whole(whole_), blocks(blocks_) {
        from = share(me, clusters, shared * (i64)blocks_);
        to = share(me + 1, clusters, shared * (i64)blocks_);
    }
    static __device__ __forceinline__ int share(int cluster, int clusters, i64 total) { return (int)(cluster * total / clusters); }
    __device__ __forceinline__ bool next(Piece& p) {
        if (tile < whole) {
            p.tile = tile; p.from = 0; p.to = blocks;
            tile += step;
            return true;
        }
        if (to <= from) return false;
        const int t = (to - 1) / blocks, first = max(from, t * blocks);
        p.tile = whole + t; p.from = first - t * blocks; p.to = to - t * blocks;
        to = first;
        return true;
    }
};
