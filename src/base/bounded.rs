//! A vector with a compile-time bound that decoding enforces element by element.

use std::{fmt, marker::PhantomData, ops::Deref};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, SeqAccess, Visitor},
};

/// A list is longer than its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} elements are more than the {max} allowed")]
pub struct TooLong {
    /// Elements given.
    pub len: usize,
    /// Elements allowed.
    pub max: usize,
}

/// At most `N` values of `T`. A longer list is refused while it is being decoded, before the
/// surplus is allocated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Bounded<T, const N: usize>(Vec<T>);

impl<T, const N: usize> Bounded<T, N> {
    /// The empty list.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a value, or gives it back when the list is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.0.len() < N {
            self.0.push(value);
            Ok(())
        } else {
            Err(value)
        }
    }

    /// The values as an ordinary vector.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }

    /// Mutable access to the values; their number stays.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T, const N: usize> Default for Bounded<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Deref for Bounded<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const N: usize> TryFrom<Vec<T>> for Bounded<T, N> {
    type Error = TooLong;

    fn try_from(values: Vec<T>) -> Result<Self, TooLong> {
        if values.len() > N {
            return Err(TooLong { len: values.len(), max: N });
        }
        Ok(Self(values))
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a Bounded<T, N> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Bounded<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T, const N: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Elements<T, N> {
            type Value = Bounded<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {N} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let announced = seq.size_hint().unwrap_or(0);
                if announced > N {
                    return Err(A::Error::custom(TooLong { len: announced, max: N }));
                }
                let mut values = Vec::with_capacity(announced);
                while let Some(value) = seq.next_element()? {
                    if values.len() == N {
                        return Err(A::Error::custom(TooLong { len: N + 1, max: N }));
                    }
                    values.push(value);
                }
                Ok(Bounded(values))
            }
        }

        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_list_is_refused() {
        assert!(serde_json::from_str::<Bounded<u8, 3>>("[1,2,3]").is_ok());
        assert!(serde_json::from_str::<Bounded<u8, 3>>("[1,2,3,4]").is_err());
        assert_eq!(Bounded::<u8, 1>::try_from(vec![1, 2]).unwrap_err(), TooLong { len: 2, max: 1 });
        let mut full = Bounded::<u8, 1>::new();
        full.push(1).unwrap();
        assert_eq!(full.push(2), Err(2));
    }
}
