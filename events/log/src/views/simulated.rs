//! Projections' rows of a simulated store.

use std::collections::{BTreeMap, BTreeSet};

use midwatch_events::Micros;
use uuid::Uuid;

use super::{
    SET_BACK_S,
    generations::{Known, Listing, Make, State, Step, Swap},
    query::{Condition, Cursor, Order, Query, Row, Test},
    table::{Cell, Changes, KEY, Kept, Kind, Table},
    unsigned,
};
use crate::{
    log::{LogError, Open},
    simulated::{Operation, SimulatedLog},
};

/// All projections' rows, checkpoints and leaders of one store.
#[derive(Debug, Default)]
pub(crate) struct Projections {
    tables: BTreeMap<&'static str, Generations>,
    checkpoints: BTreeMap<String, i64>,
    /// Who leads, and until when.
    leaders: BTreeMap<String, (Uuid, Micros)>,
}

#[derive(Debug, Default)]
struct Generations {
    last: i64,
    active: Option<i64>,
    known: BTreeMap<i64, Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    version: u32,
    position: i64,
    at: Micros,
    stopped: Option<(u64, String)>,
    rows: BTreeMap<String, (Vec<u8>, Vec<Cell>)>,
    /// For each column by its place: its cells in order, each with the row's key.
    ordered: Vec<BTreeSet<(Cell, String)>>,
}

impl Projections {
    /// Drops all rows; checkpoints and leaders are kept elsewhere and stay.
    pub(crate) fn clear(&mut self) {
        self.tables.clear();
    }

    fn listing(&self, table: &Table) -> Listing {
        let Some(found) = self.tables.get(table.name) else { return Listing::default() };
        let known = |(number, rows): (&i64, &Rows)| Known {
            number: *number,
            version: rows.version,
            position: unsigned(rows.position),
        };
        Listing { active: found.active, generations: found.known.iter().map(known).collect() }
    }

    fn rows(&self, table: &Table, number: i64) -> Option<&Rows> {
        self.tables.get(table.name)?.known.get(&number)
    }

    fn rows_mut(&mut self, table: &Table, number: i64) -> Option<&mut Rows> {
        self.tables.get_mut(table.name)?.known.get_mut(&number)
    }

    fn make(&mut self, table: &Table, make: Make) -> Option<i64> {
        let dropped = self.listing(table).to_make(make, table.version)?;
        let found = self.tables.entry(table.name).or_default();
        dropped.iter().for_each(|number| drop(found.known.remove(number)));
        found.last += 1;
        let ordered = table.columns.iter().map(|_| BTreeSet::new()).collect();
        found.known.insert(found.last, Rows { version: table.version, ordered, ..Rows::default() });
        found.active.get_or_insert(found.last);
        Some(found.last)
    }

    fn swap(&mut self, table: &Table, number: i64, swap: Swap) -> bool {
        let Some(dropped) = self.listing(table).to_swap(number, swap) else { return false };
        let found = self.tables.entry(table.name).or_default();
        found.active = Some(number);
        dropped.iter().for_each(|number| drop(found.known.remove(number)));
        true
    }

    fn advance(&mut self, name: &str, from: i64, to: i64) -> bool {
        let stands = self.checkpoints.get(name).copied();
        let moves = stands.unwrap_or(0) == from;
        if moves {
            self.checkpoints.insert(name.to_owned(), to);
        }
        moves
    }

    fn lead(&mut self, name: &str, process: Uuid, ttl_s: u32, now: Micros) -> bool {
        let never = now.plus_s(i64::from(SET_BACK_S));
        let over = |until: Micros| until <= now || until > never;
        let free = self.leaders.get(name).is_none_or(|(leader, until)| *leader == process || over(*until));
        if free {
            self.leaders.insert(name.to_owned(), (process, now.plus_s(i64::from(ttl_s))));
        }
        free
    }
}

impl Rows {
    fn apply(&mut self, step: Step, changes: Changes) -> bool {
        if self.position != step.from {
            return false;
        }
        (self.position, self.at, self.stopped) = (step.to, step.at, None);
        for key in changes.deleted {
            self.remove(&key);
        }
        for Kept { key, doc, cells } in changes.kept {
            self.remove(&key);
            for (ordered, cell) in self.ordered.iter_mut().zip(&cells) {
                ordered.insert((cell.clone(), key.clone()));
            }
            self.rows.insert(key, (doc, cells));
        }
        true
    }

    fn remove(&mut self, key: &str) {
        let Some((_, cells)) = self.rows.remove(key) else { return };
        for (ordered, cell) in self.ordered.iter_mut().zip(cells) {
            ordered.remove(&(cell, key.to_owned()));
        }
    }

