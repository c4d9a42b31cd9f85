//! Tests of the ring: whole exchanges, hostile frames, failures, salvage.

mod exchange;
mod failures;
mod hostile;
mod salvage;
mod speed;
mod world;
