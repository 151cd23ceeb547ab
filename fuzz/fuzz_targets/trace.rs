//! Any bytes as a trace: nothing may panic, leak or hang, and how a text is cut must not matter.
#![no_main]

use gemwright_trace::tables::all;
use gemwright_trace::{Analysis, Mode, Reading, Trace, calls, read};
use libfuzzer_sys::fuzz_target;

/// What must be the same however it was read.
fn essence(trace: &Trace) -> impl PartialEq + std::fmt::Debug {
    let event = |e: &gemwright_trace::Event| {
        let lists = [0, 1, 2, 3].map(|i| trace.list(e, i).map(<[u8]>::to_vec));
        let name = trace.texts[e.name as usize].to_vec();
        (e.uid, e.category, name, lists, e.start, e.duration, e.correlation, e.external, e.sequence)
    };
    (trace.count, trace.problems.list(), trace.events.iter().map(event).collect::<Vec<_>>())
}

fn gave_up(trace: &Trace) -> bool {
    trace.problems.list().iter().any(|problem| problem.what.starts_with("a stretch"))
}

fuzz_target!(|data: &[u8]| {
    let reading = Reading { arrows: true, ..Reading::default() };
    let whole = read(data, reading);
    let pieces = read(data, Reading { chunk: Some(64), low_memory: true, ..reading });
    match (&whole, &pieces) {
        // Where a stretch is given up depends on how long the text around it is.
        (Ok(whole), Ok(pieces)) if gave_up(whole) || gave_up(pieces) => {}
        (Ok(whole), Ok(pieces)) => assert_eq!(essence(whole), essence(pieces)),
        (Err(_), Err(_)) => {}
        // The head may lie in one chunk and not in the other; that it is refused is enough.
        _ => assert!(whole.is_err() || pieces.is_err()),
    }
    if let Ok(trace) = whole {
        let exact = Analysis::<i64>::new(&trace, Mode::Exact);
        all(&exact, None);
        for call in calls::workload(&exact, Default::default()).calls() {
            let _ = (call.flops(), call.bytes(), call.blas_steps(calls::settings(&exact)));
        }
        all(&Analysis::<f64>::new(&trace, Mode::TraceLens), None);
    }
});
