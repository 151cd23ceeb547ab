//! Candidates measured in turns: call by call, in one process, on random numbers, correctness first, with
//! the machine's limits in the same rotation.

use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Region};
use crate::contract::Fusion;
use crate::epilogue::Parts;
use crate::judge::{Random, judge};
use crate::limit::Limit;
use crate::problem::{Layout, Problem};
use crate::sample::{Elements, Place, Sample};
use crate::split::Split;
use crate::worker::Worker;
use gemwright_core::{DType, Product};
use gemwright_cpu::half::bf16;
use gemwright_cpu::{Caches, Caller, Number};
use std::time::Instant;

/// How it is measured.
#[derive(Debug, Clone, Copy)]
pub struct Method<'a> {
    /// Turns of every candidate.
    pub rounds: usize,
    /// Threads of all of them.
    pub threads: usize,
    /// Turns of a candidate whose call takes longer than 50 ms.
    pub rounds_of_long: usize,
    /// Who takes so many times as long as the fastest at a first look has no turns: that look is its time.
    pub hopeless: f64,
    /// Who has turns all the same, by name, since others are compared with him.
    pub always: Option<&'a str>,
}

/// What is going on.
#[derive(Debug, Clone, Copy)]
pub enum Stage<'a> {
    /// Memory is asked for and filled.
    Operands,
    /// A candidate is about to be run.
    Begins(&'a str),
    /// So many rounds are done, of so many.
    Round(usize, usize),
}

/// Seconds from which on a call is long.
const LONG: f64 = 0.05;
/// A pause before every turn: pools of other libraries go on spinning after a call, and would take the cores
/// of whoever comes next.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(12);
/// Calls that are not timed go before those that are for so long: after a pause a core takes its time to get fast.
pub const WARM: std::time::Duration = std::time::Duration::from_millis(15);
/// Seconds that a turn of a short call is filled up to by repeating it.
const TURN: f64 = 1e-3;

/// Times of one candidate.
#[derive(Debug, Clone)]
pub struct Times {
    /// Its name, or the limit's.
    pub name: String,
    /// One of ours.
    pub own: bool,
    /// Seconds of a call, or of a limit the rate, in order of the rounds.
    pub values: Vec<f64>,
}

impl Times {
    /// The value that a share of the others lies below.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(self.values.clone(), share)
    }

    /// How much faster this is than another: the median over the rounds of the paired ratio.
    pub fn ratio(&self, other: &Times) -> Option<f64> {
        let ratios: Vec<f64> = self.values.iter().zip(&other.values).map(|(x, y)| y / x).collect();
        (!ratios.is_empty()).then(|| quantile(ratios, 0.5))
    }
}

/// The value that a share of the others lies below: between two of them in proportion, so that the half of an even number is
/// what lies in the middle of both. Of none it is no number.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = values.len().saturating_sub(1) as f64 * share;
    let at = |place: f64| values.get(place as usize).copied().unwrap_or(f64::NAN);
    let (below, above) = (at(place.floor()), at(place.ceil()));
    if below == above { below } else { below + (above - below) * place.fract() }
}

/// What was measured for a problem.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The problem.
    pub problem: Problem,
    /// Of the candidates, ours first.
    pub times: Vec<Times>,
    /// Rates of the limits, in FLOP/s and bytes/s.
    pub limits: Vec<Times>,
    /// Candidates that refused, or were wrong, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Weights were rotated past the last cache.
    pub cold: bool,
}

impl Measured {
    /// The best of ours and the best of the others, by median.
    pub fn best(&self, own: bool) -> Option<&Times> {
        let all = self.times.iter().filter(|t| t.own == own);
        all.min_by(|x, y| x.quantile(0.5).total_cmp(&y.quantile(0.5)))
    }

    /// How much faster ours is than the best other: the median over the rounds of the paired ratio.
    pub fn ratio(&self) -> Option<f64> {
        self.best(true)?.ratio(self.best(false)?)
    }

    /// The least time by the limits of the same rotation, at a quantile of both.
    pub fn limit(&self, share: f64) -> f64 {
        let rate = |name: &str| {
            let found = self.limits.iter().find(|l| l.name.starts_with(name));
            found.map_or(f64::INFINITY, |l| l.quantile(1.0 - share))
        };
        // Without tiles bf16 goes through f32.
        let tiles = if self.problem.dtype == DType::Bf16 { rate("limit.amx") } else { 0.0 };
        let flops = self.problem.product.flops() as f64 / if tiles > 0.0 { tiles } else { rate("limit.fma") };
        let bytes = if self.cold { self.problem.bytes() as f64 / rate("limit.read") } else { 0.0 };
        flops.max(bytes)
    }
}

