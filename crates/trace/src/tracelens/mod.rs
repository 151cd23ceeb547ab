//! TraceLens's own cost models, mistakes included, for `--compat tracelens`: where each operation has its
//! arguments, what that costs by TraceLens's formulas, which parameters its tables print.

mod attention;
mod convolution;
mod elementwise;
mod experts;
mod gemm;
mod given;
mod norm;
mod serving;
mod serving_attention;
pub mod triton;
mod value;

pub use gemm::is_tensile;
pub use given::Given;
pub use value::Param;

use attention::Layout;
use given::Read;
use serving::Out;

/// Why a model gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    /// TraceLens says so: the row is dropped everywhere.
    NotImplemented,
    /// Something raised: the row keeps its time only.
    Error,
}

/// FLOPs, and bytes where the types are known.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Work {
    pub flops: f64,
    pub bytes: Option<f64>,
}

/// What a call costs, and the parameters that say so.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Cost {
    pub params: Vec<(String, Param)>,
    pub forward: Option<Work>,
    pub backward: Option<Work>,
    /// Unit and precision, `matrix_bf16`.
    pub spec: Option<String>,
}

/// A model of TraceLens.
#[derive(Clone, Copy)]
pub struct Model {
    /// The sheet its rows stand in.
    pub sheet: &'static str,
    /// The category of its backward, where it has one.
    pub backward: Option<&'static str>,
    /// The model itself.
    pub cost: fn(&Given) -> Read<Cost>,
}

const fn model(sheet: &'static str, cost: fn(&Given) -> Read<Cost>) -> Model {
    Model { sheet, backward: None, cost }
}

const fn with_backward(sheet: &'static str, backward: &'static str, cost: fn(&Given) -> Read<Cost>) -> Model {
    Model { sheet, backward: Some(backward), cost }
}

macro_rules! sdpa {
    ($layout:ident) => {{
        fn cost(given: &Given) -> Read<Cost> {
            const LAYOUT: Layout = attention::$layout;
            attention::attention(given, &LAYOUT)
        }
        with_backward("SDPA", "SDPA_bwd", cost)
    }};
}

/// The model of an operation by its name.
pub fn model_of(name: &str) -> Option<Model> {
    products(name).or_else(|| layers(name)).or_else(|| elements(name)).or_else(|| engines(name))
}

