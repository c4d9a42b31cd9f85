//! Stories and properties of sync, with simulated donors on virtual time.

mod liars;
mod network;
mod property;
mod stories;
mod world;