/// How often a turn repeats a call that takes so many seconds.
fn repeats_of(taken: f64) -> usize {
    ((TURN / taken) as usize).clamp(1, 1000)
}

/// A candidate that takes part.
struct Entry {
    fusion: Fusion,
    /// For every set of weights that was laid out, or one for all.
    plans: Vec<Box<dyn Plan>>,
    times: Times,
    starts_threads: bool,
    /// Calls of a turn.
    repeat: usize,
}

/// Operands of one turn.
struct Set<T, U> {
    a: Lined<T>,
    b: Lined<T>,
    out: Lined<U>,
    parts: Parts<Lined<U>>,
}

/// Numbers that begin on a line of the cache, as frameworks lay tensors out: candidates whose threads write side by side
/// would share lines otherwise.
struct Lined<T> {
    memory: Vec<T>,
    first: usize,
}

impl<T: Number> Lined<T> {
    fn new(count: usize, mut number: impl FnMut() -> T) -> Lined<T> {
        let line = 64 / size_of::<T>();
        let memory: Vec<T> = (0..count + line).map(|_| number()).collect();
        let past = memory.as_ptr().addr() / size_of::<T>() % line;
        Lined { memory, first: (line - past) % line }
    }

    /// To be read; `offset` elements stand before the first.
    fn read(&self, offset: usize) -> Operand {
        Operand { region: Region::of(&self.memory), first: self.first + offset }
    }

    /// To be written.
    fn write(&mut self, offset: usize) -> Operand {
        Operand { region: Region::of_mut(&mut self.memory), first: self.first + offset }
    }

    /// Where an element lies; `offset` elements stand before the first.
    fn at(&self, layout: &Layout, offset: usize, (x, i, j): Place) -> usize {
        let steps = x as i64 * layout.batch + i as i64 * layout.row + j as i64 * layout.col;
        (self.first + offset).wrapping_add_signed(steps as isize)
    }
}

