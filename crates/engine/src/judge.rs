//! The judge of all candidates: sums in higher precision over cases that cover what a contract admits.
//!
//! Each case has memory around and between its elements that must not change, a result full of NaN where
//! it must not be read, and a bound that follows from the number of terms and the element type (`oracle`): for any
//! order of summation, |error| <= (k + 4) · epsilon · (|alpha| · sum of |a · b| + |beta · c|), half a unit of the
//! last place more where the result is of a shorter type than its sums, and what each step of an epilogue adds.

use crate::candidate::{Candidate, Operand, Operands, Queue, Region};
use crate::contract::Types;
use crate::epilogue::{Epilogue, Part, Parts};
use crate::oracle::{Expected, Units};
use crate::problem::{Layout, Problem};
use gemwright_core::{Activation, DType, Product};
use gemwright_cpu::Number;
use gemwright_cpu::half::bf16;

/// What a candidate did.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Cases that ran and were right.
    pub right: usize,
    /// Cases outside the contract, refused as they must be.
    pub refused: usize,
    /// What was wrong, one sentence a case.
    pub failures: Vec<String>,
    /// The largest error met, as a share of its bound.
    pub worst: f64,
}

impl Verdict {
    /// It ran something, and nothing was wrong.
    pub fn passed(&self) -> bool {
        self.failures.is_empty() && self.right > 0
    }
}

