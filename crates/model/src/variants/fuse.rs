//! Projections of the same input put together: fewer and wider products with the same FLOPs.

use crate::architecture::{Architecture, Attention, Linear, Mlp, Projections, Up};
use crate::declaration::{RotaryKind, Split};

/// One product for query, key and value of every self-attention. `Err`: why the layout does not
/// allow it; `Ok(Some)`: why nothing changed.
pub fn qkv(arch: &mut Architecture) -> Result<Option<String>, String> {
    let kind = arch.model_type.clone();
    let mut note = None;
    let mut seen = false;
    for stack in arch.stacks_mut() {
        if let Some(attention) = &mut stack.attention {
            seen = true;
            note = one_projection(attention).map_err(|why| format!("qkv: {why}"))?;
        }
    }
    if !seen {
        return Err(format!("qkv: {kind} has no attention"));
    }
    Ok(note)
}

fn one_projection(attention: &mut Attention) -> Result<Option<String>, String> {
    let (q, k, v) = match &attention.projections {
        Projections::Fused { qkv, .. } => return Ok(Some(format!("--fuse qkv: {} is one product already", qkv.at))),
        Projections::Latent(_) => return Err("a latent is projected in steps, not at once".into()),
        Projections::Apart { q, k, v } => (q, k, v),
    };
    if q.bias != k.bias || q.bias != v.bias {
        let with = |l: &Linear| if l.bias { "has" } else { "has no" };
        return Err(format!("{} {} bias, {} {}: one product has one or none", q.at, with(q), k.at, with(k)));
    }
    if attention.rotary.as_ref().is_some_and(|r| r.kind == RotaryKind::PartPairsUnmoved) {
        return Err("q and k are rotated before their heads move, v is not".into());
    }
    let outputs = q.outputs + k.outputs + v.outputs;
    let qkv = Linear { at: "qkv_proj".into(), outputs, ..q.clone() };
    attention.projections = Projections::Fused { qkv, split: Split::Blocks };
    Ok(None)
}

/// One product for gate and up of every MLP.
pub fn gate_up(arch: &mut Architecture) -> Result<Option<String>, String> {
    let kind = arch.model_type.clone();
    let mut note = None;
    let mut seen = false;
    for stack in arch.stacks_mut() {
        if let Some(experts) = &stack.experts {
            note = Some(format!("--fuse gate_up: {} has gate and up in one product already", experts.stacked));
        }
        let shared = stack.experts.as_mut().and_then(|e| e.shared.as_mut()).map(|s| &mut s.mlp);
        for mlp in stack.mlp.iter_mut().chain(shared) {
            seen = true;
            note = one_up(mlp).map_err(|why| format!("gate_up: {why}"))?.or(note);
        }
    }
    if !seen {
        return Err(format!("gate_up: {kind} has no MLP"));
    }
    Ok(note)
}

fn one_up(mlp: &mut Mlp) -> Result<Option<String>, String> {
    let (gate, up) = match &mlp.up {
        Up::Fused(both) => return Ok(Some(format!("--fuse gate_up: {} is one product already", both.at))),
        Up::Plain(up) => return Err(format!("there is no gate beside {}", up.at)),
        Up::Gated { gate, up } => (gate, up),
    };
    if gate.bias != up.bias {
        return Err(format!("only one of {} and {} has a bias", gate.at, up.at));
    }
    mlp.up = Up::Fused(Linear { at: "gate_up_proj".into(), outputs: 2 * gate.outputs, ..gate.clone() });
    Ok(None)
}
