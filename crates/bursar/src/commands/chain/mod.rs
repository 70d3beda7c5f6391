//! `bursar chain`: what the nodes of each chain say, and how far each chain is followed.

mod check;
mod judge;
mod status;

use terminal::failure::CommandResult;

use super::Context;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Ask every node of the configuration, and say what can be credited by them
    ///
    /// Each node is asked for its network, its newest block, a block that all of them have, and what it can do. Exit 3 if a chain's
    /// nodes do not allow that deposits are credited. A chain that is suspended is asked too.
    ///
    ///   bursar chain check           every chain that has nodes
    ///   bursar chain check bsc
    #[command(verbatim_doc_comment)]
    Check(check::Arguments),
    /// List the chains: which are followed, by how many nodes, and what is credited there
    Status,
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::Check(arguments) => check::run(context, &db, arguments).await,
        Command::Status => status::run(context, &db).await,
    };
    db.close().await;
    done
}
