//! Flags of the library's call, where the name of a kernel tells them: (transa, transb), column-major.

/// As a library names its kernels: cuBLASLt's nvjet, CUTLASS, xmma, Tensile.
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

    #[test]
    fn names_of_every_library() {
        for (name, want) in [
            ("nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_bias_TNN", Some((true, false))),
            ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", Some((false, true))),
            (
                "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(x)",
                Some((true, false)),
            ),
            ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn", Some((false, false))),
            ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", Some((true, false))),
            ("Cijk_Alik_Bljk_BBS_BH_MT64x16x64", Some((true, false))),
            ("Cijk_Ailk_Bjlk_BBS_BH_MT64x16x64", Some((false, true))),
            ("void at::native::vectorized_elementwise_kernel<4>", None),
            ("nvjet", None),
        ] {
            assert_eq!(flags(name), want, "{name}");
        }
    }
}
