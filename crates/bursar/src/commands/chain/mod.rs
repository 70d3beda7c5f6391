//! `bursar chain`: what the nodes of each chain say, how far each chain is followed, and what people order it to do.

mod check;
mod findings;
mod judge;
mod orders;
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
    /// Read old blocks again, for addresses that were not watched then and coins that were not listed
    ///
    /// The chain's worker does it, beside what is new, with the proof that new blocks get. What the blocks have and the books have
    /// not is taken in and credited; what nodes no longer show stays. After a restore from a backup, or when a token was listed:
    ///
    ///   bursar chain rescan bsc 41000000 41002000
    ///   bursar chain rescan bsc --stop
    #[command(verbatim_doc_comment)]
    Rescan(orders::RescanArguments),
    /// Let a halted chain go on where it is: what halted it was its nodes' fault, and they are mended
    Resume(orders::ResumeArguments),
    /// Take everything above a block back, by the word of two people: the chain has parted from ours below all blocks that are kept
    ///
    /// The worker finds a fork by itself, up to two thousand blocks deep. Below that the chain halts until people have looked: every
    /// credit above the block is taken back, and given again if the chain still pays it.
    ///
    ///   bursar chain rewind bsc --to 41000000 --actor ann --second bob --reason "case 4711"
    #[command(verbatim_doc_comment)]
    Rewind(orders::RewindArguments),
    /// List what somebody should know: nodes that lied, coins that left unexplained, balances that differ
    Findings(findings::FindingsArguments),
    /// Say that findings were seen to
    Resolve(findings::ResolveArguments),
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::Check(arguments) => check::run(context, &db, arguments).await,
        Command::Status => status::run(context, &db).await,
        Command::Rescan(arguments) => orders::rescan(context, &db, arguments).await,
        Command::Resume(arguments) => orders::resume(context, &db, arguments).await,
        Command::Rewind(arguments) => orders::rewind(context, &db, arguments).await,
        Command::Findings(arguments) => findings::list(context, &db, arguments).await,
        Command::Resolve(arguments) => findings::resolve(context, &db, arguments).await,
    };
    db.close().await;
    done
}
