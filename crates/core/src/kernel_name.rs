//! What the name of a kernel tells: what kind of work it does, its tile, its element type, the flags
//! of the library's call. Libraries name their kernels for whoever tunes them, so much can be told.

use crate::DType;

/// What a kernel does for a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Multiplies matrices.
    Product,
    /// Finishes a product that another kernel began: adds up the parts of a split K.
    ProductRest,
    /// Attention in one kernel.
    Attention,
    /// Attention's gradients.
    AttentionBackward,
    /// Prepares or finishes attention: joins parts, converts, sums up.
    AttentionRest,
    /// A convolution.
    Convolution,
}

impl Role {
    /// It does the work itself, where others only prepare or finish it.
    pub fn is_main(self) -> bool {
        !matches!(self, Role::ProductRest | Role::AttentionRest)
    }
}

/// Words that mark a role; the first that is in the name decides.
const ROLES: [(Role, &[&str]); 6] = [
    (Role::AttentionRest, &["splitkv_combine", "lean_reduction", "dot_do_o", "convert_dq", "fmha_bwd_dot"]),
    (Role::AttentionBackward, &["flash_bprop", "flash_bwd", "fmha_bwd", "fmha_cutlassB"]),
    (Role::Attention, &["sdpa", "fmha", "flash_fwd", "flash_attn", "attn_fwd", "paged_attention", "flex_attention"]),
    (Role::ProductRest, &["splitKreduce", "splitk_reduce", "PostGSU", "reduce_1Block", "prepare_grouped_gemm"]),
    (Role::Convolution, &["implicit_gemm", "fprop", "dgrad", "wgrad", "implicit_convolve", "winograd"]),
    (Role::Product, PRODUCTS),
];

const PRODUCTS: &[&str] =
    &["nvjet", "cutlass", "gemm", "GEMM", "gemv", "dot_kernel", "Cijk_", "wvSplitK", "triton_tem_"];

/// The work a kernel of this name does, where that is part of a product.
///
/// ```
/// # use gemwright_core::kernel_name::{Role, role};
/// assert_eq!(role("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT"), Some(Role::Product));
/// assert_eq!(role("void cublasLt::splitKreduce_kernel<32, 16, int, float>"), Some(Role::ProductRest));
/// assert_eq!(role("void at::native::elementwise_kernel<128, 4>"), None);
/// ```
pub fn role(kernel: &str) -> Option<Role> {
    ROLES.iter().find(|(_, words)| words.iter().any(|word| kernel.contains(word))).map(|(role, _)| *role)
}

/// The tile one block computes, of the column-major product: first along our N, second along our M.
pub fn tile(kernel: &str) -> Option<(u64, u64)> {
    let pair = |word: &str| {
        let mut numbers = word.split('x').map(|n| n.parse::<u64>().ok().filter(|n| *n > 0));
        Some((numbers.next()??, numbers.next()??))
    };
    let words = kernel.split(['_', '<', '>', '(', ' ', ',']);
    words.into_iter().find_map(|word| {
        let bare = word.strip_prefix("MT").or_else(|| word.strip_prefix("tilesize")).unwrap_or(word);
        pair(bare)
    })
}

/// The element type that is multiplied.
pub fn dtype(kernel: &str) -> Option<DType> {
    if let Some(rest) = kernel.strip_prefix("nvjet_") {
        return rest.split('_').find_map(|word| match word.as_bytes().first() {
            Some(b't') if word.starts_with("ts") => Some(DType::Bf16),
            Some(b'h') if word.starts_with("hs") => Some(DType::F16),
            Some(b's') if word.starts_with("ss") => Some(DType::F32),
            Some(b'q') if word.starts_with("qq") => Some(DType::F8E4m3),
            _ => None,
        });
    }
    if kernel.starts_with("Cijk_") {
        let words = [("_BBS_", DType::Bf16), ("_BSS_", DType::Bf16), ("_HHS_", DType::F16), ("_HSS_", DType::F16)];
        let more = [("_SB_", DType::F32), ("_S_B_", DType::F32), ("_DB_", DType::F64)];
        return words.into_iter().chain(more).find(|(word, _)| kernel.contains(word)).map(|(_, dtype)| dtype);
    }
    // CUTLASS and its kin: the operands' type stands before the instruction's.
    let words = [
        ("bf16_s", DType::Bf16),
        ("bf16bf16", DType::Bf16),
        ("f16_s1", DType::F16),
        ("h16816gemm", DType::F16),
        ("h1688gemm", DType::F16),
        ("f16f16_f16", DType::F16),
        ("sgemm", DType::F32),
        ("dgemm", DType::F64),
    ];
    words.into_iter().find(|(word, _)| kernel.contains(word)).map(|(_, dtype)| dtype)
}

