//! Boxes that TMA moves, with their rules checked before the driver sees them: it says no more than "invalid value".

use crate::driver::check;
use crate::error::CudaError;
use cudarc::driver::sys;
use gemwright_core::DType;

/// How 16-byte units of a row change places in shared memory, so that a column of them is in different banks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Swizzle {
    None,
    B32,
    B64,
    B128,
}

impl Swizzle {
    /// Bytes after which it repeats along a row.
    pub fn span(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// The one whose span is a row of so many bytes.
    pub fn of_row(bytes: u32) -> Option<Swizzle> {
        [Swizzle::B128, Swizzle::B64, Swizzle::B32, Swizzle::None].into_iter().find(|swizzle| swizzle.span() == bytes)
    }

    /// Where the 16-byte unit of a row lies in a box whose rows are one span: bits 4.. of the address are changed by
    /// bits 7.. of it.
    pub fn place(self, row: u32, unit: u32) -> u32 {
        let plain = row * self.span() + unit * 16;
        let bits = self.span() / 16 - 1;
        plain ^ (((plain >> 7) & bits) << 4)
    }
}

/// Rows of a matrix, or of several one after the other, in boxes. The first dimension is contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct TensorBox {
    pub dtype: DType,
    pub address: u64,
    pub cols: u64,
    pub rows: u64,
    pub batch: u64,
    /// Elements from row to row, and from matrix to matrix.
    pub row: u64,
    pub next: u64,
    pub box_cols: u32,
    pub box_rows: u32,
    /// Matrices in a box.
    pub box_batch: u32,
    pub swizzle: Swizzle,
}

/// Why TMA cannot move such boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BoxError {
    #[error("{0} is no type of TMA's here")]
    DType(DType),
    #[error("the first element is not on a multiple of 16 bytes")]
    Address,
    #[error("rows, or matrices, {0} elements apart are no multiple of 16 bytes, or too far")]
    Stride(u64),
    #[error("an extent of {0} is nothing, or too much")]
    Extent(u64),
    #[error(
        "a box of {cols} by {rows} elements: at most 256 each way, whole units of 16 bytes, one span of the swizzle"
    )]
    Box { cols: u32, rows: u32 },
}

impl TensorBox {
    /// The rules of `cuTensorMapEncodeTiled`.
    pub fn check(&self) -> Result<(), BoxError> {
        if !matches!(self.dtype, DType::Bf16 | DType::F16 | DType::F32 | DType::F8E4m3) {
            return Err(BoxError::DType(self.dtype));
        }
        if self.address == 0 || !self.address.is_multiple_of(16) {
            return Err(BoxError::Address);
        }
        let bytes = self.dtype.bytes();
        for (extent, stride) in [(self.rows, self.row), (self.batch, self.next)] {
            let far = stride.checked_mul(bytes).is_none_or(|far| far % 16 != 0 || far >= 1 << 40);
            if extent > 1 && (far || stride == 0) {
                return Err(BoxError::Stride(stride));
            }
        }
        if let Some(extent) = [self.cols, self.rows, self.batch].into_iter().find(|e| *e == 0 || *e > 1 << 32) {
            return Err(BoxError::Extent(extent));
        }
        let row = u64::from(self.box_cols) * bytes;
        let fits = [self.box_cols, self.box_rows, self.box_batch].iter().all(|extent| (1..=256).contains(extent));
        if !fits || !row.is_multiple_of(16) || (self.swizzle != Swizzle::None && row > u64::from(self.swizzle.span())) {
            return Err(BoxError::Box { cols: self.box_cols, rows: self.box_rows });
        }
        Ok(())
    }

