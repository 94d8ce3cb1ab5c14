//! Asking a person about one exact call.
//!
//! An approval is answered once, and what it let through is decided in the event that spends it: two processes can
//! never both act on one yes. The same digest asked again in the same run joins the approval that is open, and a no
//! stays a no for the rest of the run: nobody is shown a second card for the same thing.

use midwatch_events::{
    Micros, New,
    id::{ApprovalId, CallId, UserId},
    key::Digest,
    run::{
        ApprovalAnswer, ApprovalAnswered, ApprovalRequested, Approvers, Decision, DecisionKind, RunContent, RunEvent,
    },
};

use serde::{Deserialize, Serialize};

use super::Run;
use crate::Refusal;

/// How long an approval waits for its answer, in seconds.
pub const APPROVAL_S: i64 = 600;

/// An approval as its run tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// What was asked.
    pub asked: ApprovalRequested,
    /// What was answered.
    pub answer: Option<ApprovalAnswer>,
    /// A call was let through by it.
    pub spent: bool,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answerer {
    /// The person, where it is known who it is.
    pub user: Option<UserId>,
    /// They may do what an admin may.
    pub admin: bool,
}

/// What the gateway must do about a call that a rule says to ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Nobody was asked yet, or what was said is spent: ask.
    Anew,
    /// Wait for the approval that is open.
    Join(ApprovalId),
    /// A person said yes: it may act, and that spends it.
    Spend(ApprovalId),
    /// A person said no.
    Declined(ApprovalId),
    /// Nobody answered in time.
    Expired(ApprovalId),
}

impl Approval {
    /// Whether somebody may answer it.
    ///
    /// # Errors
    /// They are neither an admin nor the owner, or the rule wants somebody else than the owner.
    pub fn may_answer(&self, by: Answerer) -> Result<(), Refusal> {
        let owner = by.user == Some(self.asked.owner);
        match self.asked.approvers {
            Approvers::Any if by.admin || owner => Ok(()),
            Approvers::Any => Err(Refusal::NotApprover("only an admin or the routine's owner may answer this")),
            Approvers::NotOwner if owner => {
                Err(Refusal::NotApprover("the rule wants the answer of somebody who does not own the routine"))
            }
            Approvers::NotOwner if by.user.is_none() => {
                // Nobody can tell who types there, so nobody can tell that it is not the owner.
                Err(Refusal::NotApprover("the rule wants to know who answers; answer on the approval's page"))
            }
            Approvers::NotOwner if by.admin => Ok(()),
            Approvers::NotOwner => Err(Refusal::NotApprover("only an admin may answer this")),
        }
    }

    fn answered(&self, answer: ApprovalAnswer) -> New<RunEvent> {
        let asked = &self.asked;
        RunEvent::ApprovalAnswered(ApprovalAnswered {
            approval: asked.approval,
            call: asked.call,
            answer,
            digest: asked.digest,
            tool: asked.tool.clone(),
            rule: asked.rule.clone(),
            run: asked.run,
            bot: asked.bot,
            routine: asked.routine,
            trigger: asked.trigger,
        })
        .into()
    }
}

impl Run {
    /// What to do about a call with this digest that a rule says to ask about.
    #[must_use]
    pub fn asking(&self, digest: &Digest) -> Asking {
        let latest = self.approvals.iter().rev().find(|approval| approval.asked.digest == *digest);
        let Some(approval) = latest else { return Asking::Anew };
        let id = approval.asked.approval;
        match approval.answer {
            None => Asking::Join(id),
            Some(ApprovalAnswer::Approved) if !approval.spent => Asking::Spend(id),
            Some(ApprovalAnswer::Approved | ApprovalAnswer::Withdrawn) => Asking::Anew,
            Some(ApprovalAnswer::Declined) => Asking::Declined(id),
            Some(ApprovalAnswer::Expired) => Asking::Expired(id),
        }
    }

    /// One of its approvals.
    ///
    /// # Errors
    /// There is no such one.
    pub fn approval(&self, id: ApprovalId) -> Result<&Approval, Refusal> {
        let found = self.approvals.iter().find(|approval| approval.asked.approval == id);
        found.ok_or(Refusal::NotFound("approval"))
    }

    /// One of its approvals that has no answer yet.
    fn open_approval(&self, id: ApprovalId) -> Result<&Approval, Refusal> {
        let approval = self.approval(id)?;
        match approval.answer {
            None => Ok(approval),
            Some(ApprovalAnswer::Approved) => Err(Refusal::Answered("a person said yes")),
            Some(ApprovalAnswer::Declined) => Err(Refusal::Answered("a person said no")),
            Some(ApprovalAnswer::Expired) => Err(Refusal::Answered("nobody answered in time")),
            Some(ApprovalAnswer::Withdrawn) => Err(Refusal::Answered("nothing waits for it any more")),
        }
    }

    /// Whether it waits for a person: the limit on silence stands still meanwhile.
    #[must_use]
    pub fn waits_for_a_person(&self) -> bool {
        self.approvals.iter().any(|approval| approval.answer.is_none())
    }