/// Measures a problem with every candidate that takes it; `told` hears what is going on.
pub fn measure(
    problem: &Problem,
    candidates: &[&dyn Candidate],
    workers: &mut [Worker],
    method: &Method<'_>,
    told: &mut dyn FnMut(Stage<'_>),
) -> Measured {
    match (problem.dtype, problem.out_dtype) {
        (DType::F64, _) => measure_as::<f64, f64>(problem, candidates, workers, method, told),
        (DType::Bf16, DType::Bf16) => measure_as::<bf16, bf16>(problem, candidates, workers, method, told),
        (DType::Bf16, _) => measure_as::<bf16, f32>(problem, candidates, workers, method, told),
        _ => measure_as::<f32, f32>(problem, candidates, workers, method, told),
    }
}

/// Numbers that are drawn; a prime, so that no row begins as another does.
const DRAWN: usize = 1_000_003;

/// Rows up to which weights count as read from memory, not from a cache.
const DECODE_ROWS: u64 = 64;

fn measure_as<T: Number, U: Number>(
    problem: &Problem,
    candidates: &[&dyn Candidate],
    workers: &mut [Worker],
    method: &Method<'_>,
    told: &mut dyn FnMut(Stage<'_>),
) -> Measured {
    told(Stage::Operands);
    let (caller, queue) = (Caller::new(), CpuQueue::new(method.threads));
    let p = problem.product;
    // Whatever the layouts, every element has its place.
    let span = |layout: &Layout, rows: u64, cols: u64| {
        let (least, most) = layout.reach(p.batch, rows, cols).unwrap_or((0, 0));
        ((most - least + 1) as usize, (-least) as usize)
    };
    let [a, b, out] = [span(&problem.a, p.m, p.k), span(&problem.b, p.k, p.n), span(&problem.out, p.m, p.n)];
    let cold = p.m <= DECODE_ROWS && p.n * p.k >= 1 << 20;
    let bytes = b.0 * size_of::<T>();
    let beyond = Caches::of_this_machine().l3 + (Caches::of_this_machine().l3 >> 2);
    let sets = if cold { beyond.div_ceil(bytes).clamp(2, 64) } else { 1 };
    let parts = problem.epilogue.parts.map(|part| part.map(|part| span(&part, p.m, p.n)));
    // They draw theirs while we draw ours.
    let asked: Vec<_> = workers.iter_mut().map(|worker| worker.prepare(problem, sets, method.threads)).collect();
    // Drawing a number takes longer than reading it: a while of them, over and over.
    let (mut random, mut drawn) = (Random::new(1), 0);
    let numbers: Vec<f64> = (0..DRAWN).map(|_| random.number()).collect();
    let mut number = || {
        drawn = if drawn + 1 < DRAWN { drawn + 1 } else { 0 };
        numbers[drawn]
    };
    let mut set = || Set {
        a: Lined::new(a.0, || T::from_f64(number())),
        b: Lined::new(b.0, || T::from_f64(number())),
        out: Lined::new(out.0, || U::from_f64(0.0)),
        parts: parts.map(|part| part.map(|part| Lined::new(part.0, || U::from_f64(number())))),
    };
    let mut sets: Vec<Set<T, U>> = (0..sets).map(|_| set()).collect();
    // What the loop that reads goes through.
    let memory: Vec<f32> = vec![1.0; (beyond / size_of::<f32>()).max(1 << 20)];

    let mut left_out = Vec::new();
    let mut plans: Vec<Entry> = Vec::new();
    // Who has no epilogues is offered again with the epilogue split off.
    let needs_split =
        |candidate: &dyn Candidate| !problem.epilogue.is_none() && candidate.contract().fusion == Fusion::None;
    let split: Vec<Option<Split<'_>>> = candidates.iter().map(|c| needs_split(*c).then(|| Split::of(*c))).collect();
    for (candidate, split) in candidates.iter().zip(&split) {
        let candidate: &dyn Candidate = split.as_ref().map_or(*candidate, |split| split);
        told(Stage::Begins(candidate.name()));
        candidate.set_threads(method.threads);
        let prepared: Result<Vec<Box<dyn Plan>>, _> = match problem.prepacked {
            // Every set of weights is laid out, so that rotated ones stay cold.
            true => sets
                .iter()
                .map(|set| {
                    // SAFETY: `span` made room for every element of b.
                    unsafe { candidate.prepare_packed(problem, &set.b.read(b.1)) }
                })
                .collect(),
            false => candidate.prepare(problem).map(|plan| vec![plan]),
        };
        match prepared {
            Err(why) => left_out.push((candidate.name().to_string(), why.to_string())),
            Ok(plan) => {
                // The same layouts at a size the judge can afford.
                let product = Product { m: p.m.min(40), n: p.n.min(50), k: p.k.min(300), ..p };
                let small = Problem { product, ..*problem };
                let verdict = judge(candidate, &queue, &[small], 5);
                match verdict.failures.into_iter().next() {
                    Some(why) => left_out.push((candidate.name().to_string(), why)),
                    None => plans.push(Entry {
                        fusion: candidate.contract().fusion,
                        plans: plan,
                        times: Times { name: candidate.name().into(), own: candidate.is_own(), values: Vec::new() },
                        starts_threads: candidate.starts_threads(),
                        repeat: 1,
                    }),
                }
            }
        }
    }
    let mut outside: Vec<(&mut Worker, Times, usize)> = Vec::new();
    for (worker, asked) in workers.iter_mut().zip(asked) {
        match asked.and_then(|()| worker.prepared()).and_then(|()| worker.turn(1)) {
            Err(why) => left_out.push((worker.name.to_string(), why)),
            Ok(taken) => {
                let times = Times { name: worker.name.into(), own: false, values: Vec::new() };
                outside.push((worker, times, repeats_of(taken)));
            }
        }
    }
    let sums = if problem.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mut limits: Vec<(Limit, Times)> = [Limit::Fma(sums), Limit::Read, Limit::Amx]
        .into_iter()
        .map(|limit| (limit, Times { name: limit.name(), own: false, values: Vec::new() }))
        .collect();
    let run = |plan: &dyn Plan, set: &mut Set<T, U>| {
        let mut operands = Operands::new(set.a.read(a.1), set.b.read(b.1), set.out.write(out.1));
        for ((operand, memory), part) in operands.parts.iter_mut().zip(&set.parts).zip(&parts) {
            *operand = memory.as_ref().zip(*part).map(|(memory, part)| memory.read(part.1));
        }
        // SAFETY: 1 `span` made room for every element. 2 the vectors are this function's own and apart.
        unsafe { plan.run(&queue, &operands, Region::NONE) }
    };
    let mut turn = 0;
    let mut once = |plans: &[Box<dyn Plan>], sets: &mut [Set<T, U>]| {
        turn += 1;
        let at = turn % sets.len();
        run(&*plans[at % plans.len()], &mut sets[at])
    };
    let sample = {
        let set = &sets[0];
        let part = |place: Place| -> Parts<f64> {
            std::array::from_fn(|i| {
                let (memory, layout, span) = (set.parts[i].as_ref()?, problem.epilogue.parts[i].as_ref()?, parts[i]?);
                Some(memory.memory[memory.at(layout, span.1, place)].to_f64())
            })
        };
        let elements = Elements {
            a: &|place| set.a.memory[set.a.at(&problem.a, a.1, place)].to_f64(),
            b: &|place| set.b.memory[set.b.at(&problem.b, b.1, place)].to_f64(),
            parts: &part,
        };
        Sample::new(problem, &elements)
    };
    // The result of a first run, over what nobody may take for one.
    let first_run = |entry: &Entry, set: &mut Set<T, U>| {
        for place in sample.places() {
            let at = set.out.at(&problem.out, out.1, place);
            set.out.memory[at] = U::from_f64(f64::NAN);
        }
        run(&*entry.plans[0], set).map_err(|why| why.to_string())?;
        let found = |place| set.out.memory[set.out.at(&problem.out, out.1, place)].to_f64();
        sample.wrong(entry.fusion, found).map_or(Ok(()), Err)
    };
    // A first run of each is not counted, and tells how often a turn repeats the call.
    let mut looks = Vec::new();
    plans.retain_mut(|entry| {
        // Threads that are started now are started for good, and may be anywhere.
        caller.roams();
        told(Stage::Begins(&entry.times.name));
        let first = first_run(entry, &mut sets[0]);
        let begin = Instant::now();
        let second = once(&entry.plans, &mut sets).map_err(|why| why.to_string());
        let mut taken = begin.elapsed().as_secs_f64();
        // A short call can be interrupted for many times what it takes.
        for _ in 0..4 {
            if taken < TURN {
                let begin = Instant::now();
                let again = once(&entry.plans, &mut sets);
                taken = taken.min(if again.is_ok() { begin.elapsed().as_secs_f64() } else { taken });
            }
        }
        entry.repeat = repeats_of(taken);
        // A call among many takes less than one alone, and who has no turns is compared with those of others.
        let begin = Instant::now();
        if entry.repeat > 1 && (0..entry.repeat).all(|_| once(&entry.plans, &mut sets).is_ok()) {
            taken = taken.min(begin.elapsed().as_secs_f64() / entry.repeat as f64);
        }
        let failure = first.and(second).err();
        if failure.is_none() {
            looks.push(taken);
        }
        left_out.extend(failure.iter().map(|why| (entry.times.name.clone(), why.clone())));
        failure.is_none()
    });
    let least = looks.iter().copied().fold(f64::INFINITY, f64::min);
    let (mut hopeless, mut long) = (Vec::new(), false);
    let mut look = looks.iter();
    plans.retain(|entry| {
        let taken = look.next().copied().unwrap_or(least);
        let turns = taken <= method.hopeless * least || method.always == Some(entry.times.name.as_str());
        if !turns {
            hopeless.push(Times { values: vec![taken], ..entry.times.clone() });
        }
        long |= turns && taken > LONG;
        turns
    });
    let rounds = if long { method.rounds_of_long } else { method.rounds };
    for round in 0..rounds {
        for Entry { plans: plan, times, starts_threads, repeat, .. } in &mut plans {
            told(Stage::Begins(&times.name));
            std::thread::sleep(PAUSE);
            if *starts_threads {
                caller.roams();
            } else {
                caller.stays();
            }
            // Threads are woken and clocks raised outside of what is timed, as they are in a run of products.
            let mut runs = |count: usize| (0..count).all(|_| once(plan, &mut sets).is_ok());
            let mut begin = Instant::now();
            let mut warm = runs(1);
            while warm && begin.elapsed() < WARM {
                warm = runs(1);
            }
            begin = Instant::now();
            if warm && runs(*repeat) {
                times.values.push(begin.elapsed().as_secs_f64() / *repeat as f64);
            }
        }
        for (worker, times, repeat) in &mut outside {
            std::thread::sleep(PAUSE);
            // One that has ended has no more times, which shows.
            times.values.extend(worker.turn(*repeat).ok());
        }
        std::thread::sleep(PAUSE);
        caller.stays();
        for (limit, times) in &mut limits {
            // Warm like the candidates: a core that goes over to tiles takes milliseconds to come to its full rate.
            let begin = Instant::now();
            let rate = || limit.measure(&queue.pool, method.threads, &memory);
            while begin.elapsed() < WARM && rate() > 0.0 {}
            times.values.push(rate());
        }
        told(Stage::Round(round + 1, rounds));
    }
    Measured {
        problem: *problem,
        times: plans
            .into_iter()
            .map(|entry| entry.times)
            .chain(hopeless)
            .chain(outside.into_iter().map(|(_, t, _)| t))
            .collect(),
        limits: limits.into_iter().map(|(_, times)| times).collect(),
        left_out,
        cold,
    }
}
