//! The pages, of a real server over a real ledger.

mod deliveries;
mod forms;
mod live;
mod notices;
mod pages;
mod people;
mod senders;
mod story;
