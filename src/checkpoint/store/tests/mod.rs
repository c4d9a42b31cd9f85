//! Stories of crashes, full disks, damaged files, and of a join between two stores.

mod blobs;
mod crashes;
mod damage;
mod directory;
mod join;
mod serving;
mod toy;

use std::{io, sync::Mutex};

/// Makes the disk fail: like a crash at a step, or like a disk with so many bytes left.
#[derive(Debug)]
pub(super) struct Fault {
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    steps: usize,
    bytes: usize,
}

impl Fault {
    /// Everything fails from step `steps` on; a write at that step is cut in half.
    pub(super) fn crash_at(steps: usize) -> Self {
        Self { left: Mutex::new(Left { steps, bytes: usize::MAX }) }
    }

    /// A disk that never fails and never makes a test wait for the real one.
    pub(super) fn never() -> Self {
        Self::crash_at(usize::MAX)
    }

    /// Writes fail when so many bytes have been written.
    pub(super) fn full_after(bytes: usize) -> Self {
        Self { left: Mutex::new(Left { steps: usize::MAX, bytes }) }
    }

    /// The disk has room again.
    pub(super) fn make_room(&self) {
        self.left.lock().unwrap().bytes = usize::MAX;
    }

    pub(super) fn gate(&self, wanted: usize) -> (usize, io::Result<()>) {
        let mut left = self.left.lock().unwrap();
        if left.steps == 0 {
            return (0, Err(io::Error::other("crashed before")));
        }
        if left.steps != usize::MAX {
            left.steps -= 1;
            if left.steps == 0 {
                return (wanted / 2, Err(io::Error::other("crashed here")));
            }
        }
        let allowed = wanted.min(left.bytes);
        if left.bytes != usize::MAX {
            left.bytes -= allowed;
        }
        if allowed < wanted {
            return (allowed, Err(io::Error::from(io::ErrorKind::StorageFull)));
        }
        (wanted, Ok(()))
    }
}
