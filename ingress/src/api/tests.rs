//! The API, against a real server.

mod approvals;
mod changes;
mod documents;
mod lists;
mod live;
mod shapes;
