//! An image with more files.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use super::cpio;
use super::manifest::Image;
use crate::error::{Context, Result};
use crate::host;

/// Path of the program below a guest's root.
const PROGRAM: &str = "usr/local/bin/vicinity";

impl Image {
    /// Returns the same image with a program of this host as `/usr/local/bin/vicinity`, without its debugging
    /// information. Guests have the Debian release of the host, so they have the program's libraries. The files are
    /// made in `folder`.
    ///
    /// # Errors
    /// `strip` is missing, or the files cannot be written.
    pub fn with_program(&self, program: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).context(|| format!("make {}", folder.display()))?;
        let bare = stripped(program, folder)?;
        self.with_file(&bare, Path::new(PROGRAM), folder)
    }

    /// Returns the same image with a program as for [`Image::with_program`] and with other files as for
    /// [`Image::with_file`], each with its path in the guest.
    ///
    /// # Errors
    /// As for [`Image::with_program`].
    pub fn with_program_and_files(
        &self,
        program: &Path,
        files: &[(&Path, &Path)],
        folder: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(folder).context(|| format!("make {}", folder.display()))?;
        let bare = stripped(program, folder)?;
        let all = [(bare.as_path(), Path::new(PROGRAM))];
        self.with_files(&[&all[..], files].concat(), folder)
    }

    /// Returns the same image with a file of this host, at this path below the guest's root. The new
    /// initramfs is made in `folder`.
    ///
    /// # Errors
    /// The files cannot be read or written.
    pub fn with_file(&self, file: &Path, inside: &Path, folder: &Path) -> Result<Self> {
        self.with_files(&[(file, inside)], folder)
    }

    fn with_files(&self, files: &[(&Path, &Path)], folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).context(|| format!("make {}", folder.display()))?;
        let initrd = folder.join("initrd.cpio");
        append(&self.initrd, files, &initrd).context(|| format!("write {}", initrd.display()))?;
        Ok(Self {
            initrd,
            ..self.clone()
        })
    }
}

/// Copies a program without its debugging information.
fn stripped(program: &Path, folder: &Path) -> Result<PathBuf> {
    let bare = folder.join("vicinity");
    let mut strip = host::command("strip");
    strip.arg("-o").arg(&bare).arg(program);
    host::run(strip)?;
    Ok(bare)
}

/// Appends an archive with these files: the kernel unpacks concatenated archives one after the other.
fn append(base: &Path, files: &[(&Path, &Path)], to: &Path) -> std::io::Result<()> {
    let mut out = File::create(to)?;
    std::io::copy(&mut File::open(base)?, &mut out)?;
    let mut writer = cpio::Writer::new(BufWriter::new(out));
    for (file, inside) in files {
        let mut above: Vec<_> = inside.ancestors().skip(1).collect();
        above.reverse();
        for folder in above.iter().filter(|path| !path.as_os_str().is_empty()) {
            let name = folder.as_os_str().as_encoded_bytes();
            writer.entry(name, cpio::folder(0o755), b"")?;
        }
        writer.copy(inside.as_os_str().as_encoded_bytes(), file)?;
    }
    writer.finish().map(drop)
}
