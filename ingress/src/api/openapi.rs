//! The API's description, made from the code.

use axum::Json;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
};

use super::{
    approvals, audit, bots, boundary, deliveries, halt, live, mcp_servers, notices, routines, runs, schedules, senders,
    shapes, status, triggers,
};
use crate::auth::SESSION_COOKIE;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Midwatch",
        description = "Lists are `{items, next, as_of}`. Errors are RFC 9457 problem details with `kind` and `code`. \
                       What changes something answers with the `position` it was recorded at."
    ),
    paths(
        status::me,
        status::projections,
        live::live,
        bots::list,
        bots::show,
        bots::create,
        bots::retire,
        bots::change_tools,
        bots::stop,
        mcp_servers::list,
        mcp_servers::add,
        mcp_servers::tools,
        mcp_servers::accept,
        mcp_servers::drop_tools,
        mcp_servers::remove,
        schedules::preview,
        schedules::windows,
        routines::list,
        routines::show,
        routines::create,
        routines::edit,
        routines::pause,
        routines::resume,
        routines::remove,
        routines::run_now,
        runs::list,
        runs::show,
        runs::timeline,
        runs::cancel,
        triggers::list,
        triggers::show,
        triggers::create,
        triggers::confirm,
        triggers::pause,
        triggers::resume,
        triggers::remove,
        senders::rotate,
        senders::replace_sender,
        senders::by_trigger,
        senders::presets,
        senders::by_preset,
        triggers::replace_intake,
        triggers::preview,
        deliveries::list,
        deliveries::show,
        deliveries::body,
        deliveries::verify,
        deliveries::search,
        deliveries::redeliver,
        deliveries::plan,
        deliveries::redeliver_all,
        deliveries::list_redeliveries,
        deliveries::show_redelivery,
        deliveries::cancel_redelivery,
        notices::receivers,
        notices::add,
        notices::remove,
        notices::secret,
        notices::list,
        notices::show,
        notices::again,
        boundary::show,
        boundary::versions,
        boundary::version,
        boundary::check,
        boundary::what_if,
        boundary::publish,
        approvals::list,
        approvals::show,
        approvals::answer,
        audit::list,
        halt::show,
        halt::halt,
        halt::lift,
    ),
    components(schemas(shapes::Problem)),
    modifiers(&Secrets)
)]
struct Description;

/// A token or a session opens everything but this document.
struct Secrets;

impl Modify for Secrets {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let token =
            HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API token, `mwt_…`")).build();
        let session = ApiKey::Cookie(ApiKeyValue::with_description(
            SESSION_COOKIE,
            "A signed-in person's session; changes need the same origin and `X-CSRF-Token` too",
        ));
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(token));
        components.add_security_scheme("session", SecurityScheme::ApiKey(session));
        let none: [&str; 0] = [];
        openapi.security =
            Some(vec![SecurityRequirement::new("token", none), SecurityRequirement::new("session", none)]);
    }
}

/// The description.
#[must_use]
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// `GET /api/v1/openapi.json`.
pub(crate) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(description())
}
