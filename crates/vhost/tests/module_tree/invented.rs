//! Small invented crates.

use std::path::{Path, PathBuf};

use crate::circles::{circles, describe};
use crate::edges::edges;
use crate::modules::{Crate, Sources};
use crate::roots;

/// Returns the edges between these files of `src`, as "from:line to".
fn uses(files: &[(&str, &str)]) -> Vec<String> {
    let edges = edges(&load(files));
    let line = |edge: crate::edges::Edge| {
        let (from, to) = (edge.from.display(), edge.to.display());
        format!("{from}:{} {to}", edge.line)
    };
    edges.into_iter().map(line).collect()
}

/// Returns the report about the circles of these files.
fn report(files: &[(&str, &str)]) -> String {
    describe(&circles(&edges(&load(files))))
}

fn load(files: &[(&str, &str)]) -> Crate {
    let owned = |(file, text): &(&str, &str)| (PathBuf::from(file), (*text).to_owned());
    let sources: Sources = files.iter().map(owned).collect();
    Crate::load(&sources, Path::new(files[0].0))
}

const TWO: (&str, &str) = ("lib.rs", "mod a;\nmod b;");

#[test]
fn two_modules_that_name_each_other_are_a_circle() {
    let report = report(&[
        TWO,
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        (
            "b.rs",
            "pub struct B;\nfn f() {\n    super::a::A::new();\n}",
        ),
    ]);
    let expected = "\nThese 2 files name each other in a circle:\n  a.rs\n    line 1: crate::b::B, of b.rs\n  \
                    b.rs\n    line 3: super::a::A::new, of a.rs\nModules of a crate form a tree. ";
    assert!(report.starts_with(expected), "{report}");
}

#[test]
fn a_circle_of_three_is_one_report_without_the_files_beside_it() {
    let report = report(&[
        ("lib.rs", "mod a; mod b; mod c; mod top; mod base;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        ("b.rs", "use super::c;\npub struct B(c::C);"),
        (
            "c.rs",
            "use crate::{a::A, base::Base};\npub struct C(A, Base);",
        ),
        ("top.rs", "use crate::a::A;"),
        ("base.rs", "pub struct Base;"),
    ]);
    assert_eq!(report.matches("circle").count(), 1, "{report}");
    assert!(report.contains("These 3 files"), "{report}");
    assert!(
        !report.contains("top") && !report.contains("base"),
        "{report}"
    );
}

#[test]
fn two_circles_are_two_reports() {
    let report = report(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::a::A; use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::d::D; pub struct C;"),
        ("d.rs", "use crate::c::C; pub struct D;"),
    ]);
    assert_eq!(report.matches("These 2 files").count(), 2, "{report}");
}

#[test]
fn a_parent_that_declares_and_re_exports_is_in_no_circle() {
    let files = [
        (
            "lib.rs",
            "mod a;\nmod b;\npub use a::A;\npub(crate) use b::*;",
        ),
        ("a.rs", "pub struct A;"),
        ("b.rs", "use crate::A;\npub struct B(A);"),
    ];
    assert_eq!(uses(&files), ["b.rs:1 a.rs"]);
}

#[test]
fn a_re_export_hides_no_circle() {
    let report = report(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;"),
        ("a.rs", "pub struct A(crate::B);"),
        ("b.rs", "use super::A;\npub struct B;"),
    ]);
    assert!(report.contains("line 1: crate::B, of b.rs"), "{report}");
    assert!(report.contains("line 1: super::A, of a.rs"), "{report}");
}

#[test]
fn a_parent_that_uses_its_re_export_has_an_edge() {
    let report = report(&[
        (
            "lib.rs",
            "mod a;\npub use a::A;\npub struct Top;\nfn f(a: A) {}",
        ),
        ("a.rs", "use super::Top;\npub struct A;"),
    ]);
    assert!(report.contains("line 4: A, of a.rs"), "{report}");
}

#[test]
fn a_private_use_of_the_parent_leads_its_child_to_the_definition() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nuse b::B;\nfn f(b: B) {}"),
        ("a.rs", "use super::B;"),
        ("b.rs", "pub struct B;"),
    ];
    assert_eq!(uses(&files), ["a.rs:1 b.rs", "lib.rs:3 b.rs"]);
}

#[test]
fn a_module_counts_by_the_items_named_through_it() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        (
            "a.rs",
            "use crate::b;\nuse crate::c::{self, limits as l};\nconst N: u8 = l::N;",
        ),
        ("b.rs", ""),
        ("c.rs", "pub mod limits;"),
        ("c/limits.rs", "pub const N: u8 = 1;"),
    ];
    assert_eq!(uses(&files), ["a.rs:3 c/limits.rs"]);
}

#[test]
fn a_glob_is_an_edge_and_leads_through_re_exports() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "use crate::b::*;\nfn f(c: C) {}"),
        ("b.rs", "pub use super::c::C;"),
        ("c.rs", "pub struct C;"),
    ];
    assert_eq!(uses(&files), ["a.rs:1 b.rs", "a.rs:2 c.rs"]);
}

#[test]
fn macros_attributes_patterns_and_functions_count() {
    let text = "fn f() {\n    println!(\"{}\", [crate::b::one()]);\n    if let super::b::Kind::A = x {}\n    \
                use super::b::TWO;\n}\n#[error(\"{}\", crate::b::TWO)]\nstruct S {\n    \
                #[serde(default = \"crate::b::three\")]\n    x: u8,\n}";
    let files = [
        TWO,
        ("a.rs", text),
        (
            "b.rs",
            "pub fn one() {} pub enum Kind { A } pub const TWO: u8 = 2; pub fn three() {}",
        ),
    ];
    assert_eq!(
        uses(&files),
        [2, 3, 4, 6, 8].map(|line| format!("a.rs:{line} b.rs"))
    );
}

