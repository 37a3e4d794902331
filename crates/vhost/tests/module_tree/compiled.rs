//! Takes out of a file what is compiled only for tests or only for loom.

use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Block, ImplItem, Item, ItemImpl, ItemMod, Meta, Stmt, Token};

/// Removes from `file` everything that is not part of the program.
pub(crate) fn strip(file: &mut syn::File) {
    if is_compiled(&file.attrs) {
        Strip.visit_file_mut(file);
    } else {
        file.items.clear();
    }
}

struct Strip;

impl VisitMut for Strip {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| is_compiled(of_item(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| is_compiled(of_item(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut ItemImpl) {
        block.items.retain(|item| is_compiled(of_impl_item(item)));
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        block.stmts.retain(|stmt| is_compiled(of_stmt(stmt)));
        visit_mut::visit_block_mut(self, block);
    }
}

fn is_compiled(attributes: &[Attribute]) -> bool {
    let excluded = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list
            .parse_args::<Meta>()
            .is_ok_and(|condition| holds(&condition) == Some(false)),
        Meta::Path(path) => path.is_ident("test"),
        _ => false,
    };
    !attributes.iter().any(excluded)
}

/// Whether a `cfg` condition holds in the program. `None`: it depends on the target or a feature.
fn holds(condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(path) if path.is_ident("test") || path.is_ident("loom") => Some(false),
        Meta::List(list) => {
            let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
            let parts = list.parse_args_with(parser).ok()?;
            let mut parts = parts.iter().map(holds);
            if list.path.is_ident("not") {
                parts.next()?.map(|holds| !holds)
            } else if list.path.is_ident("all") {
                parts.any(|part| part == Some(false)).then_some(false)
            } else {
                parts.all(|part| part == Some(false)).then_some(false)
            }
        }
        _ => None,
    }
}

fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        _ => &[],
    }
}

fn of_stmt(stmt: &Stmt) -> &[Attribute] {
    match stmt {
        Stmt::Local(local) => &local.attrs,
        Stmt::Item(item) => of_item(item),
        Stmt::Macro(call) => &call.attrs,
        Stmt::Expr(..) => &[],
    }
}
