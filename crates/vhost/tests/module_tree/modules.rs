//! The modules of one crate, and where a path leads from one of them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, ItemMod, ItemUse, Lit, Meta, UseTree, Visibility};

use crate::compiled;

/// The text of each Rust file by its path.
pub(crate) type Sources = BTreeMap<PathBuf, String>;

/// All modules of a crate; the first is its root.
pub(crate) struct Crate {
    pub(crate) modules: Vec<Module>,
}

pub(crate) struct Module {
    pub(crate) file: PathBuf,
    pub(crate) items: Vec<Item>,
    /// The folder of the files of its child modules.
    folder: PathBuf,
    parent: usize,
    /// A name may be a module and an item at once.
    names: HashMap<String, Vec<Name>>,
    /// The paths of `use path::*`.
    globs: Vec<Vec<String>>,
}

enum Name {
    Module(usize),
    Item,
    Import { path: Vec<String>, is_private: bool },
}

/// What a path names: a module, or an item of a module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Module(usize),
    ItemOf(usize),
}

/// One name, or one `*`, that a `use` brings in.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    /// The name in this module; `None` for `*`.
    name: Option<String>,
}

impl Import {
    pub(crate) fn is_glob(&self) -> bool {
        self.name.is_none()
    }
}

impl Crate {
    /// Reads the file `root` and all files that it and its modules declare.
    pub(crate) fn load(sources: &Sources, root: &Path) -> Self {
        let mut this = Self {
            modules: Vec::new(),
        };
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        this.add_file(sources, root.to_owned(), folder, 0);
        this
    }

    fn add_file(
        &mut self,
        sources: &Sources,
        file: PathBuf,
        folder: PathBuf,
        parent: usize,
    ) -> usize {
        let text = sources.get(&file);
        let text = text.unwrap_or_else(|| panic!("{}: no such file", file.display()));
        let mut parsed = syn::parse_file(text).unwrap_or_else(|error| {
            let line = error.span().start().line;
            panic!("{}:{line}: {error}", file.display())
        });
        compiled::strip(&mut parsed);
        self.add(sources, file, folder, parent, parsed.items)
    }

    fn add(
        &mut self,
        sources: &Sources,
        file: PathBuf,
        folder: PathBuf,
        parent: usize,
        items: Vec<Item>,
    ) -> usize {
        let number = self.modules.len();
        let mut imports = Imports::default();
        for item in &items {
            imports.visit_item(item);
        }
        self.modules.push(Module {
            file,
            items: Vec::new(),
            folder,
            parent,
            names: imports.names,
            globs: imports.globs,
        });
        for item in &items {
            let name = match item {
                Item::Mod(child) => {
                    let name = Name::Module(self.add_child(sources, number, child));
                    Some((child.ident.to_string(), name))
                }
                _ => defined(item).map(|name| (name, Name::Item)),
            };
            if let Some((name, target)) = name {
                self.modules[number]
                    .names
                    .entry(name)
                    .or_default()
                    .push(target);
            }
        }
        self.modules[number].items = items;
        number
    }

    fn add_child(&mut self, sources: &Sources, parent: usize, child: &ItemMod) -> usize {
        let Module { file, folder, .. } = &self.modules[parent];
        let name = child.ident.to_string();
        if let Some((_, items)) = &child.content {
            let (file, folder) = (file.clone(), folder.join(name));
            return self.add(sources, file, folder, parent, items.clone());
        }
        if let Some(path) = path_attribute(&child.attrs) {
            let file = normal(&file.parent().unwrap_or(Path::new("")).join(path));
            let folder = file.parent().unwrap_or(Path::new("")).to_owned();
            return self.add_file(sources, file, folder, parent);
        }
        let folder = folder.join(&name);
        let beside = folder.with_extension("rs");
        let inside = folder.join("mod.rs");
        let file = if sources.contains_key(&beside) {
            beside
        } else {
            inside
        };
        self.add_file(sources, file, folder, parent)
    }

