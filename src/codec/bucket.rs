//! Buckets: consecutive tensors of a fragment, about 4 MiB on the wire; one ring job each.
//!
//! ```text
//! fragment   | tensor 0      | tensor 1 | tensor 2 ...        flat, without padding
//! bucket     | part 0    0 0 | part 1 0 | part 2 ...          padded to blocks of 64
//! ```
//!
//! A tensor that is larger than a bucket is cut into nearly equal parts at block edges. Every node
//! computes the same list from the manifest alone. Packing tensors of several fragments into one
//! bucket is not done: a fragment belongs to one pipeline stage.

use std::ops::Range;

use crate::{
    codec::{BLOCK, Bits},
    config::Layout,
};

/// Payload bytes of a bucket that the cut aims at: long enough to fill a link, short enough that
/// one bucket is encoded while another travels (DESIGN section 1).
pub const BUCKET_BYTES: usize = 4 << 20;

/// A tensor's share of a bucket: whole blocks, except at the tensor's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPart {
    /// Index of the tensor within its fragment.
    pub tensor: usize,
    /// First element within the tensor; a multiple of [`BLOCK`].
    pub first: usize,
    /// Elements of this part.
    pub elements: usize,
    /// Position of the first element within the fragment's flat vector.
    pub offset: usize,
}

impl TensorPart {
    /// Blocks of this part, the last one padded.
    pub fn blocks(&self) -> usize {
        self.elements.div_ceil(BLOCK)
    }

    /// The part's elements within the fragment's flat vector.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.elements
    }
}

/// One bucket of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSpec {
    /// Index of the fragment within the layout.
    pub fragment: usize,
    /// Index of the bucket within the fragment.
    pub index: usize,
    /// The parts, in the order of the fragment's vector.
    pub tensors: Vec<TensorPart>,
    /// Blocks of all parts together.
    pub blocks: usize,
}

impl BucketSpec {
    /// Values with padding: `blocks * BLOCK`.
    pub fn padded(&self) -> usize {
        self.blocks * BLOCK
    }

    /// Every part with its range of blocks within the bucket.
    pub fn part_blocks(&self) -> impl Iterator<Item = (&TensorPart, Range<usize>)> {
        let mut start = 0;
        self.tensors.iter().map(move |part| {
            let blocks = start..start + part.blocks();
            start = blocks.end;
            (part, blocks)
        })
    }

    /// Every part with its range of values, without padding, within the padded vector.
    pub fn part_values(&self) -> impl Iterator<Item = (&TensorPart, Range<usize>)> {
        self.part_blocks().map(|(part, blocks)| {
            let first = blocks.start * BLOCK;
            (part, first..first + part.elements)
        })
    }

    /// The bucket's values out of its fragment's flat vector: `padded()` of them, zeros between.
    pub fn gather(&self, fragment: &[f32]) -> Vec<f32> {
        let mut values = vec![0.0; self.padded()];
        for (part, range) in self.part_values() {
            values[range].copy_from_slice(&fragment[part.range()]);
        }
        values
    }

    /// The inverse of [`gather`](Self::gather): writes the bucket's values into the fragment.
    ///
    /// # Panics
    /// If `values` are not `padded()`.
    pub fn scatter(&self, values: &[f32], fragment: &mut [f32]) {
        assert_eq!(values.len(), self.padded(), "values of another bucket");
        for (part, range) in self.part_values() {
            fragment[part.range()].copy_from_slice(&values[range]);
        }
    }
}

/// Cuts every fragment into buckets, in the order of fragments. A job's number is its position here.
pub fn buckets(layout: &Layout, bits: Bits) -> Vec<BucketSpec> {
    let most = BUCKET_BYTES * 8 / (BLOCK * usize::from(bits.get()));
    buckets_of(layout, most)
}

/// [`buckets`] with `most` blocks to a bucket, at least 1.
pub(crate) fn buckets_of(layout: &Layout, most: usize) -> Vec<BucketSpec> {
    let fragments = 0..layout.fragments.len();
    fragments.flat_map(|fragment| cut_fragment(layout, fragment, most)).collect()
}

