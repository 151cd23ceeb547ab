//! The sentences of the page, section by section.

use super::advice::advice;
use super::{Happening, Section, Subject};
use crate::blas::{Arguments, BlasCall, Gemm, Leaf, LeafOp, Settings, Stack, Step, Trans};
use crate::{Call, Chip, DType, Operands, Product, Roof, View, Waves, batch_gradients, matrix_gradients};

/// What the page is made from.
pub(super) struct Page<'a> {
    pub subject: &'a Subject,
    pub leaf: Option<&'a Leaf>,
    pub call: Option<&'a Call>,
    pub steps: &'a [Happening],
    pub settings: Settings,
    pub chips: &'a [Chip],
}

/// How a view lies in memory, in words.
pub(super) fn layout(view: &View) -> String {
    if view.size.contains(&0) {
        return "empty".into();
    }
    if view.stride.iter().zip(view.size.iter()).any(|(step, n)| *step == 0 && *n > 1) {
        return "repeated: a stride of 0 shows one element many times".into();
    }
    let last = view.rank() - 1;
    match () {
        () if view.is_contiguous() => "row-major, without gaps".into(),
        () if view.rank() >= 2 && view.t().is_contiguous() => {
            "column-major: the transposed view of a row-major matrix".into()
        }
        () if view.stride[last] == 1 && view.rank() >= 2 => {
            format!(
                "row-major with rows {} elements apart, longer than their {}",
                view.stride[last - 1],
                view.size[last]
            )
        }
        () if view.rank() >= 2 && view.stride[last - 1] == 1 => {
            format!("column-major with columns {} elements apart", view.stride[last])
        }
        () => format!("strided: neighbours in a row are {} elements apart", view.stride[last]),
    }
}

/// A few digits and a unit.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s if s >= 1e-6 => format!("{:.2} us", s * 1e6),
        s => format!("{:.2} ns", s * 1e9),
    }
}

fn amount(value: u128, unit: &str) -> String {
    let value = value as f64;
    match value {
        v if v >= 1e12 => format!("{:.2} T{unit}", v / 1e12),
        v if v >= 1e9 => format!("{:.2} G{unit}", v / 1e9),
        v if v >= 1e6 => format!("{:.2} M{unit}", v / 1e6),
        v if v >= 1e3 => format!("{:.2} k{unit}", v / 1e3),
        v => format!("{v:.0} {unit}"),
    }
}

