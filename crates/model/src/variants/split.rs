//! Layers split over GPUs (tensor parallelism): what one of them holds and multiplies.
//!
//! Columns: the projections of queries, keys and values by heads, gate and up, the vocabulary of the
//! embedding and of the head. Rows: what comes after them, whose results are summed over all GPUs.
//! Norms, routers, positions and the projections into a latent are on each.

use crate::architecture::{Architecture, Attention, Linear, Mlp, Projections, Stack, Up};

/// One GPU's part of `arch`, split over `ranks`.
pub fn over(arch: &mut Architecture, ranks: i64) -> Result<(), String> {
    if !(1..=MOST_RANKS).contains(&ranks) {
        return Err(format!("is {ranks}; it must be from 1 to {MOST_RANKS}"));
    }
    let kind = arch.model_type.clone();
    for stack in arch.stacks_mut() {
        one_stack(stack, ranks).map_err(|why| format!("{ranks}: {kind}: {why}"))?;
    }
    Ok(())
}

/// More GPUs than share a layer.
const MOST_RANKS: i64 = 1 << 10;

fn one_stack(stack: &mut Stack, ranks: i64) -> Result<(), String> {
    if stack.stages.is_some() || stack.state_space.is_some() || stack.condition.is_some() {
        return Err("how its layers would be split is not known here".into());
    }
    for attention in stack.attention.iter_mut().chain(&mut stack.cross) {
        heads(attention, ranks)?;
    }
    if let Some(mlp) = &mut stack.mlp {
        feed(mlp, ranks)?;
    }
    if let Some(experts) = &mut stack.experts {
        experts.inner = share("an expert's inner size", experts.inner, ranks)?;
        if let Some(shared) = &mut experts.shared {
            feed(&mut shared.mlp, ranks)?;
        }
    }
    // A vocabulary that does not divide is padded.
    let part = |n: i64| (n + ranks - 1) / ranks;
    if let Some((_, rows)) = &mut stack.tokens {
        *rows = part(*rows);
    }
    if stack.pooled.is_none()
        && let Some(head) = &mut stack.head
    {
        head.outputs = part(head.outputs);
    }
    stack.ranks = ranks;
    Ok(())
}

fn share(what: &str, n: i64, ranks: i64) -> Result<i64, String> {
    if n % ranks == 0 { Ok(n / ranks) } else { Err(format!("{what} of {n} cannot be split into {ranks}")) }
}

fn heads(attention: &mut Attention, ranks: i64) -> Result<(), String> {
    let own = share("the query heads", attention.heads, ranks)?;
    // Fewer key heads than GPUs: several hold the same one.
    let kv_heads = attention.kv_heads;
    let own_kv = if ranks > kv_heads {
        match ranks % kv_heads {
            0 => 1,
            _ => return Err(format!("{kv_heads} key heads cannot be repeated on {ranks} GPUs")),
        }
    } else {
        share("the key heads", kv_heads, ranks)?
    };
    let (width, kv_width) = (own * attention.head_dim, own_kv * attention.head_dim);
    attention.out.inputs = width;
    match &mut attention.projections {
        Projections::Apart { q, k, v } => {
            q.outputs = width;
            k.outputs = kv_width;
            v.outputs = kv_width;
        }
        Projections::Fused { qkv, .. } => qkv.outputs = width + 2 * kv_width,
        Projections::Latent(latent) => {
            if let Some(up) = latent.q.last_mut() {
                up.outputs = own * (latent.plain + latent.rotated);
            }
            latent.kv_up.outputs = own * (latent.plain + latent.value);
            attention.out.inputs = own * latent.value;
        }
    }
    attention.ranks = ranks;
    attention.heads = own;
    attention.kv_heads = own_kv;
    Ok(())
}

fn feed(mlp: &mut Mlp, ranks: i64) -> Result<(), String> {
    let inner = share("an MLP's inner size", mlp.down.inputs, ranks)?;
    mlp.down.inputs = inner;
    let set = |l: &mut Linear, outputs: i64| l.outputs = outputs;
    match &mut mlp.up {
        Up::Gated { gate, up } => {
            set(gate, inner);
            set(up, inner);
        }
        Up::Fused(both) => set(both, 2 * inner),
        Up::Plain(up) => set(up, inner),
    }
    Ok(())
}
