//! `midwatch erase`: words that have to go. What was decided and counted stays, and so does the record that they went.

use std::process::ExitCode;

use clap::Args;
use midwatch_events::{
    StreamName,
    id::{DeliveryId, RunId},
};
use serde_json::json;

use crate::{cli::Globals, failure::Failure, joining, typed::id};

#[derive(Args, Debug)]
pub(crate) struct Erase {
    #[command(flatten)]
    whose: Whose,
    /// Why; recorded, so name nobody
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Whose {
    /// A run's: what it was told, what the Bot said, arguments and results
    #[arg(long, value_name = "ID", value_parser = id::<midwatch_events::id::Run>)]
    run: Option<RunId>,
    /// A delivery's: headers and body
    #[arg(long, value_name = "ID", value_parser = id::<midwatch_events::id::Delivery>)]
    delivery: Option<DeliveryId>,
    /// Any stream's, such as user-ID or routine-ID
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
}

impl Whose {
    fn stream(self) -> StreamName {
        let of_run = self.run.map(StreamName::run);
        let of_delivery = self.delivery.map(StreamName::delivery);
        of_run.or(of_delivery).unwrap_or_else(|| StreamName::stored(self.stream.unwrap_or_default()))
    }
}

impl Erase {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let stream = self.whose.stream();
        let erased =
            joining::write(globals, async |engine, origin| Ok(engine.erase(&stream, &self.reason, origin).await?));
        let erased = erased.await?;
        let (events, blobs, position) = (erased.value.events, erased.value.blobs, erased.position);
        let answer = json!({ "stream": stream.as_str(), "events": events, "blobs": blobs, "position": position });
        globals.output().answer(&answer, || {
            format!("Erased the words of {events} events of {stream} and {blobs} bodies, at position {position}")
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
