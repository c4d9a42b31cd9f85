//! The protocol's machines: no sockets, files, clocks or entropy; input goes in through `handle_*`,
//! effects come out through `poll_effect`, the next deadline through `poll_timeout`.

pub mod sync;
