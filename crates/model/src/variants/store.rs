//! Weights stored in fewer bits: those of the linear layers and experts inside the layers. The
//! embedding, the head, norms and routers stay as they are.

use crate::architecture::{Architecture, Attention, Linear, Mlp, Projections, Up};
use crate::options::WeightFormat;

/// Every weight inside the layers in `format`.
pub fn weights(arch: &mut Architecture, format: WeightFormat) -> Result<(), String> {
    if let WeightFormat::Int4 { group } = format
        && group < 1
    {
        return Err(format!("a group of {group} weights; it must be at least 1"));
    }
    let mut any = false;
    for stack in arch.stacks_mut() {
        let mut linears: Vec<&mut Linear> = Vec::new();
        for attention in stack.attention.iter_mut().chain(&mut stack.cross) {
            linears.extend(of_attention(attention));
        }
        if let Some(mlp) = &mut stack.mlp {
            linears.extend(of_mlp(mlp));
        }
        if let Some(space) = &mut stack.state_space {
            linears.extend([&mut space.input, &mut space.out]);
        }
        if let Some(experts) = &mut stack.experts {
            experts.weight = Some(format);
            if let Some(shared) = &mut experts.shared {
                linears.extend(of_mlp(&mut shared.mlp));
            }
        }
        any |= !linears.is_empty();
        for linear in linears {
            linear.stored = Some(format);
        }
    }
    if any { Ok(()) } else { Err("has no linear layers whose weights could be stored so".into()) }
}

fn of_attention(attention: &mut Attention) -> Vec<&mut Linear> {
    let mut list = match &mut attention.projections {
        Projections::Apart { q, k, v } => vec![q, k, v],
        Projections::Fused { qkv, .. } => vec![qkv],
        Projections::Latent(latent) => latent.q.iter_mut().chain([&mut latent.kv_down, &mut latent.kv_up]).collect(),
    };
    list.push(&mut attention.out);
    list
}

fn of_mlp(mlp: &mut Mlp) -> Vec<&mut Linear> {
    let mut list = match &mut mlp.up {
        Up::Gated { gate, up } => vec![gate, up],
        Up::Fused(l) | Up::Plain(l) => vec![l],
    };
    list.push(&mut mlp.down);
    list
}
