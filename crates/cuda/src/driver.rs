//! The driver's objects, as owners that clean up: device, memory, streams, events, graphs, kernels.

use crate::error::{Absent, CudaError};
use crate::library::{Wanted, open};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::{CStr, CString, c_void};
use std::sync::{Arc, OnceLock};

const DRIVER: Wanted = Wanted {
    name: "libcuda",
    variable: "GEMWRIGHT_CUDA",
    files: &["libcuda.so.1", "libcuda.so"],
    companions: "",
    functions: &[
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDeviceTotalMem_v2",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxSetCurrent",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemsetD8Async",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuStreamSynchronize",
        "cuEventCreate",
        "cuEventDestroy_v2",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuEventElapsedTime_v2",
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",
        "cuGraphDestroy",
        "cuGraphExecDestroy",
        "cuModuleLoadData",
        "cuModuleUnload",
        "cuModuleGetFunction",
        "cuFuncSetAttribute",
        "cuLaunchKernelEx",
        "cuTensorMapEncodeTiled",
        "cuGetErrorString",
    ],
    how: "it comes with NVIDIA's driver of CUDA 13 (580 or newer); GEMWRIGHT_CUDA may say where it is",
};

/// Turns a driver's answer into ours.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: a pointer to a text that lives for ever is written, or none.
    let known = unsafe { sys::cuGetErrorString(result, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
    // SAFETY: it ends in zero.
    let why = if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { "unknown".into() };
    Err(CudaError::Call { call, why: format!("{why} ({result:?})") })
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Properties {
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (i32, i32),
    pub multiprocessors: u32,
    /// Bytes that a block may have at most.
    pub shared: u32,
    pub l2: usize,
    pub memory: usize,
    /// Such as 13000.
    pub driver: i32,
}

/// A GPU, with its primary context.
#[derive(Debug)]
pub struct Device {
    context: sys::CUcontext,
    device: sys::CUdevice,
    /// What it says of itself.
    pub properties: Properties,
}

// SAFETY: a context may be made current in any thread, and every call does that first.
unsafe impl Send for Device {}
// SAFETY: as above; the driver locks what it shares.
unsafe impl Sync for Device {}

impl Device {
    /// The device of this number.
    pub fn open(ordinal: i32) -> Result<Arc<Device>, CudaError> {
        static FOUND: OnceLock<Result<String, Absent>> = OnceLock::new();
        FOUND.get_or_init(|| open(&DRIVER)).clone()?;
        // SAFETY: all functions were found; each writes one number or handle where it is told to.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            let (mut count, mut device, mut driver) = (0, 0, 0);
            check("cuDeviceGetCount", sys::cuDeviceGetCount(&mut count))?;
            if ordinal >= count {
                return Err(CudaError::Refused(format!("device {ordinal} is not there, there are {count}")));
            }
            check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal))?;
            check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut driver))?;
            let properties = properties(device, driver)?;
            let mut context = std::ptr::null_mut();
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
            Ok(Arc::new(Device { context, device, properties }))
        }
    }

    /// Our kernels run here: they are for Hopper, by instructions that no other family has.
    pub fn runs_our_kernels(&self) -> Result<(), CudaError> {
        let (name, (major, minor)) = (&self.properties.name, self.properties.capability);
        if (major, minor) == (9, 0) {
            return Ok(());
        }
        let why = format!("our kernels are for compute capability 9.0 (H100, H200), {name} has {major}.{minor}");
        Err(CudaError::Refused(why))
    }

    /// What kernels of mma.sync are compiled for, such as `sm_80`.
    pub fn architecture(&self) -> String {
        let (major, minor) = self.properties.capability;
        format!("sm_{major}{minor}")
    }

    /// Whether the kernels of mma.sync run on it.
    pub fn has_mma(&self) -> Result<(), CudaError> {
        let (name, (major, minor)) = (&self.properties.name, self.properties.capability);
        if major >= 8 {
            return Ok(());
        }
        Err(CudaError::Refused(format!(
            "our kernels are for compute capability 8.0 and up, {name} has {major}.{minor}"
        )))
    }

    /// Makes the device this thread's.
    pub(crate) fn current(&self) -> Result<(), CudaError> {
        // SAFETY: the context was retained and is released when the device is dropped.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: it was retained once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// # Safety
/// The device exists.
unsafe fn properties(device: sys::CUdevice, driver: i32) -> Result<Properties, CudaError> {
    use sys::CUdevice_attribute as Attribute;
    let number = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: a number is written.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
        Ok::<i32, CudaError>(value)
    };
    let mut name = [0u8; 128];
    let mut memory = 0;
    // SAFETY: the name has as many bytes as are said; a number is written.
    unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, device))?;
        check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
    Ok(Properties {
        name,
        capability: (
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        shared: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32,
        l2: number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
        memory,
        driver,
    })
}

