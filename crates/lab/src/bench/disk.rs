//! What the disk can do at this moment: synced writes per second.

use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use terminal::clock::Stopwatch;

/// One probe of the disk.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pub per_s: f64,
    /// The median time of one write with its sync.
    pub p50_us: f64,
}

/// Writes 4 KiB over and over in place in a preallocated file of the folder, with one fdatasync each.
pub fn fdatasync(folder: &Path, time: Duration) -> io::Result<Probe> {
    let path = folder.join("bursar-disk-probe");
    let mut file = std::fs::File::create(&path)?;
    let block = [7_u8; 4_096];
    for _ in 0..256 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let watch = Stopwatch::start();
    let mut times = Vec::new();
    let mut before = Duration::ZERO;
    while before < time {
        file.seek(SeekFrom::Start(times.len() as u64 % 256 * 4_096))?;
        file.write_all(&block)?;
        file.sync_data()?;
        let now = watch.elapsed();
        times.push(now - before);
        before = now;
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    let p50 = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(Probe { per_s: times.len() as f64 / before.as_secs_f64(), p50_us: p50.as_secs_f64() * 1e6 })
}
