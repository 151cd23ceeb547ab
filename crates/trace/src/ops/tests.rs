//! FLOPs and bytes worked by hand from the definition of each operation.

use super::*;
use crate::calls::Arguments;
use crate::event::Category;
use crate::{Reading, read};
use serde_json::json;

const BF16: &str = "c10::BFloat16";
const FP8: &str = "c10::Float8_e4m3fn";

/// Arguments of these sizes and types, row-major, as the profiler would write them.
fn given(sizes: &serde_json::Value, types: &[&str], values: &[&str]) -> Arguments {
    let strides: Vec<Vec<i64>> = sizes
        .as_array()
        .unwrap()
        .iter()
        .map(|size| {
            let size: Vec<i64> = size.as_array().unwrap().iter().filter_map(|n| n.as_i64()).collect();
            (1..=size.len()).map(|d| size[d..].iter().product()).collect()
        })
        .collect();
    let args = json!({"Input Dims": sizes, "Input type": types, "Input Strides": strides, "Concrete Inputs": values});
    let event = json!({"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 0, "dur": 1, "args": args});
    let trace = read(json!([event]).to_string().as_bytes(), Reading::default()).unwrap();
    assert_eq!(trace.events[0].category, Category::CpuOp);
    Arguments::of(&trace, &trace.events[0]).unwrap()
}

#[allow(clippy::needless_pass_by_value)]
fn worked(name: &str, sizes: serde_json::Value, types: &[&str], values: &[&str]) -> (f64, f64) {
    let cost =
        cost(name, &given(&sizes, types, values), Launch::default()).unwrap_or_else(|| panic!("{name} has no model"));
    let cost = cost.unwrap_or_else(|why| panic!("{name}: {why}"));
    (cost.flops, cost.bytes)
}

#[test]
fn products() {
    // 2·4·6·5; a, b and the result in two bytes.
    assert_eq!(
        worked("aten::mm", json!([[4, 5], [5, 6]]), &[BF16, BF16], &["", ""]),
        (240.0, 2.0 * (20.0 + 30.0 + 24.0))
    );
    // An addend [6] is read too; its factor 1.
    let sizes = json!([[6], [4, 5], [5, 6], [], []]);
    let types = [BF16, BF16, BF16, "Scalar", "Scalar"];
    assert_eq!(
        worked("aten::addmm", sizes, &types, &["", "", "", "1", "1"]),
        (240.0, 2.0 * (6.0 + 20.0 + 30.0 + 24.0))
    );
    // Operands of different types each by their own size, an f32 and a bf16; the result is of the first.
    assert_eq!(worked("aten::mm", json!([[4, 5], [5, 6]]), &["float", BF16], &["", ""]).1, 80.0 + 60.0 + 96.0);
    // fp8, two factors of four bytes, a result of two bytes.
    let sizes = json!([[4, 5], [5, 6], [], [], []]);
    let found = worked("aten::_scaled_mm", sizes, &[FP8, FP8, "float", "float", ""], &["", "", "", "", ""]);
    assert_eq!(found, (240.0, 20.0 + 30.0 + 4.0 + 4.0 + 48.0));
    // The same asked for in f32.
    let sizes = json!([[4, 5], [5, 6], [], [], [], [], [], []]);
    let types = [FP8, FP8, "float", "float", "", "", "Scalar", "Scalar"];
    let found = worked("aten::_scaled_mm", sizes, &types, &["", "", "", "", "", "", "6", "False"]);
    assert_eq!(found.1, 20.0 + 30.0 + 4.0 + 4.0 + 96.0);
    // A weight [N, K] with a bias.
    let found = worked("vllm::rocm_unquantized_gemm", json!([[4, 5], [6, 5], [6]]), &[BF16, BF16, BF16], &["", "", ""]);
    assert_eq!(found, (240.0, 2.0 * (20.0 + 30.0 + 6.0 + 24.0)));
    // Two values in each byte: K is twice what the sizes say.
    let packed = "c10::Float4_e2m1fn_x2";
    assert_eq!(worked("aiter::gemm_a4w4", json!([[4, 5], [6, 5]]), &[packed, packed], &["", ""]).0, 480.0);
    // Three experts [3, 5, 6] for four rows.
    let found = worked("primus_turbo::grouped_gemm", json!([[4, 5], [3, 5, 6]]), &[BF16, BF16], &["", ""]);
    assert_eq!(found, (240.0, 2.0 * (20.0 + 90.0 + 24.0)));
    // transC swaps: (B, not tB) · (A, not tA) = [5, 6]ᵀ... M = 6, K = 5, N = 4.
    let sizes = json!([[4, 5], [], [5, 6], [], [], [], [], []]);
    let found = worked(
        "primus_turbo::hipblaslt_gemm_fp8",
        sizes,
        &[FP8, "float", FP8, "float", "Scalar", "Scalar", "Scalar", "Scalar"],
        &["", "", "", "", "15", "False", "False", "True"],
    );
    assert_eq!(found.0, 2.0 * 6.0 * 4.0 * 5.0);
}

#[test]
fn convolutions() {
    let geometry = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"];
    let types = [BF16, BF16, BF16, "", "", "", "", "", ""];
    let sizes = json!([[2, 4, 14, 14], [8, 4, 3, 3], [8], [], [], [], [], [], []]);
    // 2·36 for each of 2·8·7·7 places; the bias is read.
    let out = 2.0 * 8.0 * 49.0;
    let (input, weight) = (2.0 * 4.0 * 196.0, 288.0);
    assert_eq!(worked("aten::convolution", sizes, &types, &geometry), (72.0 * out, 2.0 * (input + weight + 8.0 + out)));
    // Transposed: a filter [in, out, 3, 3] over the smaller image; (7 - 1)·2 - 2 + 2 + 1 + 1 = 14.
    let geometry = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[1, 1]", "1"];
    let sizes = json!([[2, 8, 7, 7], [8, 4, 3, 3], [], [], [], [], [], [], []]);
    let types = [BF16, BF16, "", "", "", "", "", "", ""];
    assert_eq!(worked("aten::convolution", sizes, &types, &geometry), (72.0 * out, 2.0 * (input + weight + out)));
    // Only the weight's gradient is wanted.
    let sizes = json!([[2, 8, 7, 7], [2, 4, 14, 14], [8, 4, 3, 3], [], [], [], [], [], [], [], []]);
    let types = [BF16, BF16, BF16, "", "", "", "", "", "", "", ""];
    let values = ["", "", "", "[8]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[False, True, False]"];
    let found = worked("aten::convolution_backward", sizes, &types, &values);
    assert_eq!(found, (72.0 * out, 2.0 * (out + input + weight)));
}

#[test]
fn attention() {
    let types = [BF16, BF16, BF16, "Scalar", "Scalar", "Scalar"];
    let sizes = json!([[2, 10, 8, 64], [2, 30, 2, 64], [2, 30, 2, 64], [], [], []]);
    let tensors = 2.0 * (2.0 * 10.0 * 8.0 * 64.0 * 2.0 + 2.0 * 30.0 * 2.0 * 64.0 * 2.0);
    let name = "flash_attn::_flash_attn_forward";
    // 2·8 heads of batch 2, 10·30 pairs, 64 + 64 wide.
    let found = worked(name, sizes.clone(), &types, &["", "", "", "0.", "0.1", "False"]);
    assert_eq!(found, (2.0 * 16.0 * 300.0 * 128.0, tensors));
    // Causal, aligned below: queries see 21, 22, ..., 30 keys, 255 pairs.
    let found = worked(name, sizes, &types, &["", "", "", "0.", "0.1", "True"]);
    assert_eq!(found.0, 2.0 * 16.0 * 255.0 * 128.0);
    // ATen's causal mask is aligned above: 10·11/2 pairs of 10 queries and 10 keys.
    let sizes = json!([[2, 8, 10, 64], [2, 8, 10, 64], [2, 8, 10, 64], [], [], [], []]);
    let types = [BF16, BF16, BF16, "Scalar", "Scalar", "Scalar", "Scalar"];
    let values = ["", "", "", "0.", "True", "False", ""];
    let found = worked("aten::_scaled_dot_product_flash_attention", sizes, &types, &values);
    assert_eq!(found, (2.0 * 16.0 * 55.0 * 128.0, 2.0 * 4.0 * 2.0 * 8.0 * 10.0 * 64.0));
    // Three sequences of 10 queries in all, the longest 6: 36 + 2·2² pairs.
    let sizes = json!([[10, 8, 64], [10, 8, 64], [10, 8, 64], [4], [4], [], [], [], [], []]);
    let types = [BF16, BF16, BF16, "int", "int", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar"];
    let values = ["", "", "", "", "", "6", "6", "0.", "0.1", "False"];
    let found = worked("flash_attn::_flash_attn_varlen_forward", sizes, &types, &values);
    assert_eq!(found.0, 2.0 * 8.0 * (36.0 + 8.0) * 128.0);
}

#[test]
fn elementwise_and_reductions() {
    // A row is broadcast over three: 3·4 sums, 12 + 4 elements read, 12 written.
    let found = worked("aten::add", json!([[3, 4], [4], []]), &[BF16, BF16, "Scalar"], &["", "", "1"]);
    assert_eq!(found, (12.0, 2.0 * (12.0 + 4.0 + 12.0)));
    // In place the first is read and written.
    assert_eq!(worked("aten::mul_", json!([[3, 4], [3, 4]]), &["float", BF16], &["", ""]), (12.0, 48.0 + 24.0 + 48.0));
    // A number changes nothing.
    assert_eq!(worked("aten::mul", json!([[3, 4], []]), &[BF16, "double"], &["", ""]), (12.0, 24.0 + 8.0 + 24.0));
    assert_eq!(worked("aten::gt", json!([[3, 4], []]), &["float", "Scalar"], &["", "0"]), (12.0, 48.0 + 12.0));
    assert_eq!(worked("aten::silu", json!([[3, 4]]), &[BF16], &[""]), (48.0, 48.0));
    // The mean over the last of (16, 559, 1024): 8,944 are left.
    let values = ["", "[-1]", "False", ""];
    let found =
        worked("aten::mean", json!([[16, 559, 1024], [], [], []]), &["float", "ScalarList", "Scalar", ""], &values);
    assert_eq!(found, (9_158_656.0, 4.0 * (9_158_656.0 + 8_944.0)));
    assert_eq!(worked("aten::sum", json!([[3, 4], []]), &["float", ""], &["", ""]), (12.0, 4.0 * 13.0));
    assert_eq!(worked("aten::cumsum", json!([[3, 4], [], []]), &["long int", "Scalar", ""], &["", "1", ""]).1, 192.0);
}

#[test]
fn rows_and_norms() {
    assert_eq!(
        worked("aten::_softmax", json!([[3, 4], [], []]), &["float", "", ""], &["", "-1", "False"]),
        (60.0, 96.0)
    );
    let sizes = json!([[3, 4], [], [4], [4], []]);
    let types = [BF16, "ScalarList", BF16, BF16, "Scalar"];
    let found = worked("aten::native_layer_norm", sizes, &types, &["", "[4]", "", "", "1e-5"]);
    assert_eq!(found, (96.0, 2.0 * (12.0 + 12.0 + 4.0 + 4.0)));
    // Batch norm with means of its own, and with kept ones.
    let sizes = json!([[2, 3, 4, 4], [3], [3], [3], [3], [], [], []]);
    let types = [BF16, BF16, BF16, "float", "float", "Scalar", "Scalar", "Scalar"];
    let values = |training| ["", "", "", "", "", training, "0.1", "1e-5"];
    let bytes = 2.0 * (96.0 + 96.0 + 3.0 + 3.0) + 4.0 * 6.0;
    assert_eq!(worked("aten::native_batch_norm", sizes.clone(), &types, &values("True")), (8.0 * 96.0, bytes));
    assert_eq!(worked("aten::native_batch_norm", sizes, &types, &values("False")), (4.0 * 96.0, bytes));
    // Input and residual read, both written.
    let found =
        worked("_C::fused_add_rms_norm", json!([[3, 4], [3, 4], [4], []]), &[BF16, BF16, BF16, ""], &["", "", "", ""]);
    assert_eq!(found, (60.0, 2.0 * (48.0 + 4.0)));
    assert_eq!(
        worked("_C::silu_and_mul", json!([[3, 4], [3, 8]]), &[BF16, BF16], &["", ""]),
        (60.0, 2.0 * (12.0 + 24.0))
    );
}

#[test]
fn movement() {
    assert_eq!(
        worked("aten::copy_", json!([[3, 4], [3, 4], []]), &[BF16, "float", ""], &["", "", ""]),
        (0.0, 24.0 + 48.0)
    );
    assert_eq!(worked("aten::fill_", json!([[3, 4], []]), &["float", "Scalar"], &["", "0"]), (0.0, 48.0));
    // Two rows of five of a table of 7: ten read, ten written, two numbers of eight bytes.
    assert_eq!(worked("aten::embedding", json!([[7, 5], [2]]), &[BF16, "long int"], &["", ""]), (0.0, 40.0 + 16.0));
    let arguments = given(&json!([[[3, 4], [2, 4]], []]), &["TensorList", "Scalar"], &["", "0"]);
    let kernel = "void CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 2>";
    let found = cost("aten::cat", &arguments, Launch { kernel, grid: None }).unwrap().unwrap();
    assert_eq!((found.flops, found.bytes), (0.0, 2.0 * 2.0 * 20.0));
    assert!(cost("aten::cat", &arguments, Launch::default()).unwrap().is_err());
    // The two largest of each of three rows: values of four bytes and places of eight.
    let found = worked(
        "aten::topk",
        json!([[3, 4], [], [], [], []]),
        &["float", "", "", "", ""],
        &["", "2", "-1", "True", "True"],
    );
    assert_eq!(found, (12.0, 48.0 + 6.0 * 12.0));
}

/// What `aten::index` moves by the grid of its kernel.
#[allow(clippy::needless_pass_by_value)]
fn indexed(sizes: serde_json::Value, kernel: &str, grid: [u64; 3]) -> Option<f64> {
    let arguments = given(&sizes, &[BF16, ""], &["", ""]);
    cost("aten::index", &arguments, Launch { kernel, grid: Some(grid) }).unwrap().ok().map(|cost| cost.bytes)
}

#[test]
fn picked_by_indices() {
    let gather = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)";
    // Three experts of 4 x 1024: 8192 bytes each are two blocks of 256 threads of 16 bytes.
    assert_eq!(indexed(json!([[8, 4, 1024], []]), gather, [3, 2, 1]), Some(2.0 * 3.0 * 8192.0 + 24.0));
    // One slice is a single row where a block is enough for it, two extents being picked from.
    assert_eq!(indexed(json!([[8, 4, 1024], []]), gather, [5, 1, 1]), Some(2.0 * 5.0 * 2048.0 + 40.0));
    assert_eq!(indexed(json!([[8, 4, 1024], []]), gather, [5, 7, 1]), None);
    // Six times out of two: all of it is read once.
    assert_eq!(indexed(json!([[2, 1024], []]), gather, [6, 1, 1]), Some(6.0 * 2048.0 + 2.0 * 2048.0 + 48.0));
    let single = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::X>>";
    // Between 2561 and 3072 elements: one row of 2880 fits, and no other number of rows.
    assert_eq!(indexed(json!([[888, 2880], []]), single, [6, 1, 1]), Some(2.0 * 2880.0 * 2.0 + 8.0));
    // Single elements: to within a block.
    assert_eq!(indexed(json!([[8192], []]), single, [16, 1, 1]), Some(2.0 * 8192.0 * 2.0 + 8.0 * 8192.0));
    assert_eq!(indexed(json!([[8192], []]), "something_else", [16, 1, 1]), None);
    // One value of two bytes to three rows of 512.
    let arguments = given(&json!([[9, 512], [], [1], []]), &[BF16, "", BF16, "Scalar"], &["", "", "", "False"]);
    let launch = Launch { kernel: single, grid: Some([3, 1, 1]) };
    let found = cost("aten::index_put_", &arguments, launch).unwrap().unwrap();
    assert_eq!((found.flops, found.bytes), (0.0, 3.0 * 512.0 * 2.0 + 2.0 + 24.0));
    // Two rows of five are read, added to two others and written.
    let sizes = json!([[7, 5], [], [2], [2, 5], []]);
    let found =
        worked("aten::index_add_", sizes, &["float", "Scalar", "long int", "float", ""], &["", "0", "", "", "1"]);
    assert_eq!(found, (10.0, 3.0 * 40.0 + 16.0));
}

#[test]
fn compiled_kernels() {
    let types = [BF16, BF16, BF16, "Scalar"];
    let found = worked("triton_poi_fused_add_mul_3", json!([[3, 4], [3, 4], [3, 4], []]), &types, &["", "", "", "12"]);
    assert_eq!(found, (24.0, 72.0));
}

#[test]
fn what_has_no_model_has_a_reason() {
    assert!(opaque::reason("vllm::moe_forward").is_some() && opaque::reason("aten::index_put_").is_some());
    assert!(opaque::reason("aten::index_select").is_none() && opaque::reason("aten::mm").is_none());
}
