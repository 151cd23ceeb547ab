//! The category of an operation, and what a GPU event does.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Names and their categories.
fn registry() -> &'static HashMap<String, String> {
    static REGISTRY: OnceLock<HashMap<String, String>> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let table: HashMap<String, Vec<String>> =
            toml::from_str(include_str!("../categories.toml")).unwrap_or_else(|e| panic!("categories.toml: {e}"));
        table.into_iter().flat_map(|(kind, names)| names.into_iter().map(move |name| (name, kind.clone()))).collect()
    })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

/// By name, by the beginning of the name, else by the first kernel it launched.
pub fn operation(name: &[u8], first_kernel: Option<&[u8]>) -> &'static str {
    if let Some(kind) = std::str::from_utf8(name).ok().and_then(|name| registry().get(name)) {
        return kind;
    }
    for (beginning, kind) in [(&b"triton"[..], "triton"), (b"record_param_comms", "record_param_comms")] {
        if name.starts_with(beginning) {
            return kind;
        }
    }
    let native = first_kernel.filter(|kernel| kernel.starts_with(b"void at::native"));
    let by_kernel = ["elementwise", "reduce", "multi_tensor_apply"];
    native.and_then(|kernel| by_kernel.into_iter().find(|word| contains(kernel, word.as_bytes()))).unwrap_or("other")
}

/// What a GPU event does; what stands first counts where several run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Everything that is none of the others.
    Compute,
    /// Between GPUs.
    Communication,
    /// Moves data.
    Copy,
}

/// NCCL's and RCCL's kernels, and vLLM's own all-reduce.
pub fn is_communication(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    [&b"nccl"[..], b"rccl", b"cross_device_reduce"].iter().any(|part| contains(&lower, part))
}

/// ROCm shows copies as kernels of these names.
pub fn is_copy_kernel(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".kd").unwrap_or(name);
    match name.strip_prefix(b"__amd_rocclr_copyBuffer") {
        Some(rest) => matches!(rest, b"" | b"Rect" | b"Aligned" | b"RectAligned"),
        None => matches!(
            name,
            b"MEMORY_COPY_HOST_TO_DEVICE" | b"MEMORY_COPY_DEVICE_TO_HOST" | b"MEMORY_COPY_DEVICE_TO_DEVICE"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_by_name_beginning_and_kernel() {
        assert_eq!(operation(b"aten::mm", None), "GEMM");
        assert_eq!(operation(b"triton_poi_fused_add_0", None), "triton");
        assert_eq!(operation(b"aten::gelu", Some(b"void at::native::vectorized_elementwise_kernel<4>")), "elementwise");
        assert_eq!(operation(b"aten::gelu", Some(b"void other_elementwise")), "other");
    }
}