fn products(name: &str) -> Option<Model> {
    Some(match name {
        "aten::mm" => model("GEMM", gemm::mm),
        "aten::addmm" => model("GEMM", gemm::addmm),
        "aten::_scaled_mm" | "trtllm::cublas_scaled_mm" | "bitsandbytes::int8_linear_matmul" => {
            model("GEMM", gemm::scaled_mm)
        }
        "aten::bmm" => model("GEMM", gemm::bmm),
        "aten::baddbmm" => model("GEMM", gemm::baddbmm),
        "tex_ts::te_gemm_ts" => model("GEMM", gemm::transformer_engine),
        "vllm::gemm_with_dynamic_quant" => model("GEMM", gemm::dynamic_quant),
        "_Linear_yfwd_mm"
        | "_LinearBackward_xgrad_mm"
        | "_LinearBackward_wgrad_mm"
        | "_LayerNormLinear_yfwd_mm"
        | "_LayerNormLinearBackward_xgrad_mm"
        | "_LayerNormLinearBackward_wgrad_mm" => model("GEMM", gemm::transformer_engine_half),
        "primus_turbo_cpp_extension::hipblaslt_gemm_fp8" | "primus_turbo::hipblaslt_gemm_fp8" => {
            model("GEMM", gemm::hipblaslt_fp8)
        }
        "primus_turbo_cpp_extension::hipblaslt_gemm_fp4" | "primus_turbo::hipblaslt_gemm_fp4" => {
            model("GEMM", gemm::hipblaslt_fp4)
        }
        "aiter::gemm_a4w4" | "aiter::_gemm_a4w4_asm" => model("GEMM", gemm::aiter_a4w4),
        "sglang_profiler::fp8_utils_gemm_a8w8_blockscale"
        | "sglang_profiler::gemm_a8w8_blockscale_gemm_a8w8_blockscale"
        | "vllm::rocm_aiter_triton_gemm_a8w8_blockscale"
        | "aiter::gemm_a8w8_blockscale_ck"
        | "aiter::gemm_a8w8_blockscale_cktile"
        | "aiter::gemm_a8w8_blockscale_bpreshuffle_ck"
        | "aiter::gemm_a8w8_blockscale_bpreshuffle_cktile"
        | "aiter::flatmm_a8w8_blockscale_asm"
        | "aiter::gfx950_a8w8_blockscale_asm"
        | "aiter::gemm_a8w8_ck"
        | "aiter::gemm_a8w8_bpreshuffle_ck"
        | "aiter::gemm_a8w8_bpreshuffle"
        | "vllm::_rocm_aiter_preshuffled_per_token_w8a8_gemm"
        | "aiter::_gemm_a8w8_blockscale_bpreshuffle_asm" => model("GEMM", serving::blockscale),
        "vllm::rocm_unquantized_gemm" => model("GEMM", serving::unquantized),
        "aiter::gemm_a16w16" => model("GEMM", |given| serving::a16w16(given, &Out::LikeFirst)),
        "aiter::gemm_a16w16_atomic_" | "sglang_profiler::gemm_kernels_flydsl_hgemm" => {
            model("GEMM", |given| serving::a16w16(given, &Out::Given))
        }
        "aiter::_gemm_a16w16_asm" => model("GEMM", |given| serving::a16w16(given, &Out::Third)),
        "aiter::gemm_afp4wfp4_" => model("GEMM", serving::afp4wfp4),
        "aiter::batched_gemm_a16wfp4_" => model("GEMM", serving::batched_a16wfp4),
        name if name.starts_with("sglang_profiler::batched_gemm_a8w8_a_per_token_group_prequant") => {
            model("GEMM", serving::batched_a8w8)
        }
        "primus_turbo::grouped_gemm"
        | "primus_turbo::grouped_gemm_impl"
        | "primus_turbo_cpp_extension::grouped_gemm"
        | "primus_turbo_cpp_extension::ck_grouped_gemm" => {
            with_backward("GroupedGEMM", "GroupedGEMM_bwd", serving::grouped)
        }
        "primus_turbo::grouped_gemm_variable_k"
        | "primus_turbo::grouped_gemm_variable_k_impl"
        | "primus_turbo_cpp_extension::grouped_gemm_variable_k"
        | "primus_turbo_cpp_extension::ck_grouped_gemm_variable_k" => {
            with_backward("GroupedGEMM", "GroupedGEMM_bwd", serving::grouped_variable)
        }
        _ => return None,
    })
}

