//! The protocol's machines. Each takes time, messages and seeds as arguments and gives effects out
//! as data; the simulator, the tests and the node drive the same code.

pub mod ring;
