//! One file a subcommand.

pub mod bench;
mod bench_cuda;
mod bench_page;
pub mod chips;
pub mod compare;
mod compare_answer;
mod compare_page;
pub mod completions;
pub mod doctor;
mod doctor_cuda;
pub mod explain;
pub mod export;
pub mod lint;
pub mod man;
pub mod model;
mod model_page;
pub mod roof;
pub mod trace;
mod trace_files;
mod trace_page;
mod trace_ranks;
mod trace_screen;
pub mod tune;
mod tune_cpu;
mod tune_cuda;
mod tune_process;
mod tune_worker;
