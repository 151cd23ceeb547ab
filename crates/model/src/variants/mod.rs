//! The same model run in another way: projections put together, layers split over GPUs, weights
//! stored in fewer bits. Each changes the architecture's numbers; the interpreter stays as it is.

mod fuse;
mod split;
mod store;

use crate::architecture::Architecture;
use crate::error::ModelError;
use crate::options::{ExpertsWay, Options, Phase};

/// Makes the variant that was asked for; gives what is worth saying about it.
pub fn apply(arch: &mut Architecture, options: &Options) -> Result<Vec<String>, ModelError> {
    let wrong = |option: &'static str| move |why: String| ModelError::Option { option, why };
    let kind = arch.model_type.clone();
    let mut notes = Vec::new();
    if options.fuse.qkv {
        notes.extend(fuse::qkv(arch).map_err(wrong("--fuse"))?);
    }
    if options.fuse.gate_up {
        notes.extend(fuse::gate_up(arch).map_err(wrong("--fuse"))?);
    }
    if options.tp != 1 {
        split::over(arch, options.tp).map_err(wrong("--tp"))?;
    }
    if let Some(format) = options.weight_format {
        if options.phase() == Phase::Train {
            return Err(wrong("--weight-dtype")(format!("{}: weights that learn are not stored so", format.name())));
        }
        if options.experts == Some(ExpertsWay::Batched) {
            let why = "with --experts batched_mm: gathered weights would be widened first; use grouped_mm".into();
            return Err(wrong("--weight-dtype")(why));
        }
        store::weights(arch, format).map_err(|why| wrong("--weight-dtype")(format!("{kind}: {why}")))?;
    }
    Ok(notes)
}