fn layers(name: &str) -> Option<Model> {
    let norm = |cost| with_backward("Normalization", "NORM_bwd", cost);
    Some(match name {
        "aten::convolution" => with_backward("CONV", "CONV_bwd", convolution::forward),
        "aten::convolution_backward" => with_backward("CONV", "CONV_bwd", convolution::backward),
        "ConvBias_" | "ConvBiasReLU_" => with_backward("CONV", "CONV_bwd", convolution::with_bias),
        "aten::_scaled_dot_product_flash_attention" => sdpa!(ATEN_FLASH),
        "aten::_scaled_dot_product_cudnn_attention" | "aten::_scaled_dot_product_efficient_attention" => {
            sdpa!(ATEN_OTHER)
        }
        "FlashAttnFunc" | "flash_attn::_flash_attn_forward" => sdpa!(FLASH_FORWARD),
        "flash_attn::_flash_attn_backward" => sdpa!(FLASH_BACKWARD),
        "aiter::_flash_attn_forward" | "aiter::mha_fwd" | "aiter::fmha_v3_fwd" => sdpa!(AITER_FORWARD),
        "aiter::_flash_attn_backward" => sdpa!(AITER_BACKWARD),
        "aiter::wrapper_fmha_v3_fwd" => sdpa!(AITER_V3_FORWARD),
        "aiter::wrapper_fmha_v3_bwd" => sdpa!(AITER_V3_BACKWARD),
        "aiter::mha_bwd" => sdpa!(AITER_MHA_BACKWARD),
        "flash_attn_3::fwd" => sdpa!(FLASH_3),
        "flash_attn::_flash_attn_varlen_forward" => {
            with_backward("SDPA", "SDPA_bwd", |given| attention::variable(given, false))
        }
        "flash_attn::_flash_attn_varlen_backward" => {
            with_backward("SDPA", "SDPA_bwd", |given| attention::variable(given, true))
        }
        "EvoformerAttention" => with_backward("SDPA", "SDPA_bwd", attention::evoformer),
        "aiter::_groupnorm_run" => norm(norm::group),
        "primus::fused_ln_modulate" => norm(|given| norm::modulated(given, false)),
        "primus::fused_ln_modulate_backward" => norm(|given| norm::modulated(given, true)),
        "aten::_fused_rms_norm" => norm(norm::rms),
        "aten::_fused_rms_norm_backward" => norm(norm::rms_backward),
        name => return by_vendor(name),
    })
}

/// Normalisations, which every library has under its own prefix.
fn by_vendor(name: &str) -> Option<Model> {
    let plain = name.strip_prefix("aten::")?;
    let plain = ["native_", "miopen_", "cudnn_"].iter().find_map(|p| plain.strip_prefix(p)).unwrap_or(plain);
    let norm = |cost| with_backward("Normalization", "NORM_bwd", cost);
    Some(match plain {
        "batch_norm" => norm(norm::batch),
        "batch_norm_backward" => norm(norm::batch_backward),
        "layer_norm" => norm(norm::layer),
        "layer_norm_backward" => norm(norm::layer_backward),
        "group_norm" => norm(norm::group),
        "group_norm_backward" => norm(norm::group_backward),
        "instance_norm" => norm(norm::instance),
        "instance_norm_backward" => norm(|_| Err(Fail::NotImplemented)),
        "rms_norm_backward" => norm(norm::rms_backward),
        _ => return None,
    })
}

fn elements(name: &str) -> Option<Model> {
    Some(match name {
        "aten::copy" | "aten::copy_" | "aten::clamp_min" | "aten::clamp_min_" | "aten::clamp_max"
        | "aten::clamp_max_" | "aten::sigmoid" | "aten::rsqrt" | "aten::silu" | "aten::neg" | "aten::pow" => {
            model("UnaryElementwise", elementwise::unary)
        }
        "aten::div"
        | "aten::div_"
        | "aten::mul"
        | "aten::mul_"
        | "aten::add"
        | "aten::add_"
        | "aten::sigmoid_backward"
        | "aten::threshold_backward" => model("BinaryElementwise", elementwise::binary),
        "LigerSiLUMulFunction" => model("BinaryElementwise", elementwise::silu_and_product),
        "aten::replication_pad1d" | "aten::replication_pad2d" | "aten::replication_pad3d" => {
            model("UnaryElementwise", elementwise::replication_pad)
        }
        "aten::upsample_nearest1d" | "aten::upsample_nearest2d" | "aten::upsample_nearest3d" => {
            model("UnaryElementwise", elementwise::upsample)
        }
        "aten::sum" | "aten::mean" | "aten::max" | "aten::min" | "aten::norm" | "aten::linalg_norm" | "aten::std"
        | "aten::var" | "aten::logsumexp" | "aten::cumsum" | "aten::cumprod" | "aten::amin" | "aten::amax" => {
            model("Reduce", elementwise::reduce)
        }
        name if triton::is_compiled(name) => model("", triton::compiled),
        _ => return None,
    })
}

