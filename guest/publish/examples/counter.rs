//! Publish a page that counts, every second: `counter FOLDER`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: counter FOLDER");
        std::process::exit(2);
    };
    let page = PathBuf::from(folder).join("counter.txt");
    for count in 0_u64.. {
        let mut object = publish::Object::begin(&page)?;
        writeln!(object, "{count}")?;
        object.publish()?;
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}