    fn select(&self, table: &Table, query: &Query) -> Result<Vec<Row>, LogError> {
        let tests = Filters::new(table, &query.filters)?;
        let Order { column, descending } = query.order;
        let kind = table.kind(column)?;
        if let Some(Cursor { cell, key }) = &query.after {
            table.check_cell(column, kind, cell)?;
            table.check_cell(KEY, Kind::Text, &Cell::Text(key.clone()))?;
        }
        let place = table.columns.iter().position(|known| known.name == column);
        let after = query.after.as_ref();
        let row = |(cell, key): (Cell, &String)| {
            let (doc, cells) = self.rows.get(key)?;
            let place = (&cell, key);
            let comes = after.is_none_or(|after| {
                let after = if column == KEY { (&cell, &after.key) } else { (&after.cell, &after.key) };
                if descending { place < after } else { place > after }
            });
            (comes && tests.pass(key, cells)).then(|| Row { key: key.clone(), doc: doc.clone(), order: cell })
        };
        let limit = query.limit as usize;
        if let Some(keys) = self.candidates(table, &query.filters) {
            let cell = |key: &String| match place {
                Some(place) => self.rows.get(key).and_then(|(_, cells)| cells.get(place)).cloned(),
                None => Some(Cell::Text(key.clone())),
            };
            let mut rows: Vec<Row> = keys.filter_map(|key| row((cell(key)?, key))).collect();
            rows.sort_by(|a, b| (&a.order, &a.key).cmp(&(&b.order, &b.key)));
            if descending {
                rows.reverse();
            }
            rows.truncate(limit);
            return Ok(rows);
        }
        let key = |key| (Cell::Text(String::clone(key)), key);
        Ok(match (place.and_then(|place| self.ordered.get(place)), descending) {
            (Some(set), false) => {
                set.iter().map(|(cell, key)| (cell.clone(), key)).filter_map(row).take(limit).collect()
            }
            (Some(set), true) => {
                set.iter().rev().map(|(cell, key)| (cell.clone(), key)).filter_map(row).take(limit).collect()
            }
            (None, false) => self.rows.keys().map(key).filter_map(row).take(limit).collect(),
            (None, true) => self.rows.keys().rev().map(key).filter_map(row).take(limit).collect(),
        })
    }
}

impl Rows {
    /// The keys of the rows that can pass, where one of the conditions names a column's cells.
    fn candidates<'a>(
        &'a self,
        table: &Table,
        filters: &'a [Condition],
    ) -> Option<impl Iterator<Item = &'a String> + use<'a>> {
        let (ordered, cells) = filters.iter().find_map(|Condition { column, is }| {
            let place = table.columns.iter().position(|known| known.name == *column)?;
            let cells = match is {
                Test::Eq(cell) => std::slice::from_ref(cell),
                Test::In(cells) => cells.as_slice(),
                _ => return None,
            };
            Some((self.ordered.get(place)?, cells))
        })?;
        let mut cells: Vec<&Cell> = cells.iter().collect();
        cells.sort_unstable();
        cells.dedup();
        let equal = move |cell: &'a Cell| {
            ordered.range((cell.clone(), String::new())..).take_while(move |(other, _)| other == cell)
        };
        Some(cells.into_iter().flat_map(equal).map(|(_, key)| key))
    }
}

/// Conditions, checked, and each with the place of its column; none for the key.
struct Filters<'a>(Vec<(Option<usize>, &'a Test)>);

impl<'a> Filters<'a> {
    fn new(table: &Table, conditions: &'a [Condition]) -> Result<Self, LogError> {
        let mut filters = Vec::new();
        for Condition { column, is } in conditions {
            let kind = table.kind(column)?;
            let part;
            let (cells, null_stands) = match is {
                Test::IsNull | Test::NotNull => (&[][..], true),
                Test::Eq(cell) | Test::Ne(cell) => (std::slice::from_ref(cell), true),
                Test::Lt(cell) | Test::Le(cell) | Test::Gt(cell) | Test::Ge(cell) => {
                    (std::slice::from_ref(cell), false)
                }
                Test::In(cells) => (cells.as_slice(), false),
                Test::Contains(text) => {
                    part = Cell::Text(text.clone());
                    (std::slice::from_ref(&part), false)
                }
            };
            for cell in cells {
                if *cell == Cell::Null && !null_stands {
                    return Err(table.misused(format!("`{column}` is compared with null")));
                }
                table.check_cell(column, kind, cell)?;
            }
            filters.push((table.columns.iter().position(|known| known.name == *column), is));
        }
        Ok(Self(filters))
    }

    fn pass(&self, key: &str, cells: &[Cell]) -> bool {
        self.0.iter().all(|(place, is)| match place.and_then(|place| cells.get(place)) {
            Some(cell) => passes(is, cell),
            None => passes(is, &Cell::Text(key.to_owned())),
        })
    }
}

fn passes(is: &Test, cell: &Cell) -> bool {
    match is {
        Test::Eq(other) => cell == other,
        Test::Ne(other) => cell != other,
        Test::IsNull => *cell == Cell::Null,
        Test::NotNull => *cell != Cell::Null,
        Test::Lt(other) => *cell != Cell::Null && cell < other,
        Test::Le(other) => *cell != Cell::Null && cell <= other,
        Test::Gt(other) => *cell != Cell::Null && cell > other,
        Test::Ge(other) => *cell != Cell::Null && cell >= other,
        Test::In(others) => others.contains(cell),
        Test::Contains(part) => matches!(cell, Cell::Text(text) if text.contains(part.as_str())),
    }
}

