//! What `gemwright tune` measures on a GPU: kernels of ours that the cost model ranks first, and cuBLASLt's proposals.

use super::doctor_cuda::{compile_all, gpu, missing};
use super::tune_worker::{Done, Measures, Stage, Task, timed};
use crate::error::Error;
use gemwright_core::{Catalog, PICKED, Runner, Timed};
use gemwright_cuda::{Device, Tools, compiler_version};
use gemwright_engine::Candidate;
use gemwright_engine::cuda::contest::{Entrants, Field};
use gemwright_engine::cuda::tune::try_all;
use gemwright_engine::cuda::{Case, CublasLt, CudaQueue, Kernel};
use std::sync::Arc;

/// Kernels of ours that are tried.
const OWN: Entrants<'_> = Entrants::Many(10);
/// The one that the cost model picks, where there is no library to be the default.
const ONLY_PICKED: [Kernel; 1] = [Kernel::Picked];

/// The GPU's name and multiprocessors, and who multiplies on it where nobody has tuned.
pub fn gpu_here() -> Result<(String, u64, String), Error> {
    let device = gpu()?;
    compiler_version().map_err(|e| missing(&e))?;
    let default = CublasLt::open().map_or(PICKED.to_string(), |lt| lt.name().to_string());
    Ok((device.properties.name.clone(), device.properties.multiprocessors.into(), default))
}

pub struct OnCuda {
    device: Arc<Device>,
    queue: CudaQueue,
    tools: Tools,
    vendor: Option<CublasLt>,
    bytes: f64,
}

impl OnCuda {
    pub fn new() -> Result<OnCuda, Error> {
        let device = gpu()?;
        let mut queue = CudaQueue::new(&device).map_err(|e| missing(&e))?;
        // Operands are drawn before anything is measured.
        queue.constant_weights = true;
        let tools = Tools::new(&device).map_err(|e| missing(&e))?;
        let bytes = tools.read_bandwidth(&queue.stream).map_err(|e| missing(&e))?;
        Ok(OnCuda { device, queue, tools, vendor: CublasLt::open().ok(), bytes })
    }
}

impl Measures for OnCuda {
    fn here(&self) -> Vec<(String, String)> {
        self.vendor.iter().map(|lt| (lt.name().to_string(), lt.origin())).collect()
    }

    fn measure(&mut self, task: &Task, told: &mut dyn FnMut(Stage)) -> Result<Done, Error> {
        let OnCuda { device, queue, tools, vendor, bytes } = self;
        let entrants = if task.only.as_deref() == Some(PICKED) { Entrants::Named(&ONLY_PICKED) } else { OWN };
        let problem = task.problem;
        let kernels = entrants.of(&problem, device).into_iter();
        let wanted = kernels.filter(|kernel| task.wants(&format!("own.{kernel}")));
        told(Stage::compiling());
        compile_all(&wanted.map(|kernel| Case { kernel, problem }).collect::<Vec<_>>(), device);
        let field = Field { device, queue, tools, vendor: vendor.as_ref(), entrants, table: None };
        // The library has no epilogues; then the default is the kernel that the cost model picks.
        let library = vendor.as_ref().filter(|_| problem.epilogue.is_none()).map(|lt| lt.name().to_string());
        let picked = entrants.of(&problem, device).first().map(|kernel| format!("own.{kernel}"));
        // What is not in the table is answered by these.
        let always: Vec<String> = library.into_iter().chain(picked.clone()).collect();
        let mut tell = |candidate: Option<&str>| match candidate {
            Some(name) => told(Stage::Candidate(name.into())),
            None => told(Stage::together()),
        };
        let runner = |name: &str| Runner { candidate: name.into(), packed: false, split: false };
        let wanted = |name: &str| task.wants(name) && task.wants_way(&runner(name));
        let tried = try_all(&problem, &field, &wanted, &always, task.rounds, &mut tell)
            .map_err(|e| Error::Failed(e.to_string()))?;
        let mut times: Vec<_> = tried.times.iter().filter_map(|times| timed(runner(&times.name), times)).collect();
        if task.only.is_none() && task.among.is_empty() {
            // What the cost model picks, under that name too: of products that were not measured it is all there is to say.
            let known = times.iter().find(|timed| Some(&timed.runner.candidate) == picked.as_ref());
            times.extend(known.map(|known| Timed { runner: runner(PICKED), ..known.clone() }));
        }
        let catalog = Catalog::builtin();
        let chip = catalog.recognise(&device.properties.name, None, None);
        // Of a chip that is not in the catalog the fastest so far says what it can do.
        let fastest = times.iter().map(|timed| problem.flops() as f64 / timed.seconds).fold(0.0, f64::max);
        let flops = chip.and_then(|chip| chip.peak(problem.dtype)).unwrap_or(fastest);
        Ok(Done { times, dropped: tried.dropped, limits: [flops, *bytes] })
    }
}
