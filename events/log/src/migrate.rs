//! The ledger's tables, and whether a database is ours. See `migrations/README.md`.

use crate::log::LogError;

/// What marks a SQLite file as a Midwatch ledger: "MWLG".
pub(crate) const APPLICATION_ID: i32 = 0x4d57_4c47;

/// One migration, for both backends.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) number: u32,
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

/// All of them, in order. Only ever added to.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        sqlite: include_str!("../../../migrations/sqlite/0001_ledger.sql"),
        postgres: include_str!("../../../migrations/postgres/0001_ledger.sql"),
    },
    Migration {
        number: 2,
        sqlite: include_str!("../../../migrations/sqlite/0002_durable_mark.sql"),
        postgres: include_str!("../../../migrations/postgres/0002_durable_mark.sql"),
    },
    Migration {
        number: 3,
        sqlite: include_str!("../../../migrations/sqlite/0003_snapshots.sql"),
        postgres: include_str!("../../../migrations/postgres/0003_snapshots.sql"),
    },
];

/// What a database turns out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It holds no table at all.
    Nothing,
    /// Tables, but not ours.
    Foreign,
    /// A ledger with the migrations up to this one.
    Ledger(u32),
}

impl Found {
    /// The migrations that are missing.
    ///
    /// # Errors
    /// [`LogError::Foreign`], [`LogError::Newer`].
    pub(crate) fn missing(self, shown: &str) -> Result<&'static [Migration], LogError> {
        let known = MIGRATIONS.last().map_or(0, |last| last.number);
        match self {
            Self::Nothing => Ok(MIGRATIONS),
            Self::Foreign => Err(LogError::Foreign(shown.to_owned())),
            Self::Ledger(found) if found > known => Err(LogError::Newer { found, known }),
            Self::Ledger(found) => {
                let applied = MIGRATIONS.iter().take_while(|migration| migration.number <= found).count();
                Ok(&MIGRATIONS[applied..])
            }
        }
    }

    /// As for a reader, who migrates nothing.
    ///
    /// # Errors
    /// As [`Self::missing`], and [`LogError::Absent`], or [`LogError::Unavailable`] where a migration is missing.
    pub(crate) fn readable(self, shown: &str) -> Result<(), LogError> {
        if self == Self::Nothing {
            return Err(LogError::Absent(shown.to_owned()));
        }
        match self.missing(shown)?.first() {
            None => Ok(()),
            Some(next) => Err(LogError::Unavailable {
                operation: "open",
                reason: format!("it lacks migration {}; a command that writes applies it", next.number),
            }),
        }
    }
}