/// Memory of a device.
#[derive(Debug)]
pub struct Memory {
    device: Arc<Device>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl Memory {
    /// So many bytes of anything.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Memory, CudaError> {
        device.current()?;
        let mut address = 0;
        // SAFETY: an address is written.
        check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) })?;
        Ok(Memory { device: device.clone(), address, bytes })
    }

    /// Of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes bytes, when the stream gets there; returns when they have been read.
    pub fn write(&self, at: usize, data: &[u8], stream: &Stream) -> Result<(), CudaError> {
        self.within(at, data.len())?;
        self.device.current()?;
        let to = self.address + at as u64;
        // SAFETY: the bytes lie inside, and pageable memory of the host is read before the call returns.
        check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoDAsync_v2(to, data.as_ptr().cast(), data.len(), stream.raw) })
    }

    /// Reads bytes; everything on the stream before has been done then.
    pub fn read(&self, at: usize, data: &mut [u8], stream: &Stream) -> Result<(), CudaError> {
        self.within(at, data.len())?;
        self.device.current()?;
        let from = self.address + at as u64;
        // SAFETY: the bytes lie inside; the slice is not touched before the stream has been waited for.
        check("cuMemcpyDtoH", unsafe {
            sys::cuMemcpyDtoHAsync_v2(data.as_mut_ptr().cast(), from, data.len(), stream.raw)
        })?;
        stream.synchronize()
    }

    /// Sets bytes, when the stream gets there.
    pub fn fill(&self, at: usize, bytes: usize, value: u8, stream: &Stream) -> Result<(), CudaError> {
        self.within(at, bytes)?;
        self.device.current()?;
        // SAFETY: the bytes lie inside.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8Async(self.address + at as u64, value, bytes, stream.raw) })
    }

    fn within(&self, at: usize, bytes: usize) -> Result<(), CudaError> {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let refused = || CudaError::Refused(format!("bytes {at} and {bytes} more of {}", self.bytes));
        inside.then_some(()).ok_or_else(refused)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.device.current().is_ok() {
            // SAFETY: it was allocated once; the driver waits for what is still running.
            unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Work in its order.
#[derive(Debug)]
pub struct Stream {
    device: Arc<Device>,
    raw: sys::CUstream,
}

// SAFETY: the driver locks streams.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    #[allow(missing_docs)]
    pub fn new(device: &Arc<Device>) -> Result<Stream, CudaError> {
        device.current()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a handle is written.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Stream { device: device.clone(), raw })
    }

    /// Whose it is.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The driver's handle, for libraries that take one.
    pub fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Waits until all of it has been done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.device.current()?;
        // SAFETY: the stream lives.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// What `work` puts on the stream, as one thing that can be run again and again; nothing is run now.
    pub fn capture<E: From<CudaError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        self.device.current()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) })?;
        let done = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the capture began above; a handle is written.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.raw, &mut graph) });
        done?;
        ended?;
        let mut ready = std::ptr::null_mut();
        // SAFETY: the graph was captured; a handle is written.
        let made = check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut ready, graph, 0) });
        // SAFETY: as above; what was made of it does not need it.
        unsafe { sys::cuGraphDestroy(graph) };
        made?;
        Ok(Graph { device: self.device.clone(), raw: ready })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.device.current().is_ok() {
            // SAFETY: it was created once.
            unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// Work that was captured. Its memory must live as long.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    raw: sys::CUgraphExec,
}