fn engines(name: &str) -> Option<Model> {
    Some(match name {
        "MoEDispatch" | "MoECombine" => with_backward("MoE_comm", "MoE_comm_bwd", serving::expert_exchange),
        "DaoAILab::_causal_conv1d_fwd_cpp" => model("SSM", serving::causal_conv1d),
        "FusedRoPEFunc" => model("RoPE", serving::fused_rope),
        "sgl_kernel::rotary_embedding" => model("RoPE", serving::rotary),
        "CrossEntropyFunction" => model("CrossEntropy", serving::cross_entropy),
        "aiter::silu_and_mul" | "_C::silu_and_mul" | "sgl_kernel::silu_and_mul" => {
            model("UnaryElementwise", |given| serving::gated(given, 5.0))
        }
        "aiter::gelu_and_mul" => model("UnaryElementwise", |given| serving::gated(given, 8.0)),
        "aiter::gelu_tanh_and_mul" => model("UnaryElementwise", |given| serving::gated(given, 10.0)),
        "aiter::dynamic_per_token_scaled_quant"
        | "aiter::dynamic_per_group_scaled_quant"
        | "aiter::dynamic_per_tensor_quant" => model("BinaryElementwise", serving::group_quant),
        "aiter::rms_norm" | "aiter::rmsnorm2d_fwd_ck" => {
            model("RMSNorm", |given| serving::rms_norm(given, 0, 1, false))
        }
        "aiter::rmsnorm" => model("RMSNorm", |given| serving::rms_norm(given, 1, 2, false)),
        "aiter::rmsnorm2d_fwd_with_add_ck" | "aiter::add_rmsnorm" => {
            model("RMSNorm", |given| serving::rms_norm(given, 1, 4, true))
        }
        "sglang::store_cache" => model("InferenceAttention", serving::store_cache),
        "vllm::unified_attention_with_output" | "aiter::mha_varlen_fwd" | "pseudo_mla_decode_fwd" => {
            model("InferenceAttention", |given| serving_attention::attention(given, None))
        }
        "aiter::fmha_v3_varlen_fwd" | "aiter::mha_batch_prefill" => {
            model("InferenceAttention", |given| serving_attention::attention(given, Some(2)))
        }
        "_C_custom_ar::all_reduce" => model("CustomCollective", serving::all_reduce),
        "aiter::moe_sorting_fwd" | "aiter::mxfp4_moe_sort_hip" | "aiter::biased_grouped_topk_hip" => {
            model("MoE_aux", serving::routing)
        }
        "aiter::ck_moe_stage1" => model("MoE_unfused", |given| experts::stage(given, true)),
        "aiter::ck_moe_stage2" => model("MoE_unfused", |given| experts::stage(given, false)),
        "aiter::moe_cktile2stages_gemm1_ck" => model("MoE_unfused", |given| experts::tile_stage(given, true)),
        "aiter::moe_cktile2stages_gemm2_ck" => model("MoE_unfused", |given| experts::tile_stage(given, false)),
        "aiter::fmoe_fp8_blockscale_g1u1" | "aiter::fmoe_g1u1" => model("MoE_fused", experts::fused),
        "sglang_profiler::fused_moe_triton_kernels_invoke_fused_moe_kernel" => {
            model("MoE_unfused", experts::triton_grouped)
        }
        "vllm::triton_per_token_group_quant_fp8" => model("BinaryElementwise", serving::token_group_quant),
        "primus_turbo_cpp_extension::quantize_fp8_tensorwise" | "primus_turbo::quantize_fp8_tensorwise" => {
            model("UnaryElementwise", |given| serving::quantised(given, false))
        }
        "primus_turbo_cpp_extension::quantize_mxfp4_dual"
        | "primus_turbo::quantize_mxfp4_dual"
        | "primus::quantize_mxfp4_dual" => model("UnaryElementwise", |given| serving::quantised(given, true)),
        _ => return None,
    })
}
