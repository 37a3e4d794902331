//! Writes the report's files.

use std::fs;
use std::path::{Path, PathBuf};

use vm_harness::error::{Context, Result};

use crate::document::{HTML, JSON, Report};
use crate::page;

/// Writes the report as JSON and as an HTML page into a folder, and returns the paths of the files.
///
/// # Errors
/// The folder cannot be written.
pub fn write(report: &Report, folder: &Path) -> Result<[PathBuf; 2]> {
    fs::create_dir_all(folder).context(|| format!("make {}", folder.display()))?;
    let json = serde_json::to_string_pretty(report).context(|| "describe the report".to_owned())?;
    let files = [(JSON, json + "\n"), (HTML, page::page(report))];
    for (name, text) in &files {
        let path = folder.join(name);
        fs::write(&path, text).context(|| format!("write {}", path.display()))?;
    }
    Ok(files.map(|(name, _)| folder.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::report;
    use crate::privacy::Redactor;

    #[test]
    fn the_json_form_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let written = report();
        let [json, html] = write(&written, folder.path()).unwrap();
        let text = fs::read_to_string(json).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), written);
        assert!(text.contains("\"verdict\": \"not-run\""), "{text}");
        assert!(fs::read_to_string(html).unwrap().contains("</html>"));
    }

    #[test]
    fn private_data_is_in_neither_file() {
        let mut planted = report();
        let secrets = [
            "hv7",
            "grace",
            "/home/ada/vms",
            "52:54:00:ab:cd:ef",
            "192.0.2.7",
            "2001:db8::7",
        ];
        planted.checks[0].reason = Some(secrets.join(" "));
        planted.checks[0].notes = secrets.map(str::to_owned).to_vec();
        planted.host.kernel = "6.1 built on hv7".to_owned();
        planted.accelerator_reason = Some("open /home/ada/kvm".to_owned());
        let redactor = Redactor::new(&["hv7"], "", &["grace"]);
        let folder = tempfile::tempdir().unwrap();
        let files = write(&planted.redacted(&redactor).unwrap(), folder.path()).unwrap();
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            for secret in secrets {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
    }
}
