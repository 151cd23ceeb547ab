//! Kernels compiled when they are needed.

use crate::cache;
use crate::error::{Absent, CudaError};
use crate::library::{Wanted, open};
use cudarc::nvrtc::sys;
use std::ffi::CString;
use std::sync::OnceLock;

const NVRTC: Wanted = Wanted {
    name: "libnvrtc",
    variable: "GEMWRIGHT_NVRTC",
    files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    companions: "libnvrtc-builtins.so",
    functions: &[
        "nvrtcVersion",
        "nvrtcCreateProgram",
        "nvrtcCompileProgram",
        "nvrtcDestroyProgram",
        "nvrtcGetCUBIN",
        "nvrtcGetCUBINSize",
        "nvrtcGetProgramLog",
        "nvrtcGetProgramLogSize",
        "nvrtcGetErrorString",
    ],
    how: "it comes with the CUDA toolkit, or by `pip install nvidia-cuda-nvrtc` into an active virtual environment; \
          GEMWRIGHT_NVRTC may say where it is",
};

/// A kernel for one architecture.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// What the driver loads.
    pub cubin: Vec<u8>,
    /// What the compiler said; empty for one that was kept.
    pub log: String,
}

/// Opens the compiler once.
fn compiler() -> Result<(), Absent> {
    static FOUND: OnceLock<Result<String, Absent>> = OnceLock::new();
    FOUND.get_or_init(|| open(&NVRTC)).clone().map(|_| ())
}

/// The compiler's version.
pub fn compiler_version() -> Result<(i32, i32), CudaError> {
    compiler()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two numbers are written.
    check("nvrtcVersion", unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
    Ok((major, minor))
}

/// Compiles a text with its headers (name, text), or takes it from the disk; `anew` does neither look nor keep.
/// `architecture` is as in `sm_90a`.
pub fn compile(
    text: &str,
    headers: &[(&str, &str)],
    architecture: &str,
    defines: &[(String, String)],
    anew: bool,
) -> Result<Compiled, CudaError> {
    let version = compiler_version()?;
    let mut options = vec![format!("--gpu-architecture={architecture}"), "--std=c++17".into()];
    options.push("--ptxas-options=-v".into());
    options.extend(defines.iter().map(|(name, value)| format!("-D{name}={value}")));
    let (compiler, joined) = (format!("{version:?}"), options.join("\n"));
    let mut parts = vec![compiler.as_str(), joined.as_str(), text];
    parts.extend(headers.iter().flat_map(|(name, text)| [*name, *text]));
    let key = cache::key(&parts);
    if let Some(cubin) = cache::get(&key).filter(|_| !anew) {
        return Ok(Compiled { cubin, log: String::new() });
    }
    let compiled = run(text, headers, &options)?;
    if !anew {
        cache::put(&key, &compiled.cubin);
    }
    Ok(compiled)
}

/// A program that is destroyed when it is done with.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was created, once.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn run(text: &str, headers: &[(&str, &str)], options: &[String]) -> Result<Compiled, CudaError> {
    let c = |text: &str| CString::new(text).map_err(|_| CudaError::Refused("a text has a zero byte in it".into()));
    let (source, name) = (c(text)?, c("gemwright.cu")?);
    let names: Vec<CString> = headers.iter().map(|(name, _)| c(name)).collect::<Result<_, _>>()?;
    let texts: Vec<CString> = headers.iter().map(|(_, text)| c(text)).collect::<Result<_, _>>()?;
    let options: Vec<CString> = options.iter().map(|option| c(option)).collect::<Result<_, _>>()?;
    let pointers = |all: &[CString]| all.iter().map(|one| one.as_ptr()).collect::<Vec<_>>();
    let (names, texts, options) = (pointers(&names), pointers(&texts), pointers(&options));
    let mut program = Program(std::ptr::null_mut());
    // SAFETY: all strings end in zero and outlive the call; there are as many names as texts.
    check("nvrtcCreateProgram", unsafe {
        let count = headers.len() as i32;
        sys::nvrtcCreateProgram(
            &mut program.0,
            source.as_ptr(),
            name.as_ptr(),
            count,
            texts.as_ptr().cast(),
            names.as_ptr().cast(),
        )
    })?;
    // SAFETY: the program was created, the options end in zero.
    let result = unsafe { sys::nvrtcCompileProgram(program.0, options.len() as i32, options.as_ptr().cast()) };
    let log = log_of(&program)?;
    if let Err(error) = check("nvrtcCompileProgram", result) {
        return Err(CudaError::Compile { why: error.to_string(), log });
    }
    let mut bytes = 0usize;
    // SAFETY: a number is written.
    check("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(program.0, &mut bytes) })?;
    let mut cubin = vec![0u8; bytes];
    // SAFETY: as many bytes are written as were asked for.
    check("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()) })?;
    Ok(Compiled { cubin, log })
}

fn log_of(program: &Program) -> Result<String, CudaError> {
    let mut bytes = 0usize;
    // SAFETY: a number is written.
    check("nvrtcGetProgramLogSize", unsafe { sys::nvrtcGetProgramLogSize(program.0, &mut bytes) })?;
    let mut log = vec![0u8; bytes];
    // SAFETY: as many bytes are written as were asked for.
    check("nvrtcGetProgramLog", unsafe { sys::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast()) })?;
    Ok(String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_string())
}

fn check(call: &'static str, result: sys::nvrtcResult) -> Result<(), CudaError> {
    if result == sys::nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Call { call, why: format!("{result:?}") })
}