impl Page<'_> {
    pub fn sections(&self) -> Vec<Section> {
        let mut sections = vec![
            self.section("What is computed", self.product()),
            self.section("How it lies in memory", self.memory()),
            self.section("What PyTorch makes of it", self.aten()),
            self.section("The library call", self.library()),
        ];
        if let Some(call) = self.call {
            sections.push(self.section("What it costs", self.cost(call)));
            sections.push(self.section("Tiles and waves", self.waves(call)));
            sections.push(self.section("The gradients", self.gradients()));
            sections.push(self.section("What would help", advice(self, call)));
        }
        sections.retain(|s| !s.lines.is_empty());
        sections
    }

    fn section(&self, title: &str, lines: Vec<String>) -> Section {
        Section { title: title.into(), lines }
    }

    fn product(&self) -> Vec<String> {
        let Subject { a, b, .. } = self.subject;
        let mut lines = Vec::new();
        let Some(product) = self.call.and_then(Call::product) else {
            lines.push(format!("{} of {a} and {b} is no product of two matrices.", self.subject.op));
            return lines;
        };
        let Product { batch, m, n, k } = product;
        if a.rank() > 2 && self.leaf.is_some_and(|leaf| leaf.a.rank() == 2) {
            let lead: Vec<String> = a.size[..a.rank() - 1].iter().map(i64::to_string).collect();
            lines.push(format!("The leading dimensions are flattened into rows: {} = {m}.", lead.join(" x ")));
        }
        let times = if batch > 1 { format!(", {batch} times over") } else { String::new() };
        lines.push(format!("out[{m} x {n}] = a[{m} x {k}] · b[{k} x {n}]{times}: M = {m}, N = {n}, K = {k}."));
        lines.push(format!("Every element of the result is a sum of {k} products."));
        lines
    }

    fn memory(&self) -> Vec<String> {
        let Subject { a, b, bias, .. } = self.subject;
        let mut lines = Vec::new();
        let names = if self.subject.op == "aten::linear" { ["input", "weight"] } else { ["a", "b"] };
        for (name, view) in names.iter().zip([a, b]) {
            let steps: Vec<String> = view.stride.iter().map(i64::to_string).collect();
            lines.push(format!("{name} {view}: strides ({}), {}.", steps.join(", "), layout(view)));
        }
        if let Some(bias) = bias {
            lines.push(format!("bias {bias}: {}.", layout(bias)));
        }
        lines
    }

    fn aten(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for step in self.steps {
            match step {
                Happening::Aten(leaf) if leaf.name() != self.subject.op => {
                    lines.push(format!("{} becomes {} of {} and {}.", self.subject.op, leaf.name(), leaf.a, leaf.b));
                }
                Happening::Aten(leaf) => lines.push(format!("{} of {} and {}.", leaf.name(), leaf.a, leaf.b)),
                Happening::Copy { operand, why } => lines.push(format!("{operand} is copied: {why}.")),
                Happening::Add(bias) => {
                    let why = if bias.is_contiguous() { "the input" } else { "the bias" };
                    lines.push(format!("The bias {bias} is added by a kernel of its own: {why} is not contiguous."));
                }
                Happening::Fill => lines.push("Nothing is multiplied: the result is filled.".into()),
                Happening::Blas(_) => {}
            }
        }
        lines
    }

    fn blas(&self) -> Option<&BlasCall> {
        self.steps.iter().find_map(|step| match step {
            Happening::Blas(call) => Some(call),
            _ => None,
        })
    }

    fn library(&self) -> Vec<String> {
        let Some(call) = self.blas() else { return vec!["No library call is made.".into()] };
        let mut lines = vec![written(call)];
        if self.settings.stack == Stack::Rocm {
            lines.push("(ROCm: read from PyTorch's source, not verified on a device.)".into());
        }
        let (Arguments::Gemm(gemm), Some(product)) = (&call.arguments, self.call.and_then(Call::product)) else {
            return lines;
        };
        lines.extend(self.identity(gemm, &product));
        lines.extend(self.flags(gemm));
        if let Some(epilogue) = gemm.epilogue.as_ref().filter(|e| e.contains("BIAS")) {
            lines.push(format!("The bias is added by the product's epilogue ({epilogue}), at no cost of its own."));
        } else if gemm.beta != 0.0 {
            lines.push(format!("beta = {}: the result already holds the addend, which is read once more.", gemm.beta));
        }
        lines.extend(self.simple_rule(call, gemm));
        lines
    }

    fn identity(&self, gemm: &Gemm, product: &Product) -> Vec<String> {
        let Product { m, n, k, .. } = product;
        if gemm.m as u64 == *n && gemm.n as u64 == *m && self.swapped(gemm, product) {
            return vec![format!(
                "BLAS counts by columns. The row-major result [{m} x {n}] is, read by columns, its transpose [{n} x {m}], and \
                     C^T = B^T · A^T: so the library's A is our b, its B our a, m = N = {n}, n = M = {m}, k = K = {k}."
            )];
        }
        vec![format!("The result is handed over as it is: A is our a, m = M = {m}, n = N = {n}, k = K = {k}.")]
    }

    /// Whether the operands changed places; with M = N the extents alone do not tell.
    fn swapped(&self, gemm: &Gemm, product: &Product) -> bool {
        product.m != product.n || !(gemm.batch.is_some() && product.n == 1)
    }

    fn flags(&self, gemm: &Gemm) -> Vec<String> {
        let reason = |name: &str, trans: Trans, leading: i64| match trans {
            Trans::N => {
                format!("{name} is N: read by columns it is what BLAS wants; its leading dimension is {leading}.")
            }
            Trans::T => {
                format!("{name} is T: read by columns it is the transpose; its leading dimension is {leading}.")
            }
        };
        vec![
            reason("transa", gemm.transa, gemm.lda),
            reason("transb", gemm.transb, gemm.ldb),
            format!("ldc = {}: the distance of the result's columns as BLAS sees them.", gemm.ldc),
        ]
    }

    /// Where "N if the last stride is 1, else T; ld = the other stride" says something else.
    fn simple_rule(&self, call: &BlasCall, gemm: &Gemm) -> Vec<String> {
        let Some(leaf) = self.leaf else { return Vec::new() };
        let last = leaf.a.rank() - 1;
        let flag = |x: &View| Trans::when(x.stride[last] != 1);
        let leading = |x: &View| if x.stride[last] == 1 { x.stride[last - 1] } else { x.stride[last] };
        let simple = (flag(&leaf.b), flag(&leaf.a), leading(&leaf.b), leading(&leaf.a));
        let real = (gemm.transa, gemm.transb, gemm.lda, gemm.ldb);
        let batched = leaf.a.rank() == 3;
        let plain_routine = !call.library.ends_with("Lt") || self.settings.stack == Stack::Rocm;
        let mut lines = Vec::new();
        let rows = gemm.m == leaf.b.size[last];
        if simple == real && rows {
            lines.push(
                "The simple rule gives the same: operands swapped, N where the last stride is 1, ld the other stride."
                    .into(),
            );
        } else {
            lines.push(format!(
                "The simple rule would say {:?} {:?}, lda = {}, ldb = {}: it fails here because {}.",
                simple.0,
                simple.1,
                simple.2,
                simple.3,
                self.why_not_simple(leaf, rows)
            ));
        }
        if !plain_routine {
            lines.push(format!(
                "The simple rule would name the plain gemm; a bias of N values sends it to {}.",
                call.routine
            ));
        }
        if batched && gemm.batch.is_none() {
            lines.push("A batch of one goes to the routine without a batch.".into());
        }
        lines
    }

    fn why_not_simple(&self, leaf: &Leaf, rows: bool) -> String {
        let copied =
            self.steps.iter().any(|s| matches!(s, Happening::Copy { operand, .. } if operand.starts_with(['m', 'b'])));
        let one = leaf.a.size.iter().chain(leaf.b.size.iter()).any(|n| *n == 1);
        match () {
            () if copied => "an operand is copied first".into(),
            () if !rows => "a batched result of one column is not swapped".into(),
            () if one => "a dimension of size 1 has a stride that means nothing, and is replaced".into(),
            () => "the strides are judged in another order".into(),
        }
    }

    fn cost(&self, call: &Call) -> Vec<String> {
        let (flops, bytes) = (call.flops(), call.bytes());
        let mut lines = vec![format!(
            "{} for {} moved at least: {:.2} FLOP per byte.",
            amount(flops, "FLOP"),
            amount(bytes, "B"),
            call.intensity()
        )];
        for chip in self.chips {
            match Roof::of(call, chip) {
                Err(error) => lines.push(format!("{error}.")),
                Ok(roof) => lines.push(format!(
                    "{}: {} ridge {:.1} FLOP/B, so it is bound by {}: {} at least ({} TFLOP/s, {} GB/s by the datasheet).",
                    chip.name,
                    Chip::peak_name(call.dtype()),
                    roof.ridge,
                    roof.bound.name(),
                    time(roof.seconds),
                    chip.peak(call.dtype()).unwrap_or(0.0) / 1e12,
                    chip.bandwidth().unwrap_or(0.0) / 1e9
                )),
            }
        }
        lines
    }

    fn waves(&self, call: &Call) -> Vec<String> {
        let Some(product) = call.product() else { return Vec::new() };
        let mut lines = Vec::new();
        for chip in self.chips {
            let Some(units) = &chip.units else { continue };
            let Some(waves) = Waves::best(&product, chip, call.dtype()) else { continue };
            let Ok(seconds) = waves.seconds(call.flops(), call.bytes(), call.dtype(), chip) else { continue };
            lines.push(format!(
                "{}: in tiles of {} it is {} tiles on {} {}, {} {}: {:.0} % of the work done is useful, which bounds the time by {}.",
                chip.name,
                waves.tile,
                waves.tiles,
                units.count.value,
                units.kind,
                waves.waves,
                if waves.waves == 1 { "wave" } else { "waves" },
                waves.efficiency * 100.0,
                time(seconds)
            ));
        }
        lines
    }

    fn gradients(&self) -> Vec<String> {
        let Some(leaf) = self.leaf else { return Vec::new() };
        let Some(Operands::Product { out, .. }) = self.call.map(|c| c.operands) else { return Vec::new() };
        let batched = leaf.a.rank() == 3;
        let (gradients, op) = if batched {
            (batch_gradients(&leaf.a, &leaf.b, &out), LeafOp::Bmm)
        } else {
            (matrix_gradients(&leaf.a, &leaf.b, &out), LeafOp::Mm)
        };
        // mm and bmm give the second operand's gradient first, addmm and baddbmm the first one's.
        let order = if matches!(leaf.op, LeafOp::Mm | LeafOp::Bmm) { [1, 0] } else { [0, 1] };
        let mut lines = Vec::new();
        for i in order {
            let gradient = &gradients[i];
            let product = Leaf::new(op, gradient.first, gradient.second, None);
            let call = product.steps(self.settings).into_iter().find_map(|step| match step {
                Step::Blas(call) => Some(written(&call)),
                _ => None,
            });
            let of = ["a", "b"][i];
            let formula = match (i, gradient.transposed) {
                (0, false) => "grad · b^T",
                (0, true) => "(b · grad^T)^T, because a is column-major",
                (1, false) => "a^T · grad",
                _ => "(grad^T · a)^T, because b is column-major",
            };
            lines.push(format!(
                "of {of}: {formula} = {} of {} and {}: {}",
                product.name(),
                gradient.first,
                gradient.second,
                call.unwrap_or_default()
            ));
        }
        lines
    }
}

