//! What each type of event is called.

/// The event in words, and whether this binary knows the type.
pub(super) fn event(event: &str) -> (String, bool) {
    let words = match event {
        "bot.registered" => "Bot registered",
        "bot.tools_granted" => "Tools granted",
        "bot.tools_withdrawn" => "Tools withdrawn",
        "bot.retired" => "Bot retired",
        "bot.unreachable" => "Bot does not answer",
        "bot.reachable" => "Bot answers again",
        "boundary.published" => "Boundary published",
        "boundary.tool_server_added" => "MCP server added",
        "boundary.tool_server_removed" => "MCP server removed",
        "boundary.tool_accepted" => "Tool accepted as it is defined",
        "boundary.tool_dropped" => "Tool not accepted any more",
        "repeat.threshold_crossed" => "Same call again and again",
        "routine.created" => "Routine created",
        "routine.renamed" => "Routine renamed",
        "routine.rescheduled" => "Routine rescheduled",
        "routine.work_replaced" => "Routine's work replaced",
        "routine.limits_replaced" => "Routine's limits replaced",
        "routine.paused" => "Routine paused",
        "routine.resumed" => "Routine resumed",
        "routine.suspended" => "Routine suspended",
        "routine.deleted" => "Routine deleted",
        "routine.rearmed" => "Next window looked for again",
        "routine.run_claimed" | "trigger.run_claimed" => "Run claimed",
        "routine.run_settled" | "trigger.run_settled" => "Run settled",
        "routine.windows_missed" => "Windows missed",
        "routine.window_skipped" => "Window skipped",
        "routine.window_queued" => "Window waits for a run's end",
        "routine.window_held" => "Window held: nobody can run it",
        "routine.delivery_queued" | "trigger.delivery_queued" => "Delivery waits its turn",
        "routine.delivery_taken" | "trigger.delivery_taken" => "Delivery taken",
        "routine.delivery_dropped" | "trigger.delivery_dropped" => "Delivery will not run",
        "run.opened" => "Run opened",
        "run.taken" => "Run taken by a runner",
        "run.turn_started" => "Turn started",
        "run.turn_finished" => "Turn finished",
        "run.tool_call_decided" => "Call judged",
        "run.tool_call_ended" => "Call ended",
        "run.attempt_failed" => "Attempt failed, tried again",
        "run.approval_requested" => "A person was asked",
        "run.approval_answered" => "An approval was answered",
        "run.ended" => "Run ended",
        "run.call_outcome_late" => "A call's outcome came late",
        "run.reported_late" => "A runner's report came late",
        _ => {
            return of_senders_and_people(event)
                .map_or(("Unknown event".to_owned(), false), |words| (words.to_owned(), true));
        }
    };
    (words.to_owned(), true)
}

/// The events of deliveries, triggers, people and the deployment.
fn of_senders_and_people(event: &str) -> Option<&'static str> {
    Some(match event {
        "delivery.received" => "Delivery received",
        "delivery.queued" => "Delivery waits",
        "delivery.started" => "Delivery became a run",
        "delivery.dropped" => "Delivery dropped",
        "delivery.redelivered" => "Delivery let run once more",
        "delivery.redelivery_started" => "Redelivery of many begun",
        "delivery.redelivery_progressed" => "Redelivery went on",
        "delivery.redelivery_finished" => "Redelivery finished",
        "delivery.redelivery_cancelled" => "Redelivery cancelled",
        "engine.ledger_created" => "Ledger created",
        "engine.deployment_adopted" => "Deployment adopted",
        "engine.scheduling_halted" => "Scheduling halted",
        "engine.scheduling_lifted" => "Halt lifted",
        "engine.content_erased" => "Words erased",
        "engine.reaction_started" => "Reaction of a new release started",
        "engine.receiver_added" => "Receiver of notices added",
        "engine.receiver_removed" => "Receiver of notices removed",
        "engine.notice_asked_again" => "Notice to be posted once more",
        "trigger.created" => "Trigger created",
        "trigger.secret_rotated" => "Secret rotated",
        "trigger.intake_replaced" => "Deliveries taken in by other rules",
        "trigger.sender_replaced" => "Another kind of sender",
        "trigger.sample_captured" => "Sample captured",
        "trigger.confirmed" => "Sample confirmed",
        "trigger.paused" => "Trigger paused",
        "trigger.resumed" => "Trigger resumed",
        "trigger.deleted" => "Trigger deleted",
        "user.invited" => "Person invited",
        "user.link_issued" => "Sign-in link made",
        "user.signed_in" => "Signed in",
        "user.signed_out" => "Signed out",
        "user.token_issued" => "API token made",
        "user.bot_token_issued" => "Token of a Bot made",
        "user.token_revoked" => "API token revoked",
        "user.revoked" => "Person revoked",
        "user.evidence_granted" => "May read what was sent and told",
        "user.evidence_withdrawn" => "May not read what was sent and told",
        "user.evidence_read" => "Read what was sent or told",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::event;

    #[test]
    fn every_event_of_the_catalogue_has_its_words() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../events/golden");
        let mut seen = 0;
        for entry in fs::read_dir(golden).expect("the golden events") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name");
            let (wire, _) = name.rsplit_once(".txt").expect("a golden file");
            let (wire, _) = wire.rsplit_once('.').expect("its version");
            // What the audit view leaves out.
            let notices = matches!(wire, "engine.notice_raised" | "engine.notice_attempted");
            if notices || matches!(wire, "repeat.attempted" | "repeat.settled") || wire.starts_with("engine.process_") {
                continue;
            }
            assert!(event(wire).1, "{wire}");
            seen += 1;
        }
        assert!(seen > 40);
        assert_eq!(event("run.teleported"), ("Unknown event".to_owned(), false));
    }
}
