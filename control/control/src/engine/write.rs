//! One change from request to answer: expected ETag, plan, impact, the data plane's own opinion, a new
//! revision, and the commit.

use std::sync::Arc;

use crem_api::Impact;
use crem_api::diff::diff;
use crem_api::rest::{Operation, OperationState, Problem, Step, Written};

use super::{Core, WriteRequest};
use crate::clock;
use crate::commit::Input;
use crate::digest::random_hex;
use crate::plan::{Base, Edit, Planned, confirm_required, plan};
use crate::plane::Taken;
use crate::problem::{self, Kind, problem};
use crate::store::NewRevision;

/// How long a key is remembered, milliseconds.
const REMEMBER_MS: u64 = 24 * 3_600_000;

impl Core {
    pub(super) fn write(&mut self, request: WriteRequest) -> Result<Written, Box<Problem>> {
        if let Some(written) = self.seen_before(&request)? {
            return Ok(written);
        }
        self.machine
            .may_begin(request.window_ms)
            .map_err(|refusal| self.refuse(refusal))?;
        self.check_expected(request.expected.as_deref())?;
        let edit = self.resolve(request.edit.clone(), &request.pointer)?;
        let base = Base {
            value: &self.value,
            document: self.document.as_deref(),
        };
        let planned = plan(base, edit).map_err(problem::invalid)?;
        if planned.value == *self.value {
            return Ok(self.unchanged());
        }
        self.check_impact(&request, &planned)?;
        self.ask_plane(&request, &planned)?;
        self.carry_out(&request, planned)
    }

    fn resolve(&self, edit: Edit, pointer: &str) -> Result<Edit, Box<Problem>> {
        let edit = edit.at(pointer, &self.value);
        edit.map_err(problem::invalid)
    }

    /// The answer to the same request, if it came before and its client did not get it.
    fn seen_before(&self, request: &WriteRequest) -> Result<Option<Written>, Box<Problem>> {
        let Some((key, content)) = &request.idempotency else {
            return Ok(None);
        };
        let oldest = clock::now().wall_ms.saturating_sub(REMEMBER_MS);
        let found = self.store.operations().values().rev().find(|operation| {
            let recent = operation.steps.first().is_some_and(|s| s.at_ms >= oldest);
            recent && operation.idempotency.as_ref().is_some_and(|i| i.0 == *key)
        });
        let Some(operation) = found else {
            return Ok(None);
        };
        if operation
            .idempotency
            .as_ref()
            .is_some_and(|i| i.1 != *content)
        {
            let detail = "This Idempotency-Key came with another request before.";
            return Err(Box::new(Problem {
                operation: Some(operation.id.clone()),
                ..*problem(Kind::IdempotencyKeyReused, detail)
            }));
        }
        match (&operation.problem, operation.state) {
            (Some(failed), OperationState::Failed) => Err(failed.clone()),
            _ => Ok(operation.written.clone()),
        }
    }

    fn check_expected(&self, expected: Option<&[String]>) -> Result<(), Box<Problem>> {
        let current = self.picture().etag();
        let Some(expected) = expected else {
            return Ok(());
        };
        if expected.contains(&current) {
            return Ok(());
        }
        // The number in front of the first ETag names the document that the client saw.
        let seen = expected.first().and_then(|etag| {
            let number = etag.trim_matches('"').split('-').next()?;
            self.store.document(number.parse().ok()?).ok()
        });
        Err(Box::new(Problem {
            diff: seen.map(|seen| diff(&seen, &self.value)),
            current_etag: Some(current),
            ..*problem(
                Kind::RevisionConflict,
                "Look at the running document and make the change again.",
            )
        }))
    }

    fn check_impact(&self, request: &WriteRequest, planned: &Planned) -> Result<(), Box<Problem>> {
        if planned.impact > request.max_impact {
            let mut fields = planned.fields.clone();
            fields.retain(|f| f.impact > request.max_impact);
            let detail = "Ask again with max_impact if that is meant.";
            return Err(problem::impact(fields, detail));
        }
        if request.window_ms.is_some() {
            if planned.impact == Impact::Process {
                let detail = "The data plane would have to start anew, and does so from the confirmed \
                              document. Ask without confirm.";
                return Err(problem(Kind::RestartNotConfirmable, detail));
            }
        } else if self.document.is_some() && confirm_required(&planned.fields) {
            let detail =
                "It touches how this API is reached. Ask with confirm, for example confirm=120s.";
            return Err(problem(Kind::ConfirmRequired, detail));
        }
        Ok(())
    }