/// The call as it would stand in a program.
pub(super) fn written(call: &BlasCall) -> String {
    let mut text = format!("{} {}", call.library, call.routine);
    match &call.arguments {
        Arguments::Gemm(g) => {
            text += &format!(
                "({:?}, {:?}, m = {}, n = {}, k = {}, lda = {}, ldb = {}, ldc = {}",
                g.transa, g.transb, g.m, g.n, g.k, g.lda, g.ldb, g.ldc
            );
            if let Some(batch) = &g.batch {
                text += &format!(", strides {}, {}, {}, {} times", batch.a, batch.b, batch.c, batch.count);
            }
            if let Some(epilogue) = g.epilogue.as_ref().filter(|e| *e != "EPILOGUE_DEFAULT") {
                text += &format!(", {epilogue}");
            }
            text += ").";
        }
        Arguments::Gemv { trans, m, n, lda, incx, incy } => {
            text += &format!("({trans:?}, m = {m}, n = {n}, lda = {lda}, incx = {incx}, incy = {incy}).");
        }
        Arguments::Dot { n, incx, incy } => text += &format!("(n = {n}, incx = {incx}, incy = {incy})."),
    }
    text
}

/// Elements of 16 bytes: what a wide load takes at once.
pub(super) fn wide_load(dtype: DType) -> u64 {
    16 / dtype.bytes()
}
