#!/usr/bin/env bash
# A record of an H200, from one binary and the lists beside this script: doctor, tiles, few rows one by one, with early start and
# in one graph, weights of 8 bits both ways, odd extents, shapes kept back; where python3 has PyTorch, experts and fused layers
# too. About seven minutes with kernels that are there already; `report.py` and `few_rows.py` print what it says.
#
#     benches/cuda/record.sh BINARY DIR
#
# On a machine without Rust: carry the binary and this folder.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: record.sh BINARY DIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
mkdir -p "$2"
into=$(realpath "$2")

# keep FILE NAME LIST... : FILE of what `bench` keeps of a list, as NAME with FILE's ending; where it draws a plot, that too.
keep() {
  local file=$1 name=$2 raw
  shift 2
  raw=$(mktemp -d)
  "$binary" bench "$@" --device cuda --quiet --record "$raw" >/dev/null
  gzip -9 -c "$raw/$file" >"$into/$name.${file#*.}.gz"
  [ "$file" = raw.json ] || cp "$raw/plot.svg" "$into/$name.svg"
  rm -r "$raw"
}
record() { keep raw.json "$@"; }
shards() { keep shards.jsonl "$@"; }

"$binary" doctor --device cuda >"$into/doctor.txt"
for rows in 1 4 8; do
  # The seven products of a layer of LLaMA-2 7B.
  list=$(mktemp --suffix=.csv)
  {
    echo flags,batch,M,N,K
    for nk in 4096,4096 4096,4096 4096,4096 4096,4096 11008,4096 11008,4096 4096,11008; do echo "TN,1,$rows,$nk"; done
  } >"$list"
  record "chain$rows" "$list" --chain --rounds 9
  rm "$list"
done
few=$here/decode-shapes.csv
record single "$few" --single --rounds 5
record early "$few" --rounds 5
record fp8-weights "$few" --single --rounds 5 --against none --fp8 weights --scales rows
record fp8-weights-early "$few" --rounds 5 --against none --fp8 weights --scales rows
record oddfew "$here/odd-few-shapes.csv" --rounds 9
record odd "$here/odd-shapes.csv" --rounds 5
record fp8-fast 8192 8192 8192 --fp8 both --rounds 9
record fp8-promoted 8192 8192 8192 --fp8 both --promoted --rounds 9

shards shards "$here/shapes.csv" --next 1 --rounds 5
shards kept "$here/kept-back-shapes.csv" --next 5 --rounds 3
if python3 -c 'import torch' 2>/dev/null; then
  python3 "$here/grouped.py" "$binary" --record "$into" --rounds 2 --models Qwen3
  python3 "$here/fused.py" "$binary" --record "$into/fused" --rounds 5
fi