    /// What the data plane would say, before there is a revision of it.
    fn ask_plane(&mut self, request: &WriteRequest, planned: &Planned) -> Result<(), Box<Problem>> {
        match self.plane.apply(0, &planned.value, true) {
            Taken::InForce(impact) if impact > request.max_impact => {
                let detail = format!("In the data plane the change has the impact {impact:?}.");
                Err(problem::impact(planned.fields.clone(), detail))
            }
            Taken::NeedsRestart(fields) if request.max_impact < Impact::Process => Err(
                problem::impact(fields, "The data plane would have to start anew."),
            ),
            Taken::NeedsRestart(_) if request.window_ms.is_some() => {
                let detail = "The data plane would have to start anew. Ask without confirm.";
                Err(problem(Kind::RestartNotConfirmable, detail))
            }
            Taken::Refused(invalid) => Err(problem::invalid(invalid)),
            Taken::Failed(why) => Err(problem(Kind::ApplyFailed, why)),
            Taken::InForce(_) | Taken::Absent | Taken::NeedsRestart(_) => Ok(()),
        }
    }

    fn unchanged(&self) -> Written {
        Written {
            changed: false,
            revision: self.machine.running(),
            diff: Vec::new(),
            impact: Impact::None,
            operation: None,
            pending: None,
            restart_needed: self.restart_needed,
        }
    }

    fn carry_out(
        &mut self,
        request: &WriteRequest,
        planned: Planned,
    ) -> Result<Written, Box<Problem>> {
        let now = clock::now();
        let broken = |e: &dyn std::fmt::Display| problem(Kind::Internal, e.to_string());
        let random = random_hex::<4>().map_err(|e| broken(&e))?;
        let id = format!("op-{:013}-{random}", now.wall_ms);
        let keep: Vec<u64> = self.machine.confirmed().into_iter().collect();
        let new = NewRevision {
            document: &planned.value,
            parent: self.machine.running(),
            at_ms: now.wall_ms,
            actor: &request.actor,
            source: request.source,
            comment: request.comment.as_deref(),
            impact: planned.impact,
        };
        let revision = self.store.append(&new, &keep).map_err(|e| broken(&e))?;
        self.planned = Some((revision.number, Arc::new(planned.document)));
        let mut written = Written {
            changed: true,
            revision: Some(revision.number),
            diff: planned.diff,
            impact: planned.impact,
            operation: Some(id.clone()),
            pending: None,
            restart_needed: false,
        };
        let operation = Operation {
            id: id.clone(),
            state: OperationState::Running,
            revision: revision.number,
            actor: request.actor.clone(),
            steps: vec![Step {
                at_ms: now.wall_ms,
                text: format!("revision {} made", revision.number),
            }],
            problem: None,
            written: Some(written.clone()),
            idempotency: request.idempotency.clone(),
        };
        self.store.save(&operation).map_err(|e| broken(&e))?;
        let begun = self.take(Input::Begin {
            operation: id.clone(),
            revision: revision.number,
            window_ms: request.window_ms,
            actor: request.actor.clone(),
        });
        begun.map_err(|refusal| self.refuse(refusal))?;
        if let Some(failed) = self.failed(&id) {
            return Err(failed);
        }
        let commit = self.machine.commit(clock::now());
        written.pending = (commit.revision == Some(revision.number)).then_some(commit);
        written.restart_needed = self.restart_needed;
        Ok(written)
    }

    fn failed(&self, id: &str) -> Option<Box<Problem>> {
        let operation = self.store.operations().get(id)?;
        let over = matches!(
            operation.state,
            OperationState::Failed | OperationState::RolledBack
        );
        operation.problem.clone().filter(|_| over)
    }
}
