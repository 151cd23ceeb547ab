//! The crates gemm, matrixmultiply and faer behind the C BLAS interface, one prefix each, so that
//! `gemwright bench` opens them as it opens any other library.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

static THREADS: AtomicUsize = AtomicUsize::new(1);

/// Threads of all three.
#[unsafe(no_mangle)]
pub extern "C" fn rivals_set_num_threads(threads: c_int) {
    let threads = threads.max(1) as usize;
    THREADS.store(threads, Ordering::Relaxed);
    // matrixmultiply reads this at its first product, and never again.
    // SAFETY: called before any product, while no other thread reads the environment.
    unsafe { std::env::set_var("MATMUL_NUM_THREADS", threads.to_string()) };
}

#[unsafe(no_mangle)]
pub extern "C" fn gemm_version() -> *const c_char {
    c"the crate gemm 0.19, feature x86-v4".as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn matrixmultiply_version() -> *const c_char {
    c"the crate matrixmultiply 0.3, feature threading".as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn faer_version() -> *const c_char {
    c"the crate faer 0.24".as_ptr()
}

const COLUMN_MAJOR: c_int = 102;
const TRANSPOSED: c_int = 112;

/// Row and column steps of an operand with this leading dimension.
fn steps(order: c_int, trans: c_int, leading: c_int) -> (isize, isize) {
    let leading = leading as isize;
    if (order == COLUMN_MAJOR) == (trans == TRANSPOSED) { (leading, 1) } else { (1, leading) }
}

/// One product by strides, as every crate takes it.
struct Product<T> {
    extents: [usize; 3],
    alpha: T,
    beta: T,
    a: (*const T, (isize, isize)),
    b: (*const T, (isize, isize)),
    c: (*mut T, (isize, isize)),
}

macro_rules! interface {
    ($type:ty, $run:path, $name:ident) => {
        /// # Safety
        /// As the C BLAS: operands of these extents and leading dimensions.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            order: c_int,
            transa: c_int,
            transb: c_int,
            m: c_int,
            n: c_int,
            k: c_int,
            alpha: $type,
            a: *const $type,
            lda: c_int,
            b: *const $type,
            ldb: c_int,
            beta: $type,
            c: *mut $type,
            ldc: c_int,
        ) {
            let product = Product {
                extents: [m, n, k].map(|x| x as usize),
                alpha,
                beta,
                a: (a, steps(order, transa, lda)),
                b: (b, steps(order, transb, ldb)),
                c: (c, steps(order, 0, ldc)),
            };
            // SAFETY: by the contract.
            unsafe { $run(product) };
        }
    };
}

unsafe fn by_gemm<T: 'static + Copy + PartialEq + From<f32>>(p: Product<T>) {
    let [m, n, k] = p.extents;
    let threads = THREADS.load(Ordering::Relaxed);
    let parallel = if threads > 1 { gemm::Parallelism::Rayon(threads) } else { gemm::Parallelism::None };
    let reads = p.beta != T::from(0.0);
    let (a, b, c) = (p.a, p.b, p.c);
    // SAFETY: strides and extents are the caller's. Its alpha is the result's factor, ours the product's.
    unsafe {
        gemm::gemm(
            m, n, k, c.0, c.1.1, c.1.0, reads, a.0, a.1.1, a.1.0, b.0, b.1.1, b.1.0, p.beta, p.alpha, false, false, false,
            parallel,
        );
    }
}

unsafe fn by_matrixmultiply_f32(p: Product<f32>) {
    let [m, n, k] = p.extents;
    let (a, b, c) = (p.a, p.b, p.c);
    // SAFETY: strides and extents are the caller's.
    unsafe { matrixmultiply::sgemm(m, k, n, p.alpha, a.0, a.1.0, a.1.1, b.0, b.1.0, b.1.1, p.beta, c.0, c.1.0, c.1.1) };
}

unsafe fn by_matrixmultiply_f64(p: Product<f64>) {
    let [m, n, k] = p.extents;
    let (a, b, c) = (p.a, p.b, p.c);
    // SAFETY: strides and extents are the caller's.
    unsafe { matrixmultiply::dgemm(m, k, n, p.alpha, a.0, a.1.0, a.1.1, b.0, b.1.0, b.1.1, p.beta, c.0, c.1.0, c.1.1) };
}

unsafe fn by_faer<T: faer::traits::ComplexField + Copy + PartialEq + From<f32>>(p: Product<T>)
where
    T: std::ops::Mul<Output = T>,
{
    let [m, n, k] = p.extents;
    let threads = THREADS.load(Ordering::Relaxed);
    let parallel = if threads > 1 { faer::Par::rayon(threads) } else { faer::Par::Seq };
    // SAFETY: strides and extents are the caller's.
    let (a, b, mut c) = unsafe {
        (
            faer::MatRef::from_raw_parts(p.a.0, m, k, p.a.1.0, p.a.1.1),
            faer::MatRef::from_raw_parts(p.b.0, k, n, p.b.1.0, p.b.1.1),
            faer::MatMut::from_raw_parts_mut(p.c.0, m, n, p.c.1.0, p.c.1.1),
        )
    };
    let (zero, one) = (T::from(0.0), T::from(1.0));
    if p.beta != zero && p.beta != one {
        for j in 0..n {
            for i in 0..m {
                c[(i, j)] = c[(i, j)] * p.beta;
            }
        }
    }
    let onto = if p.beta == zero { faer::Accum::Replace } else { faer::Accum::Add };
    faer::linalg::matmul::matmul(c, onto, a, b, p.alpha, parallel);
}

interface!(f32, by_gemm::<f32>, gemm_cblas_sgemm);
interface!(f64, by_gemm::<f64>, gemm_cblas_dgemm);
interface!(f32, by_matrixmultiply_f32, matrixmultiply_cblas_sgemm);
interface!(f64, by_matrixmultiply_f64, matrixmultiply_cblas_dgemm);
interface!(f32, by_faer::<f32>, faer_cblas_sgemm);
interface!(f64, by_faer::<f64>, faer_cblas_dgemm);
