//! What can take a turn: a Bot behind an endpoint.

pub mod agui;