    /// What kernels take. The driver must have been opened.
    pub(crate) fn encode(&self) -> Result<sys::CUtensorMap, CudaError> {
        self.check().map_err(|why| CudaError::Refused(format!("a tensor map: {why}")))?;
        use sys::CUtensorMapDataType_enum as Type;
        use sys::CUtensorMapSwizzle_enum as S;
        let dtype = match self.dtype {
            DType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            DType::F8E4m3 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            _ => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        };
        let swizzle = match self.swizzle {
            Swizzle::None => S::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::B32 => S::CU_TENSOR_MAP_SWIZZLE_32B,
            Swizzle::B64 => S::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::B128 => S::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        // A stride that is never taken must be a valid one all the same.
        let step = |extent: u64, stride: u64| if extent > 1 { stride * self.dtype.bytes() } else { 16 };
        let dims = [self.cols, self.rows, self.batch];
        let strides = [step(self.rows, self.row), step(self.batch, self.next)];
        let (boxes, every) = ([self.box_cols, self.box_rows, self.box_batch], [1u32; 3]);
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: arrays of three and two numbers are read, as rank 3 wants; the address is not looked at.
        check("cuTensorMapEncodeTiled", unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                dtype,
                3,
                self.address as *mut std::ffi::c_void,
                dims.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                every.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                // With 256 the cache brings more than is read where rows begin on less than that, and memory is slower
                // even where they do not: 4.1 rather than 4.6 TB/s.
                sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        })?;
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn fine() -> TensorBox {
        TensorBox {
            dtype: DType::Bf16,
            address: 1024,
            cols: 200,
            rows: 77,
            batch: 1,
            row: 200,
            next: 0,
            box_cols: 64,
            box_rows: 128,
            box_batch: 1,
            swizzle: Swizzle::B128,
        }
    }

    #[test]
    fn rules_are_checked() {
        assert_eq!(fine().check(), Ok(()));
        assert_eq!(TensorBox { address: 1026, ..fine() }.check(), Err(BoxError::Address));
        assert_eq!(TensorBox { row: 201, ..fine() }.check(), Err(BoxError::Stride(201)));
        // One row: its stride is never taken.
        assert_eq!(TensorBox { row: 201, rows: 1, ..fine() }.check(), Ok(()));
        assert_eq!(TensorBox { batch: 2, next: 7, ..fine() }.check(), Err(BoxError::Stride(7)));
        assert_eq!(TensorBox { cols: 0, ..fine() }.check(), Err(BoxError::Extent(0)));
        assert_eq!(TensorBox { box_rows: 257, ..fine() }.check(), Err(BoxError::Box { cols: 64, rows: 257 }));
        assert_eq!(TensorBox { box_cols: 72, ..fine() }.check(), Err(BoxError::Box { cols: 72, rows: 128 }));
        assert_eq!(TensorBox { dtype: DType::F64, ..fine() }.check(), Err(BoxError::DType(DType::F64)));
    }

    /// A column of units touches every bank once in eight rows, which is what the swizzle is for, and no two units
    /// share a place.
    #[test]
    fn a_column_of_units_is_spread_over_the_banks() {
        for swizzle in [Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            let units = swizzle.span() / 16;
            let places: HashSet<u32> = (0..64).flat_map(|r| (0..units).map(move |u| swizzle.place(r, u))).collect();
            assert_eq!(places.len() as u32, 64 * units);
            for unit in 0..units {
                let banks: HashSet<u32> = (0..8).map(|row| swizzle.place(row, unit) % 128).collect();
                assert_eq!(banks.len(), 8);
            }
        }
    }

    /// What the kernel computes instead, for rows of 128, 64 and 32 bytes.
    #[test]
    fn kernels_compute_the_same_places() {
        for (row, unit) in (0..64).flat_map(|row| (0..8).map(move |unit| (row, unit))) {
            assert_eq!(Swizzle::B128.place(row, unit), row * 128 + (unit ^ (row & 7)) * 16);
            assert_eq!(Swizzle::B64.place(row, unit % 4), row * 64 + ((unit % 4) ^ ((row / 2) & 3)) * 16);
            assert_eq!(Swizzle::B32.place(row, unit % 2), row * 32 + ((unit % 2) ^ ((row / 4) & 1)) * 16);
        }
    }
}
