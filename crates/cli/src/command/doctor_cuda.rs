//! `gemwright doctor --device cuda`: what the GPU is, and every kernel of ours held against sums in double precision.

use super::doctor::Args;
use crate::error::Error;
use crate::output::Format;
use gemwright_cuda::{CudaError, Device, cache_folder, cache_size, compiler_version};
use gemwright_engine::cuda::{Case, CublasLt, Kernel, Verdict, cases, check_all, check_bias_gradients, check_chains};
use gemwright_report as report;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an absent library or a refused kernel is to a user.
pub fn missing(error: &CudaError) -> Error {
    Error::Missing(error.to_string())
}

/// The GPU, if our kernels run on it.
pub fn gpu() -> Result<Arc<Device>, Error> {
    let device = Device::open(0).map_err(|e| missing(&e))?;
    device.runs_our_kernels().map_err(|e| missing(&e))?;
    Ok(device)
}

pub fn run(args: &Args) -> Result<(), Error> {
    let device = gpu()?;
    let compiler = compiler_version().map_err(|e| missing(&e))?;
    let vendor = CublasLt::open();
    let mut cases = cases();
    if let Some(wanted) = &args.kernel {
        cases.retain(|case| case.kernel.to_string().contains(wanted.as_str()));
    }
    if cases.is_empty() {
        return Err(Error::Usage("--kernel: no kernel has that in its name".into()));
    }
    compile_all(&cases, &device);
    let (mut right, mut refused, mut worst, mut wrong) = (0usize, 0usize, 0f64, Vec::new());
    let mut count = |what: String, verdict: &Verdict| match verdict {
        Verdict::Right(off) => (right, worst) = (right + 1, worst.max(*off)),
        Verdict::Refused(_) => refused += 1,
        Verdict::Wrong(why) => wrong.push(format!("{what}: {why}")),
    };
    let failed = |e: CudaError| Error::Failed(e.to_string());
    // Of every kernel that takes a case, whether it was right once: one that does not compile refuses them all.
    let mut ran: BTreeMap<String, bool> = BTreeMap::new();
    let mut told = |case: &Case, verdict: &Verdict| {
        if case.kernel.build(&case.problem, &device).is_some() {
            *ran.entry(case.kernel.to_string()).or_default() |= matches!(verdict, Verdict::Right(_));
        }
        count(describe(case), verdict);
    };
    check_all(&cases, &device, &mut told).map_err(failed)?;
    if args.kernel.is_none() {
        let chains = check_chains(&device).map_err(failed)?;
        for (what, verdict) in check_bias_gradients(&device).map_err(failed)?.into_iter().chain(chains) {
            count(what, &verdict);
        }
    }
    let idle: Vec<&str> = ran.iter().filter(|(_, ran)| !**ran).map(|(name, _)| name.as_str()).collect();
    let p = &device.properties;
    let text = if args.output.format == Format::Json {
        let vendor = vendor.as_ref().map_or_else(
            |absent| json!({"why": absent.why, "how": absent.how}),
            |lt| json!(gemwright_engine::Candidate::origin(lt)),
        );
        json!({
            "format": 1,
            "device": {"name": p.name, "capability": p.capability, "multiprocessors": p.multiprocessors, "l2": p.l2,
                       "memory": p.memory, "driver": p.driver, "nvrtc": compiler},
            "cublaslt": vendor, "right": right, "refused": refused, "worst": worst, "wrong": wrong,
            "kernels": ran.len(), "not_run": idle,
        })
        .to_string()
    } else {
        let vendor = vendor.as_ref().map_or_else(ToString::to_string, gemwright_engine::Candidate::origin);
        let mut lines = vec![
            format!(
                "gpu          {}, {} multiprocessors, {}",
                p.name,
                p.multiprocessors,
                report::bytes(p.memory as u128)
            ),
            format!("cuda         driver {}, nvrtc {}.{}", p.driver, compiler.0, compiler.1),
            format!("cublaslt     {vendor}"),
            format!(
                "kernels      {} of {} ran; {right} cases right, {refused} refused, {} wrong; worst error {} of its bound",
                ran.len() - idle.len(),
                ran.len(),
                wrong.len(),
                report::percent(worst)
            ),
            kept_kernels(),
        ];
        lines.extend(wrong.iter().map(|why| format!("WRONG        {why}")));
        lines.extend(idle.iter().map(|name| format!("NOT RUN      {name}")));
        lines.join("\n")
    };
    args.output.write(&text)?;
    match (wrong.len(), idle.len()) {
        (0, 0) => Ok(()),
        (0, count) => Err(Error::Failed(format!("{count} kernels never ran"))),
        (count, _) => Err(Error::Failed(format!("{count} cases are wrong"))),
    }
}

/// Where compiled kernels are kept, and what they take there.
pub fn kept_kernels() -> String {
    let Some(folder) = cache_folder() else { return "kept         nothing: there is no folder for it".into() };
    let (count, bytes) = cache_size();
    format!("kept         {count} compiled kernels, {} in {}", report::bytes(bytes.into()), folder.display())
}

fn describe(case: &Case) -> String {
    let (p, problem) = (case.problem.product, &case.problem);
    format!(
        "{} {} {}x{}x{}x{} {} to {} {} alpha {} beta {} out {:?}",
        case.kernel,
        problem.letters(),
        p.batch,
        p.m,
        p.n,
        p.k,
        problem.dtype,
        problem.out_dtype,
        problem.epilogue.names().join(","),
        problem.alpha,
        problem.beta,
        problem.out
    )
}

/// Kernels are compiled side by side before they are run one after the other.
pub fn compile_all(cases: &[Case], device: &Arc<Device>) {
    let mut configs: Vec<_> = cases.iter().filter_map(|case| case.kernel.build(&case.problem, device)).collect();
    configs.sort_by_key(|config| format!("{config:?}"));
    configs.dedup();
    let (next, threads) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(config) = configs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // One that does not compile says so when it is wanted.
                    let _ = config.compile(device);
                }
            });
        }
    });
}

/// Kernels by name, or what names there are.
pub fn named(name: &str) -> Result<Kernel, Error> {
    Kernel::named(name).ok_or_else(|| {
        let all: Vec<String> = Kernel::all().chain([Kernel::Picked]).map(|kernel| kernel.to_string()).collect();
        Error::Missing(format!("no kernel is called `{name}`; there are {}", all.join(", ")))
    })
}
