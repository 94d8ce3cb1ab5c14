//! The API, against a real server.

mod changes;
mod documents;
mod lists;
mod live;
mod shapes;