    /// Finds what `path` names in the module `from`; `None` if it leads out of the crate, or is the
    /// name of something local.
    pub(crate) fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        self.follow(from, path, &mut Vec::new())
    }

    /// Whether a name in a module comes from a private `use` of an item (not of a module).
    pub(crate) fn is_private_import(&self, module: usize, name: &str) -> bool {
        let names = self.modules[module].names.get(name);
        names.into_iter().flatten().any(|name| match name {
            Name::Import { path, is_private } => {
                *is_private && matches!(self.resolve(module, path), Some(Target::ItemOf(_)))
            }
            _ => false,
        })
    }

    fn follow(&self, from: usize, path: &[String], open: &mut Vec<NameLookup>) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent),
            name => self.look_up(from, name, rest.is_empty(), open)?,
        };
        for (index, name) in rest.iter().enumerate() {
            let Target::Module(module) = target else {
                break;
            };
            let is_last = index + 1 == rest.len();
            target = match name.as_str() {
                "self" => target,
                "super" => Target::Module(self.modules[module].parent),
                name => self
                    .look_up(module, name, is_last, open)
                    .unwrap_or(Target::ItemOf(module)),
            };
        }
        Some(target)
    }

    /// Finds what a name in a module is: at the end of a path an item if there is one, before its
    /// end a module. `open` has the look-ups under way: re-exports may name each other.
    fn look_up(
        &self,
        module: usize,
        name: &str,
        is_last: bool,
        open: &mut Vec<NameLookup>,
    ) -> Option<Target> {
        let look = (module, name.to_owned(), is_last);
        if open.contains(&look) {
            return None;
        }
        open.push(look);
        let mut targets = Vec::new();
        for name in self.modules[module].names.get(name).into_iter().flatten() {
            targets.extend(match name {
                Name::Module(child) => Some(Target::Module(*child)),
                Name::Item => Some(Target::ItemOf(module)),
                Name::Import { path, .. } => self.follow(module, path, open),
            });
        }
        if targets.is_empty() {
            for glob in &self.modules[module].globs {
                if let Some(Target::Module(source)) = self.follow(module, glob, open) {
                    targets.extend(self.look_up(source, name, is_last, open));
                }
            }
        }
        open.pop();
        let wanted = |target: &&Target| matches!(target, Target::ItemOf(_)) == is_last;
        targets.iter().find(wanted).or(targets.first()).copied()
    }
}

/// A module, a name in it and whether the name is the end of a path.
type NameLookup = (usize, String, bool);

/// Collects what a module imports, in functions too, but not in modules in braces.
#[derive(Default)]
struct Imports {
    names: HashMap<String, Vec<Name>>,
    globs: Vec<Vec<String>>,
}

impl<'a> Visit<'a> for Imports {
    fn visit_item_mod(&mut self, _: &'a ItemMod) {}

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let is_private = is_private(item);
        for Import { path, name, .. } in imports(item) {
            match name {
                Some(name) => {
                    let import = Name::Import { path, is_private };
                    self.names.entry(name).or_default().push(import);
                }
                None => self.globs.push(path),
            }
        }
        visit::visit_item_use(self, item);
    }
}

pub(crate) fn is_private(item: &ItemUse) -> bool {
    matches!(item.vis, Visibility::Inherited)
}

/// Returns what a `use` brings in.
pub(crate) fn imports(item: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        walk(&item.tree, &mut Vec::new(), &mut found);
    }
    found
}

fn walk(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Import>) {
    let (last, name) = match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            walk(&part.tree, path, found);
            path.pop();
            return;
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                walk(tree, path, found);
            }
            return;
        }
        UseTree::Name(part) => (&part.ident, &part.ident),
        UseTree::Rename(part) => (&part.ident, &part.rename),
        UseTree::Glob(part) => {
            let line = part.star_token.spans[0].start().line;
            let path = path.clone();
            found.push(Import {
                path,
                line,
                name: None,
            });
            return;
        }
    };
    let line = last.span().start().line;
    // `use x::{self}` brings in `x`.
    let name = match path.last() {
        Some(module) if name == "self" => module.clone(),
        _ => name.to_string(),
    };
    let mut path = path.clone();
    path.push(last.to_string());
    found.push(Import {
        path,
        line,
        name: Some(name),
    });
}

/// Returns the name that an item defines.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Returns the file of `#[path = "file"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Str(path) => Some(path.value()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        })
}

/// Takes `..` out of a path.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}
