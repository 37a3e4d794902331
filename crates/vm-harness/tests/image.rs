//! The same inputs yield the same image, byte for byte, and an incomplete image is never used.

#![allow(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use std::fs;
use std::path::{Path, PathBuf};

use vm_harness::image::{Image, Recipe};

/// Makes an empty cache folder for one test.
fn cache(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _not_there = fs::remove_dir_all(&path);
    path
}

fn files(image: &Image) -> [Vec<u8>; 2] {
    [&image.kernel, &image.initrd].map(|file| fs::read(file).unwrap())
}

#[test]
fn two_builds_are_equal_and_an_unfinished_one_is_ignored() {
    let (one, two) = (cache("image-one"), cache("image-two"));
    let recipe = Recipe::default();
    let first = recipe.build(&one).unwrap();
    // A build that was killed leaves this folder.
    fs::create_dir_all(two.join("unfinished/image")).unwrap();
    fs::write(two.join("unfinished/image/manifest.json"), "{").unwrap();
    let second = recipe.build(&two).unwrap();
    assert_eq!(first.manifest, second.manifest);
    assert!(files(&first) == files(&second), "the images differ");
    assert!(!two.join("unfinished").exists());
    assert!(first.manifest.packages.contains_key("iperf3"));

    let made = fs::metadata(&first.initrd).unwrap().modified().unwrap();
    let again = recipe.build(&one).unwrap();
    let kept = fs::metadata(&again.initrd).unwrap().modified().unwrap();
    assert_eq!(made, kept, "the image was built again");
    for folder in [one, two] {
        fs::remove_dir_all(folder).unwrap();
    }
}
