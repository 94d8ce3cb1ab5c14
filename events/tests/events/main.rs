//! What is stored stays readable: golden bytes, round trips and damaged bytes.

#![expect(clippy::unwrap_used, reason = "what builds the samples is part of the tests, and stands outside of them")]

mod catalogue;
mod codec;
mod golden;
mod samples;
mod variants;
