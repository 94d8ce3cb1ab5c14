//! The engine on real ledgers, on both backends, with as many processes as a case needs.

mod claims;
mod clock;
mod deliveries;
mod deployment;
mod erasure;
mod handle;
mod idle;
mod intake;
mod lanes;
mod people;
mod projector;
mod reactor;
mod runner;
mod support;
mod went_back;
mod windows;
