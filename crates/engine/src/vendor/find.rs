//! Where libraries lie: where the user says, on the loader's path, where Debian puts them, in a Python
//! environment.

use libloading::Library;
use std::path::{Path, PathBuf};

/// Opens the first that can be opened. `variable` is an environment variable with the path of one.
pub fn open(variable: &str, names: &[&str], folders: &[&str]) -> Result<(Library, String), String> {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        return load(&path).map_err(|why| format!("{variable}={}: {why}", path.display()));
    }
    let mut why = String::from("not found");
    for folder in places(folders) {
        for name in names {
            let path = folder.join(name);
            // A bare name goes to the loader, which knows where to look.
            if folder.as_os_str().is_empty() || path.is_file() {
                match load(&path) {
                    Ok(found) => return Ok(found),
                    Err(error) if path.is_file() => why = format!("{}: {error}", path.display()),
                    Err(_) => {}
                }
            }
        }
    }
    Err(why)
}

fn load(path: &Path) -> Result<(Library, String), String> {
    // SAFETY: a library of that name is trusted to initialise itself properly, as any program that links
    // it does; the user can point elsewhere.
    let library = unsafe { Library::new(path) };
    library.map(|library| (library, path.display().to_string())).map_err(|error| error.to_string())
}

/// The loader's path, Debian's folders, a Python environment's.
fn places(folders: &[&str]) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::new()];
    let debian = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    places.extend(folders.iter().map(|folder| debian.join(folder)));
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from) {
        places.push(environment.join("lib"));
        for version in std::fs::read_dir(environment.join("lib")).into_iter().flatten().flatten() {
            let packages = version.path().join("site-packages");
            places.extend(folders.iter().map(|folder| packages.join(folder)));
        }
    }
    places
}
