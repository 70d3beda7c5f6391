//! The two people that an action needs, as they are typed.

use domain::{Approval, BadApproval};
use terminal::failure::Failure;

#[derive(Debug, clap::Args)]
pub struct ApprovalArguments {
    /// Why, for the history
    #[arg(long)]
    reason: String,
    /// Who does this
    #[arg(long, env = "BURSAR_ACTOR")]
    actor: String,
    /// Who else has looked at it and agrees: another person
    #[arg(long)]
    second: String,
}

impl ApprovalArguments {
    pub fn approval(&self) -> Result<Approval, Failure> {
        approval(&self.actor, &self.second, &self.reason)
    }
}

pub fn approval(actor: &str, second: &str, reason: &str) -> Result<Approval, Failure> {
    Approval::new(actor, second, reason).map_err(|error| match error {
        BadApproval::SamePerson => {
            let message = format!("--actor and --second are both {}", actor.trim());
            Failure::bad_input("SECOND_PERSON_MISSING", message, "a second person must look at it and agree")
        }
        BadApproval::Name => Failure::bad_input("SECOND_PERSON_MISSING", error.to_string(), "--actor ann --second bob"),
        BadApproval::Reason => Failure::bad_input("REASON_MISSING", error.to_string(), "--reason \"case 4711\""),
    })
}