impl Graph {
    /// Puts it on a stream.
    ///
    /// # Safety
    /// Everything that was captured still has its memory, which nobody else touches until the stream has done it.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.device.current()?;
        // SAFETY: graph and stream live; the rest is the caller's.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.raw, stream.raw) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.current().is_ok() {
            // SAFETY: it was instantiated once.
            unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

/// A moment on a stream.
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    raw: sys::CUevent,
}

impl Event {
    #[allow(missing_docs)]
    pub fn new(device: &Arc<Device>) -> Result<Event, CudaError> {
        device.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a handle is written.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, 0) })?;
        Ok(Event { device: device.clone(), raw })
    }

    /// When the stream gets here.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.device.current()?;
        // SAFETY: both live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw) })
    }

    /// Seconds from an earlier event to this one, which is waited for.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64, CudaError> {
        self.device.current()?;
        let mut milliseconds = 0f32;
        // SAFETY: both live; a number is written.
        unsafe {
            check("cuEventSynchronize", sys::cuEventSynchronize(self.raw))?;
            check("cuEventElapsedTime", sys::cuEventElapsedTime_v2(&mut milliseconds, earlier.raw, self.raw))?;
        }
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.current().is_ok() {
            // SAFETY: it was created once.
            unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

/// A function of a compiled text, on a device.
#[derive(Debug)]
pub struct Kernel {
    device: Arc<Device>,
    module: sys::CUmodule,
    function: sys::CUfunction,
    shared: u32,
}

// SAFETY: the driver locks modules; launching changes nothing in them.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Loads it; its blocks get `shared` bytes.
    pub fn load(device: &Arc<Device>, cubin: &[u8], name: &str, shared: u32) -> Result<Kernel, CudaError> {
        if shared > device.properties.shared {
            let has = device.properties.shared;
            return Err(CudaError::Refused(format!(
                "a block needs {shared} bytes of shared memory, it may have {has}"
            )));
        }
        device.current()?;
        let name = CString::new(name).map_err(|_| CudaError::Refused("a name with a zero byte".into()))?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the driver checks the image, which carries its own length; handles are written.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) })?;
        let mut kernel = Kernel { device: device.clone(), module, function, shared };
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the module was loaded, the name ends in zero.
        unsafe {
            check("cuModuleGetFunction", sys::cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
            check("cuFuncSetAttribute", sys::cuFuncSetAttribute(function, attribute, shared as i32))?;
            if shared > 48 << 10 {
                // Kernels that follow each other find the same division of the cache, whatever each of them needs.
                let all = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
                check("cuFuncSetAttribute", sys::cuFuncSetAttribute(function, all, 100))?;
            }
        }
        kernel.function = function;
        Ok(kernel)
    }

    /// Puts a run on a stream, with one parameter. `early`: its blocks may start before the kernel before it has
    /// ended, which it waits for itself.
    ///
    /// # Safety
    /// The kernel takes one parameter of this type, and everything it points at is as the kernel's contract says until
    /// the stream has done it.
    pub unsafe fn launch<P>(
        &self,
        stream: &Stream,
        grid: u32,
        block: u32,
        parameter: &P,
        early: bool,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's.
        unsafe { self.launch_with(stream, (grid, block, self.shared), parameter, early) }
    }

    /// The same with less shared memory than it was loaded for.
    ///
    /// # Safety
    /// As for `launch`; the kernel gets by with so many bytes.
    pub unsafe fn launch_with<P>(
        &self,
        stream: &Stream,
        (grid, block, shared): (u32, u32, u32),
        parameter: &P,
        early: bool,
    ) -> Result<(), CudaError> {
        self.device.current()?;
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: stream.raw,
            attrs: &mut attribute,
            numAttrs: u32::from(early),
        };
        let mut parameters = [std::ptr::from_ref(parameter).cast_mut().cast::<c_void>()];
        // SAFETY: the driver copies the parameter before it returns; the rest is the caller's.
        check("cuLaunchKernelEx", unsafe {
            sys::cuLaunchKernelEx(&config, self.function, parameters.as_mut_ptr(), std::ptr::null_mut())
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.device.current().is_ok() {
            // SAFETY: it was loaded once.
            unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}