/// Numbers that repeat for a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 11
    }

    /// -1 to 1.
    pub fn number(&mut self) -> f64 {
        self.bits() as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// 0 to n - 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Extents around the edges of tiles (6, 8, 14, 16, 32 and 48 rows or columns), and primes.
pub const EDGES: [u64; 23] = [0, 1, 2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 23, 31, 32, 33, 47, 48, 49, 65, 97];
const DEPTHS: [u64; 10] = [0, 1, 2, 7, 16, 17, 64, 101, 257, 515];

/// Layouts of a matrix: rows or columns as neighbours, with and without gaps, repeated, backwards, scattered.
const LAYOUTS: usize = 9;

fn layout(rows: u64, cols: u64, kind: usize) -> Layout {
    let (r, c) = (rows.max(1) as i64, cols.max(1) as i64);
    let (row, col) = match kind {
        0 => (c, 1),
        1 => (1, r),
        2 => (c + 5, 1),
        3 => (1, r + 3),
        4 => (3 * c + 1, 3),
        5 => (-(c + 2), 1),
        6 => (c, -1),
        7 => (0, 1),
        _ => (1, 0),
    };
    let span = (r * row.abs()).max(c * col.abs());
    Layout { row, col, batch: span + 7 }
}

/// Cases of given element types, so many at least: every pair of edges, and depths, layouts, factors and
/// batches drawn for each, every third again with an epilogue.
pub fn cases((dtype, out_dtype): Types, edges: &[u64], seed: u64) -> Vec<Problem> {
    let mut random = Random::new(seed);
    let mut cases = Vec::new();
    for &m in edges {
        for &n in edges {
            let k = random.pick(&DEPTHS);
            let batch = random.pick(&[1, 1, 1, 3]);
            // Layouts every library takes come as often as the odd ones.
            let mut kind = |odd: usize| if random.below(2) == 0 { random.below(4) } else { random.below(odd) };
            let (a, b, out) = (kind(LAYOUTS), kind(LAYOUTS), kind(7));
            let plain = Problem {
                product: Product { batch, m, n, k },
                out_dtype,
                a: layout(m, k, a),
                b: layout(k, n, b),
                out: layout(m, n, out),
                alpha: random.pick(&[1.0, 1.0, -0.5, 0.0]),
                beta: random.pick(&[0.0, 0.0, 1.0, 0.75]),
                prepacked: random.below(4) == 0,
                ..Problem::new(m, n, k, dtype)
            };
            cases.push(plain);
            // Who has no epilogues refuses them.
            if random.below(3) == 0 {
                cases.push(Problem { epilogue: epilogue((m, n), &mut random), ..plain });
            }
        }
    }
    // Larger than one block in every direction.
    for (m, n, k) in [(9, 1030, 1100), (130, 530, 1029), (5, 2000, 700), (2000, 5, 700), (70, 900, 513), (1, 3000, 300)]
    {
        let kinds = [0, 1].map(|_| random.below(4));
        let (a, b) = (layout(m, k, kinds[0]), layout(k, n, kinds[1]));
        cases.push(Problem { a, b, out_dtype, ..Problem::new(m, n, k, dtype) });
    }
    cases
}

/// Any activation, any parts, as vectors and matrices of any layout.
fn epilogue((m, n): (u64, u64), random: &mut Random) -> Epilogue {
    let mut epilogue = Epilogue::default();
    if random.below(4) > 0 {
        epilogue.activation = random.pick(&Activation::ALL);
    }
    for part in Part::ALL {
        if random.below(2) == 0 {
            epilogue = epilogue.with(part, layout(m, n, random.below(LAYOUTS)));
        }
    }
    epilogue
}

/// Runs every case.
pub fn judge(candidate: &dyn Candidate, queue: &dyn Queue, cases: &[Problem], seed: u64) -> Verdict {
    let mut verdict = Verdict::default();
    for (i, problem) in cases.iter().enumerate() {
        let seed = seed.wrapping_add(i as u64);
        if candidate.contract().admits(problem).is_err() {
            match candidate.prepare(problem) {
                Err(_) => verdict.refused += 1,
                Ok(_) => verdict.failures.push(format!("{}: taken, though its contract refuses it", describe(problem))),
            }
            continue;
        }
        let units = Units::of(problem);
        let found = match (problem.dtype, problem.out_dtype) {
            (DType::F32, DType::F32) => one::<f32, f32>(candidate, queue, problem, seed, units),
            (DType::F64, DType::F64) => one::<f64, f64>(candidate, queue, problem, seed, units),
            (DType::Bf16, DType::F32) => one::<bf16, f32>(candidate, queue, problem, seed, units),
            (DType::Bf16, DType::Bf16) => one::<bf16, bf16>(candidate, queue, problem, seed, units),
            (operands, out) => Err(format!("the judge has no numbers for {operands} to {out}")),
        };
        match found {
            Ok(worst) => {
                verdict.right += 1;
                verdict.worst = verdict.worst.max(worst);
            }
            Err(why) => verdict.failures.push(format!("{}: {why}", describe(problem))),
        }
    }
    verdict
}

/// A case in one line, to repeat it by.
fn describe(problem: &Problem) -> String {
    let Product { batch, m, n, k } = problem.product;
    let strides = |l: Layout| format!("({}, {}, {})", l.batch, l.row, l.col);
    format!(
        "{} to {} {batch}·{m}x{n}x{k} a {} b {} out {} alpha {} beta {}{}{}",
        problem.dtype,
        problem.out_dtype,
        strides(problem.a),
        strides(problem.b),
        strides(problem.out),
        problem.alpha,
        problem.beta,
        if problem.prepacked { " prepacked" } else { "" },
        problem.epilogue.names().iter().map(|name| format!(", {name}")).collect::<String>()
    )
}

/// Elements around an operand that must stay as they are.
const GUARD: usize = 64;

/// An operand in the middle of guarded memory.
struct Stored<T> {
    memory: Vec<T>,
    first: usize,
    layout: Layout,
}

impl<T: Number> Stored<T> {
    fn new(layout: Layout, (batch, rows, cols): (u64, u64, u64), mut fill: impl FnMut() -> T) -> Stored<T> {
        let (least, most) = layout.reach(batch, rows, cols).unwrap_or((0, 0));
        let length = (most - least) as usize + 1 + 2 * GUARD;
        Stored { memory: (0..length).map(|_| fill()).collect(), first: GUARD + (-least) as usize, layout }
    }

    fn place(&self, batch: u64, row: u64, col: u64) -> usize {
        let Layout { row: r, col: c, batch: b } = self.layout;
        (self.first as i64 + batch as i64 * b + row as i64 * r + col as i64 * c) as usize
    }

    fn operand(&self) -> Operand {
        Operand { region: Region::of(&self.memory), first: self.first }
    }
}

/// The error of the worst element as a share of its bound, or what was wrong.
fn one<T: Number, U: Number>(
    candidate: &dyn Candidate,
    queue: &dyn Queue,
    problem: &Problem,
    seed: u64,
    units: Units,
) -> Result<f64, String> {
    let Product { batch, m, n, k } = problem.product;
    let mut random = Random::new(seed);
    let reads = problem.beta != 0.0;
    let a = Stored::new(problem.a, (batch, m, k), || T::from_f64(random.number()));
    let b = Stored::new(problem.b, (batch, k, n), || T::from_f64(random.number()));
    let mut out = Stored::new(problem.out, (batch, m, n), || U::from_f64(random.number()));
    if !reads {
        for place in places(&out, (batch, m, n)) {
            out.memory[place] = U::from_f64(f64::NAN);
        }
    }
    let parts: Parts<Stored<U>> = problem
        .epilogue
        .parts
        .map(|layout| layout.map(|layout| Stored::new(layout, (batch, m, n), || U::from_f64(random.number()))));
    let plan = match problem.prepacked {
        // SAFETY: `Stored::new` made room for every element.
        true => unsafe { candidate.prepare_packed(problem, &b.operand()) },
        false => candidate.prepare(problem),
    };
    let plan = plan.map_err(|why| format!("refused, though its contract takes it: {why}"))?;
    let before = out.memory.clone();
    let (a_before, b_before) = (a.memory.clone(), b.memory.clone());
    let parts_before = parts.each_ref().map(|part| part.as_ref().map(|part| part.memory.clone()));
    let mut workspace = vec![0u8; plan.workspace(queue)];
    let region = Region::of_mut(&mut out.memory);
    let given = parts.each_ref().map(|part| part.as_ref().map(Stored::operand));
    let operands =
        Operands { parts: given, ..Operands::new(a.operand(), b.operand(), Operand { region, first: out.first }) };
    // SAFETY: 1 `Stored::new` made room for every element. 2 the vectors are this function's own and apart.
    unsafe { plan.run(queue, &operands, Region::of_mut(&mut workspace)) }.map_err(|e| e.to_string())?;
    let kept =
        |(part, before): (&Option<Stored<U>>, &Option<Vec<U>>)| part.as_ref().map(|p| &p.memory) == before.as_ref();
    if a.memory != a_before || b.memory != b_before || !parts.iter().zip(&parts_before).all(kept) {
        return Err("it wrote to an operand".into());
    }
    let mut untouched = vec![true; out.memory.len()];
    let mut worst = 0f64;
    for x in 0..batch {
        for i in 0..m {
            for j in 0..n {
                let terms = (0..k).map(|s| (a.memory[a.place(x, i, s)].to_f64(), b.memory[b.place(x, s, j)].to_f64()));
                let place = out.place(x, i, j);
                let old = if reads { before[place].to_f64() } else { 0.0 };
                let here = parts.each_ref().map(|part| part.as_ref().map(|p| p.memory[p.place(x, i, j)].to_f64()));
                let fusion = candidate.contract().fusion;
                let expected = Expected::sum(problem, terms, old, &units).finished(problem, &here, fusion, &units);
                let Expected { value: want, bound } = expected;
                let got = out.memory[place].to_f64();
                let error = (got - want).abs();
                // NaN must fail too.
                if error.is_nan() || error > bound {
                    return Err(format!("[{x}, {i}, {j}] is {got:e}, should be {want:e} within {bound:e}"));
                }
                worst = worst.max(if bound > 0.0 { error / bound } else { 0.0 });
                untouched[place] = false;
            }
        }
    }
    let changed = (0..out.memory.len()).find(|i| untouched[*i] && out.memory[*i] != before[*i]);
    match changed {
        Some(place) => {
            Err(format!("it wrote outside its result, {} elements from its first", place as i64 - out.first as i64))
        }
        None => Ok(worst),
    }
}

fn places<T: Number>(stored: &Stored<T>, (batch, rows, cols): (u64, u64, u64)) -> Vec<usize> {
    let mut all = Vec::new();
    for x in 0..batch {
        for i in 0..rows {
            all.extend((0..cols).map(|j| stored.place(x, i, j)));
        }
    }
    all
}
