//! Slices of tensors that live on the CPU.

use std::sync::Mutex;

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Storage, StorageRef, Tensor, bail};

/// The elements of a contiguous f32 storage.
///
/// # Errors
/// If it has another type or is strided.
pub(crate) fn f32s<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(values), Some((from, to))) => Ok(&values[from..to]),
        (CpuStorage::F32(_), None) => bail!("a contiguous tensor is needed"),
        _ => bail!("an f32 tensor is needed"),
    }
}

/// The elements of a contiguous u32 storage.
///
/// # Errors
/// If it has another type or is strided.
pub(crate) fn u32s<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [u32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::U32(values), Some((from, to))) => Ok(&values[from..to]),
        _ => bail!("a contiguous u32 tensor is needed"),
    }
}

/// A tensor that is being read on the CPU.
pub(crate) struct Reading<'a> {
    storage: StorageRef<'a>,
    layout: &'a Layout,
}

impl<'a> Reading<'a> {
    /// Starts to read a tensor; it may not be written to until the reading is dropped.
    pub(crate) fn of(tensor: &'a Tensor) -> Self {
        let (storage, layout) = tensor.storage_and_layout();
        Self { storage, layout }
    }

    fn cpu(&self) -> Result<&CpuStorage> {
        match &*self.storage {
            Storage::Cpu(storage) => Ok(storage),
            _ => bail!("a tensor on the CPU is needed"),
        }
    }

    /// Its elements, row-major.
    ///
    /// # Errors
    /// If it is not a contiguous f32 tensor on the CPU.
    pub(crate) fn f32s(&self) -> Result<&[f32]> {
        f32s(self.cpu()?, self.layout)
    }

    /// Its elements, row-major.
    ///
    /// # Errors
    /// If it is not a contiguous u32 tensor on the CPU.
    pub(crate) fn u32s(&self) -> Result<&[u32]> {
        u32s(self.cpu()?, self.layout)
    }
}

struct Write<F>(Mutex<Option<F>>);

impl<F: FnOnce(&mut [f32])> InplaceOp1 for Write<F> {
    fn name(&self) -> &'static str {
        "write"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let Some((from, to)) = layout.contiguous_offsets() else {
            bail!("a contiguous tensor is needed")
        };
        let CpuStorage::F32(values) = storage else { bail!("an f32 tensor is needed") };
        let write = self.0.lock().ok().and_then(|mut slot| slot.take());
        if let Some(write) = write {
            write(&mut values[from..to]);
        }
        Ok(())
    }
}

/// Changes a tensor's elements in place; whoever shares its storage sees the change.
///
/// # Errors
/// If it is not a contiguous f32 tensor on the CPU.
pub(crate) fn write(tensor: &Tensor, change: impl FnOnce(&mut [f32])) -> Result<()> {
    tensor.inplace_op1(&Write(Mutex::new(Some(change))))
}