#[test]
fn fields_and_visibilities_and_comments_do_not_count() {
    let text =
        "/// See [`crate::b::B`].\npub(in super::super) fn f(x: X) { println!(\"{}\", x.B) }";
    let files = [
        ("lib.rs", "mod b;\npub use b::B;\nmod a;"),
        ("a.rs", text),
        ("b.rs", "pub struct B;"),
    ];
    assert_eq!(uses(&files), [""; 0]);
}

#[test]
fn other_crates_do_not_count() {
    let text = "use std::b::B;\nuse ::b::C;\nfn f() { core::mem::drop(b::B::new()) }";
    let files = [TWO, ("a.rs", text), ("b.rs", "pub struct B;")];
    assert_eq!(uses(&files), [""; 0]);
}

#[test]
fn code_for_tests_and_loom_does_not_count() {
    let text = "#[cfg(test)]\nuse crate::b::B;\n#[cfg(all(test, not(loom)))]\nmod tests;\n#[cfg(loom)]\n\
                mod model { use crate::b::B; }\nstruct A;\nimpl A {\n    #[cfg(any(test, loom))]\n    \
                fn f() { crate::b::B; }\n}\n#[test]\nfn t() { #[cfg(test)] crate::b::f!(); crate::b::B; }";
    let files = [TWO, ("a.rs", text), ("b.rs", "pub struct B;")];
    assert_eq!(uses(&files), [""; 0]);
}

#[test]
fn code_for_a_target_or_a_feature_or_without_loom_counts() {
    let text = "#[cfg(target_arch = \"x86_64\")]\nuse crate::b::B;\n#[cfg(not(loom))]\nuse crate::b::C;\n\
                #[cfg(any(test, feature = \"x\"))]\nuse crate::b::D;";
    let files = [TWO, ("a.rs", text), ("b.rs", "")];
    assert_eq!(uses(&files), ["a.rs:2 b.rs", "a.rs:4 b.rs", "a.rs:6 b.rs"]);
}

#[test]
fn a_module_in_braces_belongs_to_its_file() {
    let files = [
        TWO,
        (
            "a.rs",
            "mod inner {\n    use super::A;\n    fn f() { super::super::b::g() }\n}\nstruct A;",
        ),
        ("b.rs", "pub fn g() {}"),
    ];
    assert_eq!(uses(&files), ["a.rs:3 b.rs"]);
}

#[test]
fn a_name_may_be_a_module_and_an_item() {
    let files = [
        ("lib.rs", "mod status;\nmod a;\npub use status::status;"),
        ("status.rs", "pub fn status() {}\npub struct Row;"),
        (
            "a.rs",
            "fn f() {\n    crate::status();\n    crate::status::Row;\n}",
        ),
    ];
    assert_eq!(uses(&files), ["a.rs:2 status.rs", "a.rs:3 status.rs"]);
}

#[test]
fn globs_that_name_each_other_end() {
    let files = [
        TWO,
        (
            "a.rs",
            "pub use super::b::*;\npub struct A;\nfn f() { B; C; }",
        ),
        (
            "b.rs",
            "pub use super::a::*;\npub struct B;\nfn f() { A; C; }",
        ),
    ];
    assert_eq!(uses(&files), ["a.rs:3 b.rs", "b.rs:3 a.rs"]);
}

#[test]
fn a_chain_of_re_exports_is_followed_to_its_end() {
    let files = [
        TWO,
        ("a.rs", "pub use super::b::Y as X;\npub struct Z;"),
        ("b.rs", "pub use super::a::Z as Y;\nfn f(x: super::a::X) {}"),
    ];
    assert_eq!(uses(&files), ["b.rs:2 a.rs"]);
}

#[test]
fn files_are_found_where_the_compiler_finds_them() {
    let files = [
        (
            "src/lib.rs",
            "mod a;\nmod b;\n#[path = \"../other/c.rs\"]\nmod c;",
        ),
        ("src/a.rs", "mod one;"),
        ("src/a/one.rs", "use crate::b::two::X;\nuse crate::c::d::Y;"),
        ("src/b/mod.rs", "pub mod two;"),
        ("src/b/two.rs", "pub struct X;"),
        ("other/c.rs", "pub mod d;"),
        ("other/d.rs", "pub struct Y;"),
    ];
    assert_eq!(
        uses(&files),
        ["src/a/one.rs:1 src/b/two.rs", "src/a/one.rs:2 other/d.rs"]
    );
}

#[test]
#[should_panic(expected = "src/a/mod.rs: no such file")]
fn a_file_that_is_missing_fails_the_test() {
    load(&[("src/lib.rs", "mod a;")]);
}

#[test]
fn a_package_may_have_several_crates() {
    let files = [
        "p/src/lib.rs",
        "p/src/main.rs",
        "p/src/bin/x.rs",
        "p/src/bin/y/main.rs",
        "p/fuzz_targets/z.rs",
        "p/src/bin/y/part.rs",
        "p/src/part.rs",
        "p/src/part/main.rs",
        "p/tests/t.rs",
        "q/src/lib.rs",
    ];
    let sources = files.map(|file| (PathBuf::from(file), String::new()));
    let mut found = roots(&Sources::from(sources), Path::new("p"));
    found.sort();
    let mut expected = files[..5].to_vec();
    expected.sort_unstable();
    assert_eq!(
        found,
        expected.into_iter().map(PathBuf::from).collect::<Vec<_>>()
    );
}
