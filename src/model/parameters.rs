//! A model's tensors as candle variables, and as one flat vector a fragment.

use candle_core::{DType, Device, Result, Tensor, Var, backprop::GradStore};

use crate::{
    compute::host::{self, Reading},
    config::{FragmentSpec, Layout},
};

/// Flat vectors do not fit the layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeMismatch {
    /// Another number of fragments.
    #[error("{found} fragments were given, but the model has {expected}")]
    Fragments {
        /// Of the model.
        expected: usize,
        /// Given.
        found: usize,
    },
    /// Another number of elements.
    #[error("fragment `{fragment}` has {expected} parameters, but {found} were given")]
    Elements {
        /// The fragment's name.
        fragment: String,
        /// Of the model.
        expected: usize,
        /// Given.
        found: usize,
    },
}

/// Checks that `fragments` has one value for every parameter of `layout`.
///
/// # Errors
/// If it has not.
pub(crate) fn check(
    layout: &Layout,
    fragments: &[Vec<f32>],
) -> std::result::Result<(), ShapeMismatch> {
    let (expected, found) = (layout.fragments.len(), fragments.len());
    if expected != found {
        return Err(ShapeMismatch::Fragments { expected, found });
    }
    for (spec, values) in layout.fragments.iter().zip(fragments) {
        let (expected, found) = (spec.elements(), values.len());
        if expected != found {
            let fragment = spec.name.clone();
            return Err(ShapeMismatch::Elements { fragment, expected, found });
        }
    }
    Ok(())
}

/// The variables of a model, in layout order.
pub struct Parameters {
    layout: Layout,
    fragments: Vec<Vec<Var>>,
}

fn zeros(spec: &FragmentSpec, device: &Device) -> Result<Vec<Var>> {
    spec.tensors.iter().map(|t| Var::zeros(t.shape.as_slice(), DType::F32, device)).collect()
}

impl Parameters {
    /// All zero.
    ///
    /// # Errors
    /// If the device has no room.
    pub fn zeros(layout: Layout, device: &Device) -> Result<Self> {
        let fragments = layout.fragments.iter().map(|spec| zeros(spec, device));
        let fragments = fragments.collect::<Result<_>>()?;
        Ok(Self { layout, fragments })
    }

    /// Names, shapes and order.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The tensors of a fragment.
    pub(crate) fn tensors(&self, fragment: usize) -> Vec<Tensor> {
        self.fragments[fragment].iter().map(|var| var.as_tensor().clone()).collect()
    }

    /// Replaces all values. `fragments` fits the layout ([`check`]).
    pub(crate) fn set(&self, fragments: &[Vec<f32>]) -> Result<()> {
        self.zip_mut(fragments, |theta, values| theta.copy_from_slice(values))
    }

    /// Adds to all values. `shift` fits the layout ([`check`]).
    pub(crate) fn add(&self, shift: &[Vec<f32>]) -> Result<()> {
        self.zip_mut(shift, |theta, values| {
            theta.iter_mut().zip(values).for_each(|(theta, value)| *theta += value);
        })
    }

    fn zip_mut(&self, other: &[Vec<f32>], change: impl Fn(&mut [f32], &[f32])) -> Result<()> {
        self.for_each(|fragment, range, _, var| {
            host::write(var, |theta| change(theta, &other[fragment][range]))
        })
    }

    /// Visits every tensor with its fragment, its range in the flat vector, and whether it decays.
    pub(crate) fn for_each(
        &self,
        mut visit: impl FnMut(usize, std::ops::Range<usize>, bool, &Var) -> Result<()>,
    ) -> Result<()> {
        let pairs = self.layout.fragments.iter().zip(&self.fragments);
        for (index, (spec, vars)) in pairs.enumerate() {
            let mut start = 0;
            for (tensor, var) in spec.tensors.iter().zip(vars) {
                let range = start..start + tensor.elements();
                start = range.end;
                visit(index, range, tensor.decay, var)?;
            }
        }
        Ok(())
    }

    /// All values, one flat vector a fragment.
    ///
    /// # Errors
    /// If the device fails.
    pub fn to_vecs(&self) -> Result<Vec<Vec<f32>>> {
        let mut flat = self.flat();
        self.for_each(|fragment, range, _, var| {
            flat[fragment][range].copy_from_slice(Reading::of(var).f32s()?);
            Ok(())
        })?;
        Ok(flat)
    }

    /// Zeros in the shape of the parameters.
    pub(crate) fn flat(&self) -> Vec<Vec<f32>> {
        self.layout.fragments.iter().map(|spec| vec![0.0; spec.elements()]).collect()
    }

    /// Adds the gradients in `store` to the flat `sums`. A tensor without a gradient is a bug of
    /// the model, and is reported: candle would pass over it in silence.
    pub(crate) fn add_gradients(&self, store: &GradStore, sums: &mut [Vec<f32>]) -> Result<()> {
        self.for_each(|fragment, range, _, var| {
            let Some(gradient) = store.get(var) else {
                candle_core::bail!("a tensor of fragment {fragment} has no gradient")
            };
            let gradient = gradient.contiguous()?;
            let reading = Reading::of(&gradient);
            let sums = &mut sums[fragment][range];
            sums.iter_mut().zip(reading.f32s()?).for_each(|(sum, g)| *sum += g);
            Ok(())
        })
    }
}
