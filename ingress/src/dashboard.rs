//! The dashboard: pages for people, rendered here and readable with JavaScript off.
//!
//! One file per page; a page is a view model, filled by a thin handler and rendered by a template of the same name.
//! All state is in the URL. What somebody else wrote reaches a template only as `text::Shown`.

mod approvals;
mod assets;
mod audit;
mod bots;
mod boundaries;
mod boundary_edit;
mod days;
mod decision;
mod deliveries;
mod delivery;
mod fields;
mod frame;
mod halt;
mod limits_form;
mod listing;
mod live;
mod mcp_servers;
mod names;
mod notices;
mod redeliveries;
mod routine;
mod routine_form;
mod routines;
mod run;
mod run_steps;
mod runs;
mod schedule_form;
mod scope;
mod sign_in;
mod status;
mod system;
mod text;
mod time;
mod tree;
mod trigger;
mod trigger_intake;
mod trigger_sender;
mod triggers;
mod viewing;
mod visitor;
mod watch;

#[cfg(test)]
mod tests;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{get, post},
};

use crate::app::App;

/// Longest form, in bytes.
const FORM_BYTES_MAX: usize = 1 << 20;

/// Every page.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/", get(watch::page))
        .route("/live", get(live::stream))
        .route("/watch/live", get(watch::live_runs))
        .route("/halt", post(halt::halt))
        .route("/halt/lift", post(halt::lift))
        .route("/viewing", post(viewing::choose))
        .route("/routines", get(routines::page).post(routine_form::create))
        .route("/routines/new", get(routine_form::new))
        .route("/routines/preview", get(schedule_form::preview))
        .route("/routines/{id}", get(routine::page).post(routine_form::edit))
        .route("/routines/{id}/edit", get(routine_form::edit_page))
        .route("/routines/{id}/pause", post(routine::pause))
        .route("/routines/{id}/resume", post(routine::resume))
        .route("/routines/{id}/run", post(routine::run_now))
        .route("/routines/{id}/cancel", post(routine::cancel))
        .route("/routines/{id}/delete", post(routine::delete))
        .route("/runs", get(runs::page))
        .route("/runs/{id}", get(run::page))
        .route("/runs/{id}/cancel", post(run::cancel))
        .route("/approvals", get(approvals::page))
        .route("/approvals/{id}", get(approvals::approval).post(approvals::answer))
        .route("/audit", get(audit::page))
        .route("/triggers", get(triggers::page).post(triggers::create))
        .route("/triggers/new", get(triggers::new))
        .route("/triggers/{id}", get(trigger::page))
        .route("/triggers/{id}/confirm", post(trigger::confirm))
        .route("/triggers/{id}/pause", post(trigger::pause))
        .route("/triggers/{id}/resume", post(trigger::resume))
        .route("/triggers/{id}/rotate", post(trigger::rotate))
        .route("/triggers/{id}/check", post(trigger::check))
        .route("/triggers/{id}/sample", post(trigger::read))
        .route("/triggers/{id}/intake", get(trigger_intake::page).post(trigger_intake::change))
        .route("/triggers/{id}/sender", get(trigger_sender::page).post(trigger_sender::change))
        .route("/triggers/{id}/delete", post(trigger::delete))
        .route("/decisions/{position}", get(decision::page))
        .route("/deliveries", get(deliveries::page))
        .route("/deliveries/{id}", get(delivery::page))
        .route("/deliveries/{id}/read", post(delivery::read))
        .route("/deliveries/{id}/verify", post(delivery::verify))
        .route("/deliveries/{id}/redeliver", post(delivery::redeliver))
        .route("/redeliveries", get(redeliveries::page).post(redeliveries::start))
        .route("/redeliveries/plan", get(redeliveries::plan))
        .route("/redeliveries/{id}/cancel", post(redeliveries::cancel))
        .route("/boundaries", get(boundaries::page).post(boundary_edit::publish))
        .route("/boundaries/edit", get(boundary_edit::page).post(boundary_edit::check))
        .route("/boundaries/{version}", get(boundaries::version))
        .route("/bots", get(bots::page).post(bots::register))
        .route("/bots/{id}", get(bots::bot))
        .route("/bots/{id}/tools", post(bots::change_tools))
        .route("/bots/{id}/stop", post(bots::stop))
        .route("/bots/{id}/retire", post(bots::retire))
        .route("/mcp-servers", get(mcp_servers::page).post(mcp_servers::add))
        .route("/mcp-servers/{server}", get(mcp_servers::server))
        .route("/mcp-servers/{server}/look", post(mcp_servers::look_at))
        .route("/mcp-servers/{server}/accept", post(mcp_servers::accept))
        .route("/mcp-servers/{server}/drop", post(mcp_servers::drop_tool))
        .route("/mcp-servers/{server}/remove", post(mcp_servers::remove))
        .route("/notices", get(notices::page).post(notices::add))
        .route("/notices/receivers/{id}", get(notices::receiver))
        .route("/notices/receivers/{id}/remove", post(notices::remove))
        .route("/notices/{id}", get(notices::notice))
        .route("/notices/{id}/again", post(notices::again))
        .route("/system", get(system::page))
        .route("/sign-in", get(sign_in::how))
        .route("/sign-in/{link}", get(sign_in::ask).post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/assets/{file}", get(assets::file))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
}
