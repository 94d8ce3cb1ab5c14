//! `midwatch user`: people, and the links they sign in by.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use midwatch_engine::{evidence::Reader, people::LINK_S};
use midwatch_events::{id::UserId, user::Access};
use midwatch_log::views::Order;
use midwatch_projections::users::{People, PeopleRow};
use serde_json::json;

use super::{all, equal};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, word},
    typed::id,
};

#[derive(Debug, Subcommand)]
pub(crate) enum User {
    /// Everybody who may sign in
    List,
    /// Let somebody in
    Invite {
        /// What people call them
        #[arg(long)]
        name: String,
        /// What they may do
        #[arg(long, value_enum, default_value_t = Role::Member)]
        role: Role,
    },
    /// Let somebody do nothing any more; their routines are suspended
    Revoke {
        #[arg(value_parser = id::<midwatch_events::id::User>)]
        user: UserId,
    },
    /// Let somebody read what senders sent, or not; each reading is recorded
    Evidence {
        #[arg(value_parser = id::<midwatch_events::id::User>)]
        user: UserId,
        #[arg(value_parser = ["allow", "deny"])]
        what: String,
    },
    /// Make a one-time sign-in link; the first admin's, if nobody is named
    Link {
        #[arg(value_parser = id::<midwatch_events::id::User>)]
        user: Option<UserId>,
        /// Where the dashboard is
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7350")]
        public_url: String,
    },
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Role {
    /// Everything
    Admin,
    /// Sees and changes their own routines
    Member,
    /// Reads everything, changes nothing
    Auditor,
}

impl From<Role> for Access {
    fn from(role: Role) -> Self {
        match role {
            Role::Admin => Self::Admin,
            Role::Member => Self::Member,
            Role::Auditor => Self::Auditor,
        }
    }
}

impl User {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::List => list(globals).await,
            Self::Invite { name, role } => invite(globals, &name, role.into()).await,
            Self::Revoke { user } => {
                let done =
                    joining::write(globals, async |engine, origin| Ok(engine.revoke_user(user, origin, None).await?));
                let done = done.await?;
                let answer = json!({ "id": user, "position": done.position });
                globals.output().answer(&answer, || format!("User {user} may do nothing any more"))?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Evidence { user, what } => evidence(globals, Reader::User(user), &user.to_string(), &what).await,
            Self::Link { user, public_url } => link(globals, user, &public_url).await,
        }
    }
}

async fn list(globals: &Globals) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        all::<People>(engine, vec![equal("kind", "user")], Order { column: "name", descending: false }, None).await
    });
    let rows = rows.await?;
    let people: Vec<_> = rows
        .iter()
        .filter_map(|row| match row {
            PeopleRow::User(row) => Some(row),
            PeopleRow::Token(_) | PeopleRow::Session(_) | PeopleRow::Link(_) => None,
        })
        .collect();
    globals.output().answer(&people, || {
        let mut table = Table::new(&["ID", "NAME", "ROLE", "INVITED", "SIGNED IN", "READS BODIES"]);
        for row in &people {
            table.row(vec![
                row.id.to_string(),
                dash(row.name.as_deref()),
                word(row.role),
                row.invited_at.to_string(),
                dash(row.signed_in_at),
                if row.reads_evidence { "yes" } else { "no" }.to_owned(),
            ]);
        }
        table.or("There is nobody.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn invite(globals: &Globals, name: &str, role: Access) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| Ok(engine.invite(name, role, origin, None).await?));
    let id = done.await?.value;
    globals
        .output()
        .answer(&json!({ "id": id }), || format!("{name} is {id}; `midwatch user link {id}` makes a sign-in link"))?;
    Ok(ExitCode::SUCCESS)
}

/// Lets a person or a token read what senders sent, or not.
pub(crate) async fn evidence(globals: &Globals, reader: Reader, id: &str, what: &str) -> Result<ExitCode, Failure> {
    let allowed = what == "allow";
    let done = joining::write(globals, async |engine, origin| {
        Ok(engine.allow_evidence(reader, allowed, origin, None).await?)
    });
    let answer = json!({ "id": id, "reads_evidence": allowed, "position": done.await?.position });
    let may = if allowed { "may" } else { "may not" };
    globals.output().answer(&answer, || format!("{id} {may} read what senders sent"))?;
    Ok(ExitCode::SUCCESS)
}

async fn link(globals: &Globals, user: Option<UserId>, public_url: &str) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| Ok(engine.issue_link(user, origin).await?));
    let link = sign_in_link(public_url, &done.await?.value);
    globals.output().answer(&json!({ "link": link, "good_for_s": LINK_S }), || {
        format!("{link}\nGood once, for {} minutes.", LINK_S / 60)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where a one-time link's secret is used up.
pub(crate) fn sign_in_link(public_url: &str, secret: &str) -> String {
    format!("{}/sign-in/{secret}", public_url.trim_end_matches('/'))
}
