//! A linear layer in ten lines: y\[m, n\] = x\[m, k\] · w\[n, k\]ᵀ, with the best kernel of this machine.

use gemwright_core::DType;
use gemwright_engine::{Multiply, MultiplyError, Problem};

fn main() -> Result<(), MultiplyError> {
    let (m, n, k) = (3, 4, 5);
    let x: Vec<f32> = (0..m * k).map(|i| i as f32).collect();
    let w: Vec<f32> = (0..n * k).map(|i| (i % 7) as f32).collect();
    let mut y = vec![0f32; m * n];
    let layer = Multiply::new(Problem::linear(m as u64, n as u64, k as u64, DType::F32), 2)?;
    layer.run(&x, &w, &mut y)?;
    for row in y.chunks(n) {
        eprintln!("{row:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_runs() {
        super::main().expect("the kernel takes this product");
    }
}
