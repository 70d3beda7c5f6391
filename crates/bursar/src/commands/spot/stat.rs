//! `bursar spot stat`: what is in a folder.

use std::path::PathBuf;

use serde_json::json;
use spot::Storage;
use spot::snapshot::{read_header, recover, snapshot_name, snapshots};
use spot::storage::File;
use terminal::failure::CommandResult;
use terminal::output::{say, table, thousands, warn};

use super::{bar, for_reading, show, steadily};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder of the log
    folder: PathBuf,
}

pub fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let disk = for_reading(&arguments.folder)?;
    let bar = bar(json);
    bar.set_message("reading the log");
    let recovered = steadily(|| recover(&disk, None, &mut |progress| show(&bar, progress)));
    bar.finish_and_clear();
    let recovered = recovered?;
    for error in &recovered.unusable {
        warn(format!("warning {}: {error}", error.code()));
    }
    let segments = spot::log::read::segments(&disk)?;
    let kept: Vec<_> = snapshots(&disk)?
        .into_iter()
        .map(|batch| {
            let name = snapshot_name(batch);
            let bytes = disk.open(&name).and_then(|file| file.length()).unwrap_or(0);
            (batch, bytes, read_header(&disk, &name))
        })
        .collect();
    let (state, end) = (&recovered.state, &recovered.end);
    let totals: Vec<_> = state.totals().collect();
    let horizon = Some(state.window().horizon).filter(|horizon| horizon.micros() > 0);
    if json {
        say(json!({
            "log": format!("{:016x}", end.log_id),
            "batch": recovered.sequence,
            "digest": format!("{:016x}", state.digest()),
            "accounts": state.account_count(),
            "ids": state.id_count(),
            "horizon": horizon.map(|horizon| horizon.to_string()),
            "totals": totals.iter().map(|(asset, total)| json!({ "asset": asset.0, "total": total.units().to_string() })).collect::<Vec<_>>(),
            "segments": segments.len(),
            "segment_bytes": end.segment_bytes,
            "current_segment": end.segment,
            "current_offset": end.offset,
            "torn": end.torn,
            "snapshots": kept.iter().map(|(batch, bytes, header)| json!({ "batch": batch, "bytes": bytes,
                "accounts": header.map(|header| header.accounts), "ids": header.map(|header| header.ids) })).collect::<Vec<_>>(),
        }));
        return Ok(());
    }
    let mut rows = vec![
        vec!["log".to_owned(), format!("{:016x}", end.log_id)],
        vec!["last batch".to_owned(), thousands(recovered.sequence)],
        vec!["accounts".to_owned(), thousands(state.account_count() as u64)],
        vec!["operation ids remembered".to_owned(), thousands(state.id_count() as u64)],
        vec!["ids expire before".to_owned(), horizon.map_or_else(|| "never yet".into(), |horizon| horizon.to_string())],
        vec!["segments".to_owned(), format!("{} of {} MiB", segments.len(), end.segment_bytes >> 20)],
        vec!["the log ends in".to_owned(), format!("segment {}, offset {}", end.segment, end.offset)],
        vec!["digest of the state".to_owned(), format!("{:016x}", state.digest())],
    ];
    if let Some(torn) = &end.torn {
        rows.push(vec!["at its end".to_owned(), format!("a record being written, or torn: {torn}")]);
    }
    for (batch, bytes, header) in &kept {
        let holds = header.map_or_else(
            || "cannot be read".to_owned(),
            |header| format!("{} accounts, {} ids", thousands(header.accounts), thousands(header.ids)),
        );
        rows.push(vec![
            format!("snapshot of batch {}", thousands(*batch)),
            format!("{holds}, {} bytes", thousands(*bytes)),
        ]);
    }
    say(table(&["what", "value"], &[], &rows));
    if !totals.is_empty() {
        let rows: Vec<Vec<String>> =
            totals.iter().map(|(asset, total)| vec![asset.0.to_string(), total.units().to_string()]).collect();
        say(format!("\n{}", table(&["asset", "total, in units"], &[0, 1], &rows)));
    }
    Ok(())
}
