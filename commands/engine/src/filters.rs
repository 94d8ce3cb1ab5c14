//! Which deliveries a trigger wants: event types by name, then a condition in CEL, judged under the limits and on the
//! watched threads that boundary rules have. Whatever cannot be judged is never let through.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use midwatch_boundary::{Filter, Judge, filter::Passes};
use midwatch_commands::{Refusal, trigger::takes_type};
use midwatch_events::{
    StreamName,
    delivery::{DeliveryContent, DeliveryEvent},
    id::{DeliveryId, TriggerId},
    trigger::Intake,
};
use midwatch_log::{
    Pending,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::deliveries::{Deliveries, DeliveryRow};

use crate::{Engine, EngineError, projector, reading};

/// Filters kept compiled per process; beyond it all are dropped.
const FILTERS_MAX: usize = 1_000;
/// How many deliveries a preview looks at.
pub const PREVIEW: u32 = 100;
const THREADS: usize = 2;

/// Compiled filters, and the threads that judge them. All of it can be lost at any time: it only saves work.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    judge: OnceLock<Option<Judge>>,
    compiled: Mutex<BTreeMap<String, Arc<Result<Filter, String>>>>,
}

impl Filters {
    fn compiled(&self, source: &str) -> Arc<Result<Filter, String>> {
        let known = |kept: &BTreeMap<String, Arc<_>>| kept.get(source).map(Arc::clone);
        if let Some(filter) = known(&self.compiled.lock().unwrap_or_else(PoisonError::into_inner)) {
            return filter;
        }
        let filter = Arc::new(Filter::compile(source).map_err(|finding| finding.sentence));
        let mut kept = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= FILTERS_MAX {
            kept.clear();
        }
        kept.insert(source.to_owned(), Arc::clone(&filter));
        filter
    }

    async fn judge(&self, source: &str, seen: &Seen<'_>) -> Passes {
        let filter = self.compiled(source);
        let filter = match filter.as_ref() {
            Ok(filter) => filter,
            Err(sentence) => return Passes::Broken(sentence.clone()),
        };
        let facts = match filter.facts(seen.headers, seen.body, seen.event_type) {
            Ok(facts) => facts,
            Err(why) => return Passes::Broken(why),
        };
        let Some(judge) = self.judge.get_or_init(|| Judge::new(THREADS).ok()) else {
            return Passes::Broken("there is no thread to evaluate the filter on".to_owned());
        };
        let (answer, answered) = tokio::sync::oneshot::channel();
        judge.submit(Arc::clone(filter.compiled()), facts, move |judgement| {
            // Whoever asked may have gone.
            let _ = answer.send(Filter::verdict(&judgement));
        });
        let gone = |_| Passes::Broken("the filter was not evaluated".to_owned());
        answered.await.unwrap_or_else(gone)
    }
}

/// What a filter sees of a delivery.
pub(crate) struct Seen<'a> {
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
    pub(crate) event_type: Option<&'a str>,
}

/// What a filter would have said of one delivery.
#[derive(Clone, Debug)]
pub struct Previewed {
    /// The delivery.
    pub delivery: DeliveryRow,
    /// Whether it would pass; none where its words were erased.
    pub passes: Option<Passes>,
}

impl Engine {
    /// Whether a trigger wants a delivery.
    pub(crate) async fn wants(&self, intake: &Intake, seen: Seen<'_>) -> Passes {
        if !takes_type(intake, seen.event_type) {
            return Passes::No;
        }
        match &intake.filter {
            None => Passes::Yes,
            Some(filter) => {
                // As its sender means it: unpacked, and a form as JSON.
                let header = |wanted: &str| {
                    seen.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
                };
                let (kind, packed) = (header("content-type"), header("content-encoding"));
                match reading::read(kind, packed, seen.body, reading::UNPACKED_BYTES_MAX) {
                    Ok(body) => self.filters().judge(filter, &Seen { body: &body, ..seen }).await,
                    Err(why) => Passes::Broken(format!("the body cannot be read: {why}")),
                }
            }
        }
    }

    /// Which of a trigger's last deliveries would pass, newest first, before such rules are saved.
    ///
    /// # Errors
    /// The filter cannot be saved; or a fault.
    pub fn preview_filter<'a>(
        &'a self,
        trigger: TriggerId,
        intake: &'a Intake,
    ) -> Pending<'a, Vec<Previewed>, EngineError> {
        Box::pin(async move {
            check_filter(intake)?;
            let of = Condition { column: "trigger", is: Test::Eq(Cell::Text(trigger.to_string())) };
            let order = Order { column: "position", descending: true };
            let rows = projector::page::<Deliveries>(self, vec![of], order, PREVIEW, None).await?;
            let mut previewed = Vec::with_capacity(rows.len());
            for (delivery, _) in rows {
                let passes = match self.headers(delivery.id).await?.zip(self.body(delivery.id).await?) {
                    None => None,
                    Some((headers, body)) => {
                        let event_type = delivery.event_type.as_deref();
                        Some(self.wants(intake, Seen { headers: &headers, body: &body, event_type }).await)
                    }
                };
                previewed.push(Previewed { delivery, passes });
            }
            Ok(previewed)
        })
    }

    /// Header names and values of a delivery, in the order they came; none once they were erased.
    ///
    /// # Errors
    /// There is no such delivery, or a fault.
    pub fn headers(&self, delivery: DeliveryId) -> Pending<'_, Option<Vec<(String, String)>>, EngineError> {
        Box::pin(
            async move { Ok(self.content(delivery).await?.map(|DeliveryContent::Received { headers, .. }| headers)) },
        )
    }

    /// What came beside the facts of a delivery; none once it was erased.
    pub(crate) async fn content(&self, delivery: DeliveryId) -> Result<Option<DeliveryContent>, EngineError> {
        let events = self.log().read_stream(&StreamName::delivery(delivery), 1, 1).await?;
        let first = events.first().ok_or(Refusal::NotFound("delivery"))?;
        Ok(first.content::<DeliveryEvent>()?)
    }
}

/// Refuses rules whose filter does not compile, with the place and what to do.
pub(crate) fn check_filter(intake: &Intake) -> Result<(), EngineError> {
    let Some(source) = &intake.filter else { return Ok(()) };
    let compiled = Filter::compile(source);
    compiled.map(|_| ()).map_err(|finding| {
        let (line, column, sentence) = (finding.line, finding.column, finding.sentence);
        Refusal::Invalid(format!("the filter, line {line}, column {column}: {sentence}")).into()
    })
}
