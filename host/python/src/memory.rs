//! The values of a torch tensor, as a slice.
#![expect(unsafe_code, reason = "a torch tensor says where its values are, and lends them to nobody")]

use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::errors::invalid;

/// A type of values that tensors have.
pub(crate) trait Element: Copy {
    /// Its name in torch.
    const DTYPE: &str;
}

impl Element for f32 {
    const DTYPE: &str = "float32";
}

impl Element for u8 {
    const DTYPE: &str = "uint8";
}

/// A tensor on the CPU, whose values lie one behind the other.
pub(crate) struct Tensor<T> {
    /// Keeps the values where they are.
    _owner: Py<PyAny>,
    start: NonNull<T>,
    len: usize,
}

// SAFETY: `start` belongs to the tensor that `_owner` keeps alive. Memory of the CPU may be used
// from any thread, and a `Py` may be sent and dropped anywhere.
unsafe impl<T: Element + Send> Send for Tensor<T> {}

impl<T: Element> Tensor<T> {
    /// # Errors
    /// It is no tensor, or has other values than `T` in the CPU's memory, one behind the other.
    pub(crate) fn new(tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = tensor.py();
        let torch = py.import("torch")?;
        if !tensor.is_instance(&torch.getattr("Tensor")?)? {
            return Err(PyTypeError::new_err(format!("expected a torch.Tensor, got {}", tensor.get_type())));
        }
        let device: String = tensor.getattr("device")?.getattr("type")?.extract()?;
        if device != "cpu" {
            return Err(invalid(format!("expected a tensor on the CPU, got one on {device}")));
        }
        let dtype = tensor.getattr("dtype")?;
        if !dtype.is(&torch.getattr(T::DTYPE)?) {
            return Err(invalid(format!("expected torch.{}, got {dtype}", T::DTYPE)));
        }
        let dense = tensor.getattr("layout")?.is(&torch.getattr("strided")?);
        if !dense || !tensor.call_method0("is_contiguous")?.extract::<bool>()? {
            return Err(invalid("expected a dense, contiguous tensor"));
        }
        let len = tensor.call_method0("numel")?.extract()?;
        let address = tensor.call_method0("data_ptr")?.extract::<usize>()? as *mut T;
        let start = match NonNull::new(address).filter(|start| start.is_aligned()) {
            Some(start) => start,
            None if len == 0 => NonNull::dangling(),
            None => return Err(invalid("expected a tensor with its values in memory")),
        };
        Ok(Self { _owner: tensor.clone().unbind(), start, len })
    }

    /// Its values.
    ///
    /// As in torch's own threads, nobody stops Python from writing to the tensor meanwhile;
    /// [`crate::Channel::exchange`] asks its caller not to.
    pub(crate) fn values(&mut self) -> &mut [T] {
        // SAFETY: torch said that `len` values of `T`, any bits of which are one, start here, dense
        // and on the CPU, and `_owner` keeps them. Gradients are written by the backward pass
        // before DDP hands over their bucket, and read after the hook's future is done.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}
