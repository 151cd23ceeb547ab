//! The parts of a stack that run one after the other, each on a tape of its own.

use crate::architecture::{Attention, Layer, Stack};
use crate::blocks::{
    Run, angles, attention, condition, cross_attention, cut_image, experts, join, linear, mlp, modulate, norm,
    read_features, stages, state_space,
};
use crate::declaration::Pooled;
use crate::options::Logits;
use crate::tape::{Tape, Var};
use gemwright_core::{Call, Collective, Pass, View, Workload};

/// What passes between the parts: a row a token, or one a sample where convolutions read an image.
fn hidden_state(stack: &Stack, run: &Run) -> View {
    match stack.stages {
        Some(_) => View::contiguous(&[run.batch, stack.hidden], run.dtype),
        None => View::contiguous(&[run.batch, run.queries, stack.hidden], run.dtype),
    }
}

/// A part of the model with its tape, from what comes in to what goes out. What passes between
/// the parts is always row-major, so each can be run on its own.
pub struct Piece {
    tape: Tape,
    input: Var,
    output: Var,
}

impl Piece {
    /// Everything the forward pass issues, so many times over.
    pub fn forward_into(&self, workload: &mut Workload, times: u64) {
        self.issue_into(workload, times, None);
    }

    /// The same again in the backward pass.
    pub fn recompute_into(&self, workload: &mut Workload, times: u64) {
        self.issue_into(workload, times, Some(Pass::Recompute));
    }

    fn issue_into(&self, workload: &mut Workload, times: u64, pass: Option<Pass>) {
        for call in self.tape.calls() {
            match pass {
                Some(pass) => workload.push_times(&Call { pass, ..call.clone() }, times),
                None => workload.push_times(call, times),
            }
        }
        for exchange in self.tape.collectives() {
            let pass = pass.unwrap_or(exchange.pass);
            workload.push_collective(&Collective { pass, ..exchange.clone() }, times);
        }
    }

    /// Everything the backward pass issues, for a row-major gradient.
    pub fn backward_into(&mut self, workload: &mut Workload, times: u64) {
        let (calls, exchanges) = (self.tape.calls().len(), self.tape.collectives().len());
        let view = self.tape.view(self.output);
        let gradient = View::contiguous(&view.size, view.dtype);
        let reached = self.tape.backward(self.output, gradient, self.input);
        debug_assert!(reached.is_none_or(|g| g.is_contiguous()), "a gradient leaves its part row-major");
        for call in &self.tape.calls()[calls..] {
            workload.push_times(call, times);
        }
        for exchange in &self.tape.collectives()[exchanges..] {
            workload.push_collective(exchange, times);
        }
    }
}

/// What comes before the layers: the angles, and a projection of narrow embeddings.
pub fn stem(stack: &Stack, run: &Run) -> Piece {
    let mut tape = Tape::new(run.training);
    if let Some(rotary) = stack.attention.as_ref().and_then(|a| a.rotary.as_ref()) {
        let slides = |slides: bool| stack.layers.iter().any(|l| l.window.is_some() == slides);
        let times = if rotary.per_layer_type { usize::from(slides(true)) + usize::from(slides(false)) } else { 1 };
        (0..times).for_each(|_| angles(&mut tape, rotary, run));
    }
    if let Some(facts) = &stack.stages {
        let (input, images) = stages(&mut tape, facts, run);
        let output = tape.mean_of_images(images);
        return Piece { tape, input, output };
    }
    if let Some(patches) = &stack.patches {
        let (input, output) = cut_image(&mut tape, patches, stack.hidden, run);
        return Piece { tape, input, output };
    }
    if let Some(features) = &stack.features {
        let (input, output) = read_features(&mut tape, features, run);
        return Piece { tape, input, output };
    }
    let tokens = View::contiguous(&[run.batch, run.queries, stack.token_width], run.dtype);
    let input = tape.input(tokens);
    let output = match &stack.project_in {
        Some(projection) => linear(&mut tape, input, projection, &join("", &projection.at), run.dtype),
        None => input,
    };
    // Each GPU looks up the tokens it holds.
    if let (true, Some(tokens)) = (stack.ranks > 1, &stack.looked_up) {
        tape.enter(&join("", tokens));
        tape.all_reduce(input);
    }
    Piece { tape, input, output }
}

