//! Operations that have no cost model, and why none can be had from a trace.

/// Beginnings of names, and the reason.
const OPAQUE: [(&str, &str); 15] = [
    ("vllm::moe_forward", "which experts each token goes to is on the GPU, and the weights are no arguments"),
    (
        "vllm::unified_attention",
        "lengths of the sequences are on the GPU; an annotation that tells them was not recorded",
    ),
    ("aiter::mha_batch_prefill", "lengths of the sequences are on the GPU"),
    ("aiter::mha_varlen_fwd", "lengths of the sequences are on the GPU"),
    ("aiter::fmha_v3_varlen_fwd", "lengths of the sequences are on the GPU"),
    ("aiter::pa_", "lengths of the sequences are on the GPU"),
    ("symm_mem::", "an exchange between GPUs"),
    ("c10d::", "an exchange between GPUs"),
    ("record_param_comms", "an exchange between GPUs"),
    ("nccl:", "an exchange between GPUs"),
    ("_C_custom_ar::", "an exchange between GPUs"),
    ("aten::_fused_adam", "the profiler records no sizes of lists of tensors this long"),
    ("aten::_foreach_", "the profiler records no sizes of lists of tensors this long"),
    ("triton_tem_", "a template of torch.compile: its arguments do not say which is which"),
    ("aten::index", "the sizes of its indices are not recorded, and its kernel's grid does not tell them"),
];

/// Why an operation has no model, if it is one of those.
pub fn reason(name: &str) -> Option<&'static str> {
    // Rows picked by one index are no part of it.
    if name == "aten::index_select" {
        return None;
    }
    OPAQUE.iter().find(|(start, _)| name.starts_with(start)).map(|(_, why)| *why)
}