fn cut_fragment(layout: &Layout, fragment: usize, most: usize) -> Vec<BucketSpec> {
    let mut cut: Vec<BucketSpec> = Vec::new();
    for part in parts(layout, fragment, most) {
        let blocks = part.blocks();
        match cut.last_mut() {
            Some(bucket) if bucket.blocks + blocks <= most => {
                bucket.blocks += blocks;
                bucket.tensors.push(part);
            }
            _ => {
                let index = cut.len();
                cut.push(BucketSpec { fragment, index, tensors: vec![part], blocks });
            }
        }
    }
    cut
}

/// The fragment's tensors, those of more than `most` blocks in nearly equal pieces.
fn parts(layout: &Layout, fragment: usize, most: usize) -> Vec<TensorPart> {
    let mut parts = Vec::new();
    let mut offset = 0;
    for (tensor, spec) in layout.fragments[fragment].tensors.iter().enumerate() {
        let elements = spec.elements();
        let blocks = elements.div_ceil(BLOCK);
        let pieces = blocks.div_ceil(most);
        for piece in 0..pieces {
            let first = piece * blocks / pieces * BLOCK;
            let end = ((piece + 1) * blocks / pieces * BLOCK).min(elements);
            let part = TensorPart { tensor, first, elements: end - first, offset: offset + first };
            parts.push(part);
        }
        offset += elements;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        codec::reference::{layout_of, small_layouts},
        config::{EMBEDDED_RUN, Manifest},
    };

    #[test]
    fn the_embedded_run_has_one_bucket_a_fragment() {
        let layout = Manifest::from_toml(EMBEDDED_RUN).unwrap().layout();
        let specs = buckets(&layout, Bits::B4);
        assert_eq!(specs.len(), layout.fragments.len());
        assert!(specs.iter().enumerate().all(|(i, spec)| spec.fragment == i && spec.index == 0));
        let norm = &specs[1].tensors[0];
        assert_eq!((norm.first, norm.elements, norm.blocks()), (0, 128, 2));
    }

    #[test]
    fn a_large_tensor_is_split_at_block_edges() {
        let layout = layout_of(&[&[10, 64 * 5 + 1]]);
        let specs = buckets_of(&layout, 2);
        let cut: Vec<_> =
            specs.iter().map(|s| (s.tensors[0].tensor, s.tensors[0].first, s.blocks)).collect();
        assert_eq!(cut, [(0, 0, 1), (1, 0, 2), (1, 128, 2), (1, 256, 2)]);
        assert_eq!(specs[3].tensors[0].elements, 65);
        assert_eq!(specs[3].tensors[0].offset, 10 + 256);
    }

    #[test]
    fn the_size_follows_the_payload_bits() {
        let layout = layout_of(&[&[1 << 24]]);
        assert_eq!(buckets(&layout, Bits::B4).len(), 2);
        assert_eq!(buckets(&layout, Bits::B16).len(), 8);
        assert!(buckets(&layout, Bits::B16).iter().all(|spec| spec.blocks == 1 << 15));
    }

    proptest! {
        #[test]
        fn buckets_cover_every_element_once(layout in small_layouts(), most in 1usize..6) {
            let specs = buckets_of(&layout, most);
            for (index, fragment) in layout.fragments.iter().enumerate() {
                let mut next = 0;
                for spec in specs.iter().filter(|spec| spec.fragment == index) {
                    prop_assert!(spec.blocks <= most);
                    prop_assert_eq!(spec.blocks, spec.tensors.iter().map(TensorPart::blocks).sum::<usize>());
                    for part in &spec.tensors {
                        prop_assert_eq!(part.offset, next);
                        prop_assert_eq!(part.first % BLOCK, 0);
                        next += part.elements;
                    }
                }
                prop_assert_eq!(next, fragment.elements());
            }
        }

        #[test]
        fn scatter_undoes_gather(layout in small_layouts(), most in 1usize..6) {
            let flat: Vec<f32> = (1..=layout.fragments[0].elements()).map(|i| i as f32).collect();
            let mut back = vec![0.0; flat.len()];
            for spec in buckets_of(&layout, most).iter().filter(|spec| spec.fragment == 0) {
                let values = spec.gather(&flat);
                prop_assert_eq!(values.len(), spec.padded());
                spec.scatter(&values, &mut back);
            }
            prop_assert_eq!(back, flat);
        }
    }
}
