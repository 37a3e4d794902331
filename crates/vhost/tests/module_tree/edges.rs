//! Which file names an item of which other file, and where.

use std::path::PathBuf;

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Lit, Macro, Meta, Visibility};

use crate::modules::{Crate, Target, imports, is_private};

/// The file `from` names an item of the file `to` in a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: PathBuf,
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) to: PathBuf,
}

/// Returns all edges of a crate in the order of files and lines.
pub(crate) fn edges(of: &Crate) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (number, module) in of.modules.iter().enumerate() {
        let mut uses = Uses {
            of,
            number,
            edges: &mut edges,
        };
        for item in &module.items {
            uses.visit_item(item);
        }
    }
    edges.sort();
    edges.dedup();
    edges
}

/// The uses in one module.
struct Uses<'a> {
    of: &'a Crate,
    number: usize,
    edges: &'a mut Vec<Edge>,
}

impl Uses<'_> {
    fn add(&mut self, path: &[String], line: usize, to: usize) {
        let file = |module: usize| self.of.modules[module].file.clone();
        let (from, to) = (file(self.number), file(to));
        if from != to {
            let name = path.join("::");
            self.edges.push(Edge {
                from,
                line,
                name,
                to,
            });
        }
    }

    /// Adds the edge of a path outside `use`. What a private `use` brought in was counted there.
    fn add_path(&mut self, path: &[String], line: usize) {
        let is_counted = path
            .first()
            .is_some_and(|first| self.of.is_private_import(self.number, first));
        if is_counted {
            return;
        }
        if let Some(Target::ItemOf(module)) = self.of.resolve(self.number, path) {
            self.add(path, line, module);
        }
    }

    /// Adds the paths in the arguments of a macro.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_colon = |index: usize| match tokens.get(index) {
            Some(TokenTree::Punct(mark)) => mark.as_char() == ':',
            _ => false,
        };
        let is_separator = |index: usize| match tokens.get(index) {
            Some(TokenTree::Punct(mark)) => {
                mark.as_char() == ':' && mark.spacing() == Spacing::Joint && is_colon(index + 1)
            }
            _ => false,
        };
        let mut index = 0;
        while let Some(token) = tokens.get(index) {
            match token {
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Ident(first) => {
                    let line = first.span().start().line;
                    let mut path = vec![first.to_string()];
                    // A field or method, or the rest of a path that does not start here.
                    let is_rest = match index.checked_sub(1).and_then(|index| tokens.get(index)) {
                        Some(TokenTree::Punct(mark)) => {
                            mark.as_char() == '.' || is_separator(index.saturating_sub(2))
                        }
                        _ => false,
                    };
                    while let (true, Some(TokenTree::Ident(next))) =
                        (is_separator(index + 1), tokens.get(index + 3))
                    {
                        path.push(next.to_string());
                        index += 3;
                    }
                    if !is_rest {
                        self.add_path(&path, line);
                    }
                }
                _ => {}
            }
            index += 1;
        }
    }

    /// Adds the paths in the strings of an attribute's arguments.
    fn add_strings(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add_strings(group.stream()),
                TokenTree::Literal(literal) => {
                    let line = literal.span().start().line;
                    if let Lit::Str(text) = Lit::new(literal) {
                        let text = text.value();
                        let path: Vec<String> = text.split("::").map(str::to_owned).collect();
                        if path.len() > 1 {
                            self.add_path(&path, line);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'a> Visit<'a> for Uses<'_> {
    fn visit_item_mod(&mut self, _: &'a ItemMod) {}

    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !is_private(item) {
            return;
        }
        for import in imports(item) {
            match self.of.resolve(self.number, &import.path) {
                Some(Target::ItemOf(module)) => self.add(&import.path, import.line, module),
                Some(Target::Module(module)) if import.is_glob() => {
                    self.add(&import.path, import.line, module);
                }
                _ => {}
            }
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if let (None, Some(first)) = (path.leading_colon, path.segments.first()) {
            let line = first.ident.span().start().line;
            let names = path.segments.iter().map(|part| part.ident.to_string());
            self.add_path(&names.collect::<Vec<_>>(), line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        self.visit_path(&call.path);
        self.add_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
            self.add_strings(list.tokens.clone());
        }
    }
}