/// (transa, transb) of the column-major call: cuBLASLt's nvjet, CUTLASS, xmma, Tensile.
pub fn flags(kernel: &str) -> Option<(bool, bool)> {
    if kernel.starts_with("nvjet") {
        return letters(kernel.rsplit('_').next()?);
    }
    if let Some(flags) = tensile(kernel) {
        return Some(flags);
    }
    let words = kernel.split(['_', '<', '>', '(', ' ', ',']).map(str::trim);
    let named = ["cutlass", "gemm", "xmma"].iter().any(|word| kernel.contains(word));
    words.filter(|_| named).find_map(|word| match word {
        "tn" => Some((true, false)),
        "nn" => Some((false, false)),
        "nt" => Some((false, true)),
        "tt" => Some((true, true)),
        _ => None,
    })
}

/// `TNN`: the first two are the operands'.
fn letters(word: &str) -> Option<(bool, bool)> {
    let flag = |c: u8| match c {
        b'T' => Some(true),
        b'N' => Some(false),
        _ => None,
    };
    let bytes = word.as_bytes();
    Some((flag(*bytes.first()?)?, flag(*bytes.get(1)?)?))
}

/// `Cijk_Alik_Bljk`: the order of the indices.
fn tensile(kernel: &str) -> Option<(bool, bool)> {
    let a = match () {
        () if kernel.contains("_Alik_") => true,
        () if kernel.contains("_Ailk_") => false,
        () => return None,
    };
    let b = match () {
        () if kernel.contains("_Bjlk_") => true,
        () if kernel.contains("_Bljk_") => false,
        () => return None,
    };
    Some((a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIAS: &str = "nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_bias_TNN";
    const CUTLASS: &str = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(x)";
    const XMMA: &str = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64";
    const TENSILE: &str = "Cijk_Alik_Bljk_BBS_BH_MT64x16x64";
    const SINGLE: &str = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_tn_align1>(y)";

    #[test]
    fn flags_of_every_library() {
        for (name, want) in [
            (BIAS, Some((true, false))),
            ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", Some((false, true))),
            (CUTLASS, Some((true, false))),
            ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn", Some((false, false))),
            (XMMA, Some((true, false))),
            (TENSILE, Some((true, false))),
            ("Cijk_Ailk_Bjlk_BBS_BH_MT64x16x64", Some((false, true))),
            ("void at::native::vectorized_elementwise_kernel<4>", None),
            ("nvjet", None),
        ] {
            assert_eq!(flags(name), want, "{name}");
        }
    }

    #[test]
    fn tiles_and_types() {
        for (name, size, kind) in [
            (BIAS, Some((192, 192)), Some(DType::Bf16)),
            (CUTLASS, Some((256, 128)), Some(DType::Bf16)),
            (XMMA, Some((64, 64)), Some(DType::Bf16)),
            (TENSILE, Some((64, 16)), Some(DType::Bf16)),
            (SINGLE, Some((128, 32)), Some(DType::F32)),
            ("nvjet_sm90_hsh_64x8_64x16_2x1_v_bz_TNT", Some((64, 8)), Some(DType::F16)),
            ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_nn", Some((128, 64)), None),
            ("void gemv2T_kernel_val<int, int, float>", None, None),
        ] {
            assert_eq!((tile(name), dtype(name)), (size, kind), "{name}");
        }
    }

    #[test]
    fn attention_is_told_from_its_preparation() {
        for (name, want) in [
            ("cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35", Role::Attention),
            ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7", Role::AttentionBackward),
            ("void cudnn::fusion::compute_dot_do_o_specialized<true, 128>", Role::AttentionRest),
            ("void pytorch_flash::flash_fwd_splitkv_combine_kernel<x>", Role::AttentionRest),
            ("void pytorch_flash::flash_fwd_splitkv_kernel<x>", Role::Attention),
            ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", Role::Attention),
            ("sm90_xmma_fprop_implicit_gemm_bf16", Role::Convolution),
        ] {
            assert_eq!(role(name), Some(want), "{name}");
        }
    }
}
