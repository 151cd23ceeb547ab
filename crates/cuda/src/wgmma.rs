//! The text of one tensor instruction: m64nNk16, of e4m3 m64nNk32, with both operands in shared memory.

use gemwright_core::DType;
use std::fmt::Write;

/// `wgmma_tile_product(d, a, b, accumulate)` for `n` columns; an operand that is `mn` lies with m or n contiguous.
pub fn header(n: u32, dtype: DType, a_mn: bool, b_mn: bool) -> String {
    let sums = n / 2;
    let (name, k) = match dtype {
        DType::F8E4m3 => ("e4m3", 32),
        DType::F16 => ("f16", 16),
        _ => ("bf16", 16),
    };
    let mut text = String::from("#pragma once\n");
    let _ = write!(
        text,
        "__device__ __forceinline__ void wgmma_tile_product(float (&d)[{sums}], u64 a, u64 b, int accumulate) {{\n    \
         asm volatile(\"{{ .reg .pred p; setp.ne.b32 p, %{}, 0;\\n\"\n        \
         \"wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{name}.{name} {{",
        sums + 2
    );
    let list = |item: &dyn Fn(u32) -> String| (0..sums).map(item).collect::<Vec<_>>().join(", ");
    // Of 8 bits k is contiguous, and there is nothing to say.
    let turned = match dtype {
        DType::F8E4m3 => String::new(),
        _ => format!(", {}, {}", u8::from(a_mn), u8::from(b_mn)),
    };
    let _ = write!(
        text,
        "{}}}, %{sums}, %{}, p, 1, 1{turned}; }}\\n\"\n        : {}\n        : \"l\"(a), \"l\"(b), \"r\"(accumulate));\n}}\n",
        list(&|i| format!("%{i}")),
        sums + 1,
        list(&|i| format!("\"+f\"(d[{i}])")),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sum_is_an_operand() {
        let text = header(16, DType::Bf16, false, true);
        assert!(text.contains("m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 1;"));
        assert!(text.contains("setp.ne.b32 p, %10, 0;"));
        assert_eq!(text.matches("+f").count(), 8);
        let text = header(8, DType::F8E4m3, false, false);
        assert!(text.contains("m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, p, 1, 1;"));
    }
}
