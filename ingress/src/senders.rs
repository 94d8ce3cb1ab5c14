//! Senders, as data: how each shows who it is, which id its deliveries have, what they are about, and how it checks an
//! address before it uses it.
//!
//! A preset is a few lines of TOML under `presets/`; a small closed engine interprets them, and a template is a preset
//! that an admin wrote. Everything here is pure: bytes, a clock's reading and keys come in, a verdict goes out, so that
//! the door, the check of a pasted sample, the test sender and the fuzz targets are the same code.

pub mod check;
mod handshake;
mod judge;
mod key;
mod look;
mod place;
mod pointer;
mod prepare;
mod preset;
mod sign;

pub use handshake::{Answer, before, probe, with};
pub use judge::{Failed, Genuine, Held, Request, Step, judge};
pub use key::Key;
pub use look::{Looked, look};
pub use pointer::is_pointer;
pub use prepare::{Prepared, id_pointers, prepare, renew};
pub use preset::{Maker, Packed, Preset, Unknown, all, find, names, of_scheme, text};
pub use sign::{Outgoing, Unsigned, sign};

#[cfg(test)]
mod tests;
