//! The node as a person meets it: real processes on loopback, what they print, how they end.
//!
//! | file | subject |
//! |---|---|
//! | `harness` | processes, what they say, networks of them, a tiny run |
//! | `agree` | several nodes, one state after every round, to the end of the run |
//! | `kills` | SIGKILL at seeded random moments |
//! | `departures` | the bootstrap peer or the founder is gone; signals; everybody has left |
//! | `overlap` | what an exchange costs on a limited link |
//! | `bad_manifest`, `bad_start`, `damage` | bad input: one clear error, or a recovery |
//! | `demo` | the demo, its result, its end |
//!
//! Every network holds a lock, so that timings are not those of several at once. All waiting is for
//! events, with a deadline; a wait that fails shows what all processes said last.
#![cfg(unix)]

mod agree;
mod bad_manifest;
mod bad_start;
mod damage;
mod demo;
mod departures;
mod harness;
mod kills;
mod overlap;