pub fn one_layer(stack: &Stack, layer: &Layer, run: &Run) -> Piece {
    let mut tape = Tape::new(run.training);
    let input = tape.input(hidden_state(stack, run));
    let output = block(&mut tape, input, stack, layer, run);
    debug_assert!(tape.view(output).is_contiguous());
    Piece { tape, input, output }
}

fn block(tape: &mut Tape, x: Var, stack: &Stack, layer: &Layer, run: &Run) -> Var {
    let path = join(&stack.layers_at, "*");
    let facts = &stack.block;
    let normed = |tape: &mut Tape, x: Var, name: &Option<String>| match name {
        // It keeps the residual stream row-major: without a backward pass there is nothing to record.
        Some(_) if run.training => norm(tape, x, stack.norm),
        _ => x,
    };
    let mix = |tape: &mut Tape, x: Var| match (&stack.attention, &stack.state_space) {
        (Some(attends), _) => attention(tape, x, attends, layer, &path, run),
        (None, Some(space)) => state_space(tape, x, space, &path, run),
        (None, None) => panic!("a layer has attention or a state space"),
    };
    let feed = |tape: &mut Tape, x: Var| match (&stack.experts, &stack.mlp) {
        (Some(facts), _) if layer.sparse => experts(tape, x, facts, &path, run),
        (_, Some(facts)) => mlp(tape, x, facts, &path, run.dtype),
        (_, None) => panic!("asked for only where there is one"),
    };
    if let Some(steers) = &stack.condition {
        let rows = condition(tape, steers, &path, (&steers.layer, &path), run);
        let [shift, scale, gate, mlp_shift, mlp_scale, mlp_gate] = rows[..] else { panic!("a layer has six rows") };
        let before = norm(tape, x, stack.norm);
        let before = modulate(tape, before, shift, scale);
        let found = mix(tape, before);
        let found = tape.mul(gate, found);
        let x = tape.add(found, x);
        let before = norm(tape, x, stack.norm);
        let before = modulate(tape, before, mlp_shift, mlp_scale);
        let fed = feed(tape, before);
        let fed = tape.mul(mlp_gate, fed);
        return tape.add(fed, x);
    }
    let cross = |tape: &mut Tape, x: Var, facts: &Attention| {
        let x = shared_out(tape, x, stack);
        let found = cross_attention(tape, x, facts, layer, &path, run);
        summed(tape, found, stack)
    };
    if facts.norm_after_residual {
        let before = shared_out(tape, x, stack);
        let found = mix(tape, before);
        let found = summed(tape, found, stack);
        let x = tape.add(x, found);
        let mut x = normed(tape, x, &facts.attention_norm);
        if let Some(attends) = &stack.cross {
            let found = cross(tape, x, attends);
            x = tape.add(x, found);
            x = normed(tape, x, &facts.cross_norm);
        }
        let before = shared_out(tape, x, stack);
        let fed = feed(tape, before);
        let fed = summed(tape, fed, stack);
        let x = tape.add(x, fed);
        return normed(tape, x, &facts.mlp_norm);
    }
    let before = normed(tape, x, &facts.attention_norm);
    let before = shared_out(tape, before, stack);
    let found = mix(tape, before);
    if facts.parallel && stack.ranks > 1 {
        // What both parts add is summed over the GPUs at once.
        let mlp_input = match &facts.mlp_norm {
            None => before,
            name => {
                let x = normed(tape, x, name);
                shared_out(tape, x, stack)
            }
        };
        let fed = feed(tape, mlp_input);
        let both = tape.add(found, fed);
        let both = summed(tape, both, stack);
        return tape.add(x, both);
    }
    let found = summed(tape, found, stack);
    let found = normed(tape, found, &facts.attention_after);
    let mut residual = tape.add(x, found);
    if let Some(attends) = &stack.cross {
        let before = normed(tape, residual, &facts.cross_norm);
        let found = cross(tape, before, attends);
        residual = tape.add(residual, found);
    }
    if stack.mlp.is_none() {
        return residual;
    }
    let mlp_input = match (facts.parallel, &facts.mlp_norm) {
        (true, None) => before,
        (true, name) => normed(tape, x, name),
        (false, name) => normed(tape, residual, name),
    };
    let mlp_input = shared_out(tape, mlp_input, stack);
    let fed = feed(tape, mlp_input);
    let fed = summed(tape, fed, stack);
    let fed = normed(tape, fed, &facts.mlp_after);
    tape.add(residual, fed)
}

