//! The machine alone: tables of what comes in and which effects go out.

mod endings;
mod meeting;
mod promises;
mod rounds;
mod table;