    pub(super) fn answer(
        &self,
        id: ApprovalId,
        digest: &Digest,
        yes: bool,
        by: Answerer,
        now: Micros,
    ) -> Result<Vec<New<RunEvent>>, Refusal> {
        let approval = self.approval(id)?;
        approval.may_answer(by)?;
        let approval = self.open_approval(id)?;
        if approval.asked.digest != *digest {
            return Err(Refusal::OtherCall);
        }
        if now >= approval.asked.expires_us {
            return Err(Refusal::Answered("nobody answered in time"));
        }
        Ok(vec![approval.answered(if yes { ApprovalAnswer::Approved } else { ApprovalAnswer::Declined })])
    }

    pub(super) fn expire(&self, id: ApprovalId, now: Micros) -> Result<Vec<New<RunEvent>>, Refusal> {
        let approval = self.open_approval(id)?;
        if now < approval.asked.expires_us {
            return Err(Refusal::AlreadySo("the approval has not expired yet"));
        }
        Ok(vec![approval.answered(ApprovalAnswer::Expired)])
    }

    /// Everything that waits is withdrawn, as the run ends.
    pub(super) fn withdraw_all(&self) -> Vec<New<RunEvent>> {
        let open = self.approvals.iter().filter(|approval| approval.answer.is_none());
        open.map(|approval| approval.answered(ApprovalAnswer::Withdrawn)).collect()
    }

    /// What a call asked is withdrawn: whoever made it is gone. Another call that waits for the same asks anew.
    pub(super) fn withdraw_call(&self, call: CallId) -> Vec<New<RunEvent>> {
        let open = self.approvals.iter().filter(|approval| approval.answer.is_none() && approval.asked.call == call);
        open.map(|approval| approval.answered(ApprovalAnswer::Withdrawn)).collect()
    }

    /// A judged call, with what is asked about it, if anybody is. What the call asked before it was judged anew is
    /// withdrawn, unless it still waits for that.
    pub(super) fn judged(
        &self,
        decision: Decision,
        content: RunContent,
        request: Option<New<RunEvent>>,
    ) -> Result<Vec<New<RunEvent>>, Refusal> {
        if request.is_none() {
            self.approved(&decision)?;
        }
        let earlier = self.approvals.iter().filter(|approval| {
            let asked = &approval.asked;
            approval.answer.is_none() && asked.call == decision.call && Some(asked.approval) != decision.approval
        });
        let mut events: Vec<_> = earlier.map(|approval| approval.answered(ApprovalAnswer::Withdrawn)).collect();
        // What is asked stands before the decision that waits for it.
        events.extend(request);
        let (ordinal, turn) = self.place(decision.call);
        events.push(New::with(RunEvent::ToolCallDecided(Decision { ordinal, turn, ..decision }), content));
        Ok(events)
    }

    /// Whether a decision's approval says what the decision makes of it.
    fn approved(&self, decision: &Decision) -> Result<(), Refusal> {
        let Some(id) = decision.approval else { return Ok(()) };
        match decision.decision {
            DecisionKind::Allowed => {
                let approval = self.approval(id)?;
                if approval.answer == Some(ApprovalAnswer::Approved) && !approval.spent {
                    Ok(())
                } else {
                    Err(Refusal::AlreadySo("the approval is spent, or is none"))
                }
            }
            DecisionKind::Asked => self.open_approval(id).map(|_| ()),
            DecisionKind::Refused => Ok(()),
        }
    }

    pub(super) fn requested(&mut self, asked: &ApprovalRequested) {
        if self.approval(asked.approval).is_err() {
            self.approvals.push(Approval { asked: asked.clone(), answer: None, spent: false });
        }
    }

    pub(super) fn answered_by(&mut self, answered: &ApprovalAnswered) {
        let found = self.approvals.iter_mut().find(|approval| approval.asked.approval == answered.approval);
        if let Some(approval) = found {
            // The first answer is final.
            approval.answer.get_or_insert(answered.answer);
        }
    }

    /// A call's first decision counts it; a later one, after a person was asked, does not.
    pub(super) fn decided(&mut self, decision: &Decision) {
        let again = self.asked_calls.remove(&decision.call).is_some();
        if !again {
            self.calls = self.calls.saturating_add(1);
            self.fingerprints.push(decision.fingerprint);
        }
        match decision.decision {
            DecisionKind::Refused => self.refused = self.refused.saturating_add(1),
            DecisionKind::Asked => {
                self.asked_calls.insert(decision.call, (decision.ordinal, decision.turn));
            }
            DecisionKind::Allowed => {
                self.open_calls.insert(decision.call, decision.clone());
                let found = self.approvals.iter_mut().find(|found| Some(found.asked.approval) == decision.approval);
                if let Some(approval) = found {
                    approval.spent = true;
                }
            }
        }
    }

    /// The place of a call in its run: where it was when a person was asked, else the next one.
    #[must_use]
    pub fn place(&self, call: CallId) -> (u32, u32) {
        self.asked_calls.get(&call).copied().unwrap_or((self.calls.saturating_add(1), self.turn))
    }
}

#[cfg(test)]
mod tests;
