//! Where CUDA's libraries lie: where the user says, on the loader's path, in a toolkit's folder, in a Python environment.
//! cudarc, which calls them, looks on the loader's path alone and panics where it finds nothing: what it is going to
//! ask for is opened here first, and stays.

use crate::error::Absent;
use libloading::Library;
use std::path::{Path, PathBuf};

/// A library, and the functions of it that are called.
pub struct Wanted {
    /// As in messages.
    pub name: &'static str,
    /// An environment variable with its path.
    pub variable: &'static str,
    /// File names, newest first.
    pub files: &'static [&'static str],
    /// Files beside it that it looks for by name when it is used.
    pub companions: &'static str,
    #[allow(missing_docs)]
    pub functions: &'static [&'static str],
    /// How to get it.
    pub how: &'static str,
}

/// Opens a library for good, with everything it is asked for; says from where.
pub fn open(wanted: &Wanted) -> Result<String, Absent> {
    let absent = |why: String| Absent { name: wanted.name, why, how: wanted.how };
    let mut why = String::from("not found");
    let given = std::env::var_os(wanted.variable).map(PathBuf::from);
    let tried: Vec<PathBuf> = match &given {
        Some(path) => vec![path.clone()],
        None => places().iter().flat_map(|folder| wanted.files.iter().map(|file| folder.join(file))).collect(),
    };
    for path in tried {
        // A bare name goes to the loader, which knows where to look.
        if path.parent() != Some(Path::new("")) && !path.is_file() {
            if given.is_some() {
                why = format!("{}={}: no such file", wanted.variable, path.display());
            }
            continue;
        }
        preload(&path, wanted.companions);
        match keep(&path) {
            Err(error) if path.is_file() => why = format!("{}: {error}", path.display()),
            Err(_) => {}
            Ok(library) => {
                for function in wanted.functions {
                    // SAFETY: its address is looked up, not called.
                    if unsafe { library.get::<unsafe extern "C" fn()>(function.as_bytes()) }.is_err() {
                        return Err(absent(format!("{} has no {function}, it is too old", path.display())));
                    }
                }
                return Ok(path.display().to_string());
            }
        }
    }
    Err(absent(why))
}

/// Opens files beside a library whose names begin so.
pub fn preload(path: &Path, companions: &str) {
    let Some(folder) = path.parent().filter(|folder| !companions.is_empty() && !folder.as_os_str().is_empty()) else {
        return;
    };
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if file.file_name().to_string_lossy().starts_with(companions) {
            // One that cannot be opened is missed by whoever needs it, who says so.
            let _ = keep(&file.path());
        }
    }
}

/// Opens a library and never closes it: by its own name it is found again from then on.
fn keep(path: &Path) -> Result<&'static Library, String> {
    // SAFETY: a library of that name is trusted to initialise itself properly, as any program that links it does; the
    // user can point elsewhere.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    Ok(Box::leak(Box::new(library)))
}

/// Folders in which CUDA's libraries are looked for, the loader's path (empty) first.
pub fn places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::new()];
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        places.extend(std::env::var_os(variable).map(|home| PathBuf::from(home).join("lib64")));
    }
    places.push("/usr/local/cuda/lib64".into());
    places.push(Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH)));
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV").or_else(|| std::env::var_os("CONDA_PREFIX")) {
        let lib = PathBuf::from(environment).join("lib");
        places.push(lib.clone());
        for version in std::fs::read_dir(lib).into_iter().flatten().flatten() {
            let nvidia = version.path().join("site-packages/nvidia");
            places.extend(["cu13", "cuda_nvrtc", "cublas"].map(|package| nvidia.join(package).join("lib")));
        }
    }
    places
}