/// One process's way to the projections of a simulated store.
#[derive(Clone, Debug)]
pub(super) struct SimulatedViews(SimulatedLog);

impl SimulatedViews {
    pub(super) async fn open(url: &str, open: Open) -> Result<Self, LogError> {
        // The ledger must be there already, as on a database.
        SimulatedLog::open(url, Open::ReadOnly).await?.close().await;
        Ok(Self(SimulatedLog::open(url, open).await?))
    }

    async fn look<T>(&self, act: impl FnOnce(&Projections) -> Result<T, LogError>) -> Result<T, LogError> {
        self.0.ask(Operation::Look, |state| act(&state.views)).await
    }

    async fn change<T>(&self, act: impl FnOnce(&mut Projections) -> T) -> Result<T, LogError> {
        self.0.change("change a projection", |state| Ok(act(&mut state.views))).await
    }

    pub(super) async fn listing(&self, table: &'static Table) -> Result<Listing, LogError> {
        self.look(|views| Ok(views.listing(table))).await
    }

    pub(super) async fn make(&self, table: &'static Table, make: Make) -> Result<Option<i64>, LogError> {
        self.change(|views| views.make(table, make)).await
    }

    pub(super) async fn swap(&self, table: &'static Table, number: i64, swap: Swap) -> Result<bool, LogError> {
        self.change(|views| views.swap(table, number, swap)).await
    }

    pub(super) async fn discard(&self, table: &'static Table, number: i64) -> Result<(), LogError> {
        self.change(|views| {
            if let Some(found) = views.tables.get_mut(table.name)
                && found.active != Some(number)
            {
                found.known.remove(&number);
            }
        })
        .await
    }

    pub(super) async fn state(&self, table: &'static Table, number: i64) -> Result<Option<State>, LogError> {
        let state =
            |rows: &Rows| State { position: unsigned(rows.position), at: rows.at, stopped: rows.stopped.clone() };
        self.look(|views| Ok(views.rows(table, number).map(state))).await
    }

    pub(super) async fn load(
        &self,
        table: &'static Table,
        number: i64,
        keys: &[String],
    ) -> Result<Option<Vec<(String, Vec<u8>)>>, LogError> {
        self.look(|views| {
            let Some(rows) = views.rows(table, number) else { return Ok(None) };
            let found = keys.iter().filter_map(|key| Some((key.clone(), rows.rows.get(key)?.0.clone())));
            Ok(Some(found.collect()))
        })
        .await
    }

    pub(super) async fn apply(
        &self,
        table: &'static Table,
        number: i64,
        step: Step,
        changes: Changes,
    ) -> Result<bool, LogError> {
        self.change(|views| views.rows_mut(table, number).is_some_and(|rows| rows.apply(step, changes))).await
    }

    pub(super) async fn stop(
        &self,
        table: &'static Table,
        number: i64,
        position: i64,
        error: &str,
    ) -> Result<(), LogError> {
        self.change(|views| {
            if let Some(rows) = views.rows_mut(table, number)
                && rows.position < position
            {
                rows.stopped = Some((unsigned(position), error.to_owned()));
            }
        })
        .await
    }

    pub(super) async fn select(
        &self,
        table: &'static Table,
        number: i64,
        query: &Query,
    ) -> Result<Option<Vec<Row>>, LogError> {
        self.look(|views| views.rows(table, number).map(|rows| rows.select(table, query)).transpose()).await
    }

    pub(super) async fn count(
        &self,
        table: &'static Table,
        number: i64,
        filters: &[Condition],
    ) -> Result<Option<u64>, LogError> {
        self.look(|views| {
            let tests = Filters::new(table, filters)?;
            let Some(rows) = views.rows(table, number) else { return Ok(None) };
            Ok(Some(rows.rows.iter().filter(|(key, (_, cells))| tests.pass(key, cells)).count() as u64))
        })
        .await
    }

    pub(super) async fn named_checkpoint(&self, name: &str) -> Result<u64, LogError> {
        self.look(|views| Ok(views.checkpoints.get(name).copied().map_or(0, unsigned))).await
    }

    pub(super) async fn advance(&self, name: &str, from: i64, to: i64) -> Result<bool, LogError> {
        self.change(|views| views.advance(name, from, to)).await
    }

    pub(super) async fn lead(&self, name: &str, process: Uuid, ttl_s: u32) -> Result<bool, LogError> {
        let now = self.0.clock();
        self.change(|views| views.lead(name, process, ttl_s, now)).await
    }

    pub(super) async fn give_up(&self, name: &str, process: Uuid) -> Result<(), LogError> {
        self.change(|views| views.leaders.retain(|known, (leader, _)| known != name || *leader != process)).await
    }

    pub(super) async fn close(&self) {
        self.0.close().await;
    }
}
