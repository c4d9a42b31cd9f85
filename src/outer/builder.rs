//! A state put together from leaves, in any order and from anybody.

use std::sync::Arc;

use crate::{
    base::Digest,
    config::Layout,
    outer::{
        State,
        snapshot::{InvalidIndex, LeafSpan, SnapshotIndex, spans},
    },
};

/// Fills a state leaf by leaf; every leaf is checked against the index.
#[derive(Debug)]
pub struct StateBuilder {
    state: State,
    spans: Vec<LeafSpan>,
    digests: Vec<Digest>,
    done: Vec<bool>,
    missing: usize,
}

/// A leaf does not fit, or some are missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The snapshot has no such leaf.
    #[error("leaf {leaf} of {count}")]
    NoSuchLeaf {
        /// The number given.
        leaf: usize,
        /// Leaves of the snapshot.
        count: usize,
    },
    /// The bytes are not those of the leaf; fetch it from another donor.
    #[error("the bytes of leaf {leaf} do not match the snapshot's index; another donor has them")]
    WrongBytes {
        /// The leaf.
        leaf: usize,
    },
    /// Not all leaves are there.
    #[error("{missing} of {count} leaves are missing, the first of them {first}")]
    Missing {
        /// Leaves that are missing.
        missing: usize,
        /// Leaves of the snapshot.
        count: usize,
        /// The first that is missing.
        first: usize,
    },
}

impl StateBuilder {
    /// An empty state for this index, whose root the caller has compared with a committed one.
    ///
    /// # Errors
    /// If the index is of another model; nothing is allocated then.
    pub fn new(index: &SnapshotIndex, layout: Arc<Layout>) -> Result<Self, InvalidIndex> {
        index.check(&layout)?;
        let spans = spans(&layout);
        let mut state = State::zeros(layout);
        (state.round, state.cursor) = (index.round, index.cursor);
        (state.rank, state.local_steps) = (index.rank, index.local_steps);
        let digests: Vec<Digest> = index.digests().copied().collect();
        let (done, missing) = (vec![false; digests.len()], digests.len());
        Ok(Self { state, spans, digests, done, missing })
    }

    /// Puts a leaf in its place. A leaf that is there already is accepted again.
    ///
    /// # Errors
    /// If there is no such leaf or the bytes are not its own; nothing changes then.
    pub fn put_leaf(&mut self, leaf: usize, bytes: &[u8]) -> Result<(), BuildError> {
        let count = self.spans.len();
        let span = self.spans.get(leaf).ok_or(BuildError::NoSuchLeaf { leaf, count })?;
        if bytes.len() != span.bytes() || Digest::of(bytes) != self.digests[leaf] {
            return Err(BuildError::WrongBytes { leaf });
        }
        span.write(bytes, &mut self.state.fragments[span.fragment]);
        if !std::mem::replace(&mut self.done[leaf], true) {
            self.missing -= 1;
        }
        Ok(())
    }

    /// The leaves that are not there yet, in order.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        self.done.iter().enumerate().filter(|(_, done)| !**done).map(|(leaf, _)| leaf)
    }

    /// The complete state; its root is the index's.
    ///
    /// # Errors
    /// If leaves are missing.
    pub fn finish(self) -> Result<State, BuildError> {
        let first = self.missing().next();
        match first {
            None => Ok(self.state),
            Some(first) => {
                let (missing, count) = (self.missing, self.spans.len());
                Err(BuildError::Missing { missing, count, first })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        codec::reference::layout_of,
        config::{EMBEDDED_RUN, Manifest},
    };

    fn embedded() -> State {
        State::genesis(&Manifest::from_toml(EMBEDDED_RUN).unwrap())
    }

    #[test]
    fn leaves_in_any_order_make_the_state() {
        let state = embedded();
        let index = SnapshotIndex::of(&state);
        let mut builder = StateBuilder::new(&index, state.layout().clone()).unwrap();
        for leaf in (0..index.leaf_count()).rev() {
            builder.put_leaf(leaf, &state.leaf(leaf)).unwrap();
            builder.put_leaf(leaf, &state.leaf(leaf)).unwrap();
        }
        assert_eq!(builder.missing().count(), 0);
        let built = builder.finish().unwrap();
        assert_eq!(built.root(), state.root());
        assert_eq!(built, state);
    }

    #[test]
    fn wrong_leaves_are_refused_and_missing_ones_named() {
        let state = embedded();
        let index = SnapshotIndex::of(&state);
        let mut builder = StateBuilder::new(&index, state.layout().clone()).unwrap();
        let mut bytes = state.leaf(3);
        builder.put_leaf(3, &bytes).unwrap();
        bytes[0] ^= 1;
        assert_eq!(builder.put_leaf(3, &bytes), Err(BuildError::WrongBytes { leaf: 3 }));
        assert!(builder.put_leaf(2, &[]).is_err());
        assert!(builder.put_leaf(2, &state.leaf(3)).is_err());
        let count = index.leaf_count();
        let none = builder.put_leaf(count, &[]);
        assert_eq!(none, Err(BuildError::NoSuchLeaf { leaf: count, count }));
        assert!(!builder.missing().any(|leaf| leaf == 3));
        let missing = BuildError::Missing { missing: count - 1, count, first: 0 };
        assert_eq!(builder.finish(), Err(missing));
    }

    #[test]
    fn an_index_of_another_model_is_refused() {
        let index = SnapshotIndex::of(&embedded());
        let layout = Arc::new(layout_of(&[&[4]]));
        assert!(matches!(StateBuilder::new(&index, layout), Err(InvalidIndex::Shape)));
    }
}
