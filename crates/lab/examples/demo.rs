//! The demo, run from the source tree: `cargo run --example demo -- VICINITY [--shell]`.

use std::path::Path;
use std::process::ExitCode;

use lab::LabError;
use lab::demo::{self, Options};
use lab::progress::Progress;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let vicinity = words.next().unwrap_or_default();
    let mut options = Options::new(Path::new(&vicinity), Path::new("/tmp/target-lab"));
    if let Ok(c) = std::env::var("CHANNELS") {
        if c == "bridges" {
            options.channels = ["bridge", "bridge"];
        }
    }
    let progress = Progress::start();
    let run = || {
        lab::interrupt::install()?;
        if words.next().is_some() {
            return demo::shell(&options, &progress);
        }
        let result = demo::run(&options, &progress)?;
        println!("{result}");
        Ok(())
    };
    let mut run = run;
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(LabError::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
