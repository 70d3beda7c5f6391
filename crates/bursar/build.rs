//! Lists the pages of `docs/errors`, so that `bursar explain` has them in the program: an operator at three in the morning has the
//! program, and perhaps not the documents.

use std::fmt::Write;
use std::path::Path;

fn main() {
    // Asked when it runs: another tree may share the folder that this is built in.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where");
    let folder = Path::new(&here).join("../../docs/errors");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = std::fs::read_dir(&folder).expect("docs/errors is there");
    let mut codes: Vec<String> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        .filter(|code| code != "README")
        .collect();
    codes.sort();
    let mut text = String::from("&[\n");
    for code in codes {
        let page = folder.join(format!("{code}.md"));
        println!("cargo::rerun-if-changed={}", page.display());
        writeln!(text, "    ({code:?}, include_str!({:?})),", page.display().to_string()).expect("a text has room");
    }
    text.push_str("]\n");
    let out = std::env::var("OUT_DIR").expect("cargo says where");
    std::fs::write(Path::new(&out).join("error_pages.rs"), text).expect("written");
}
