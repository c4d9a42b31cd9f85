//! Stories of crashes, full disks and damaged files.
use std::io;

#[derive(Debug)]
pub(super) struct Fault;
impl Fault {
    pub(super) fn gate(&self, wanted: usize) -> (usize, io::Result<()>) {
        (wanted, Ok(()))
    }
}
