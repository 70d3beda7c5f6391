//! What the disk can do at this moment: synced writes per second.

use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use crate::clock::Stopwatch;

/// Writes 4 KiB over and over in place in a preallocated file of the folder, with one fdatasync each.
pub fn fdatasync_per_s(folder: &Path, time: Duration) -> io::Result<f64> {
    let path = folder.join("bursar-disk-probe");
    let mut file = std::fs::File::create(&path)?;
    let block = [7_u8; 4_096];
    for _ in 0..256 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let watch = Stopwatch::start();
    let mut count = 0_u32;
    while watch.elapsed() < time {
        file.seek(SeekFrom::Start(u64::from(count % 256) * 4_096))?;
        file.write_all(&block)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = f64::from(count) / watch.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(rate)
}