/// What every GPU reads, where layers are split.
fn shared_out(tape: &mut Tape, x: Var, stack: &Stack) -> Var {
    if stack.ranks > 1 { tape.each_rank(x) } else { x }
}

/// What every GPU has a part of, where layers are split.
fn summed(tape: &mut Tape, x: Var, stack: &Stack) -> Var {
    if stack.ranks > 1 { tape.all_reduce(x) } else { x }
}

/// What comes after the layers: the last norm, a projection back, the logits.
pub fn head(stack: &Stack, run: &Run, logits: Logits) -> Piece {
    let mut tape = Tape::new(run.training);
    let input = tape.input(hidden_state(stack, run));
    let mut x = input;
    if let Some(steers) = &stack.condition {
        let first = join(&stack.layers_at, "*");
        let rows = condition(&mut tape, steers, &first, (&steers.head, ""), run);
        x = norm(&mut tape, x, stack.norm);
        x = modulate(&mut tape, x, rows[0], rows[1]);
    } else if stack.pooled == Some(Pooled::FirstNormed) {
        x = tape.select(x, 1);
        x = norm(&mut tape, x, stack.norm);
    } else if stack.final_norm.is_some() && run.training {
        x = norm(&mut tape, x, stack.norm);
    }
    if let Some(projection) = &stack.project_out {
        x = linear(&mut tape, x, projection, &join("", &projection.at), run.dtype);
    }
    if let Some((transform, _)) = &stack.head_transform {
        x = linear(&mut tape, x, transform, &join("", &transform.at), run.dtype);
        x = tape.map(x);
        x = norm(&mut tape, x, stack.norm);
    }
    if logits == Logits::Last {
        x = tape.narrow(x, 1, 1);
        if stack.head_casts {
            x = tape.contiguous(x);
        }
    }
    match stack.pooled {
        Some(Pooled::First) => x = tape.select(x, 1),
        Some(Pooled::Picked) => x = tape.gather(&[x], &[run.batch, stack.hidden]),
        Some(Pooled::FirstNormed) | None => {}
    }
    let output = match &stack.head {
        Some(head) => {
            let split = stack.ranks > 1 && stack.pooled.is_none();
            let x = if split { tape.each_rank(x) } else { x };
            let out = linear(&mut tape, x, head, &join("", &head.at), run.dtype);
            // A loss takes logits as they are split.
            if split && !run.training {
                tape.all_gather(out, stack.ranks);
            }
            out
        }
        None => x,
    };
    Piece { tape, input, output }
}

/// Two stacks' results, all rows with all rows; a loss looks at the result both ways.
pub fn pair(rows: i64, width: i64, run: &Run) -> Piece {
    let mut tape = Tape::new(run.training);
    let view = View::contiguous(&[rows, width], run.dtype);
    let (input, other) = (tape.input(view), tape.input(view));
    tape.enter(&"".into());
    let other = tape.transpose(other, 0, 1);
    let alike = tape.mm(input, other);
    let alike = tape.scale(alike);
    let by_row = tape.rows(alike, run.dtype);
    let turned = tape.transpose(alike, 0, 1);
    let by_column = tape.rows(turned, run.dtype);
    let output = tape.add(by_row, by_column);
    Piece { tape, input, output }
}
