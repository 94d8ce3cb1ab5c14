//! What a form or a query holds.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};

use crate::app::App;

/// Names and values in the order they came. A name that is absent is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(crate) fn new(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// The first value of a name, trimmed of what a browser's text field adds around it.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value.trim())
    }

    /// The same, or none where it is empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    /// The value of a name exactly as it came, line breaks as `\n`.
    pub(crate) fn text(&self, name: &str) -> String {
        let value = self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value.as_str());
        value.replace("\r\n", "\n")
    }

    /// Every value of a name.
    pub(crate) fn all<'a>(&'a self, name: &str) -> Vec<&'a str> {
        self.0.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Whether a name is there at all, as a checked box is.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(found, _)| found == name)
    }

    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

impl FromRequestParts<App> for Fields {
    type Rejection = std::convert::Infallible;

    /// A query that cannot be read is an empty one: a page is shown all the same.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        Ok(query.map(|Query(pairs)| Self(pairs)).unwrap_or_default())
    }
}
