//! Arrays of tables, each of which is read on its own.

use std::ops::RangeInclusive;

use super::{Reader, Scope};
use crate::config::declared::Kind;
use crate::config::tree::{self, Item, Node};
use crate::config::written::type_of;

impl Reader {
    /// An array of tables, each read on its own; it may be left out.
    pub(in crate::config) fn tables<T>(
        &mut self,
        path: &'static str,
        most: usize,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.declare(path, None, || Kind::Tables(most));
        self.scope.known.push(path);
        self.scope.arrays.push(path);
        let header = format!("[[{}]]", self.scope.location.header(path));
        let nodes = match tree::ask(&mut self.scope.table, path) {
            None => Vec::new(),
            Some(Node { item: Item::List(nodes), .. }) => std::mem::take(nodes),
            Some(other) => {
                let other = type_of(&other.value());
                let phrase = format!("is {other}; write tables, each of which begins with {header}");
                return self.check(path, Err(phrase));
            }
        };
        // So many are not looked at one by one.
        self.check(path, counted(nodes.len(), &(0..=most)))?;
        let mut items = Vec::with_capacity(nodes.len());
        for (node, number) in nodes.into_iter().zip(1_usize..) {
            items.push(self.table(path, number, node, &header, &mut read));
        }
        items.into_iter().collect()
    }

    fn table<T>(
        &mut self,
        path: &str,
        number: usize,
        node: Node,
        header: &str,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let location = self.scope.location.item(path, number, node.key.clone());
        let Item::Table(table) = node.item else {
            let phrase = format!("is {}; write a table that begins with {header}", type_of(&node.value()));
            self.notes.problems.push(location.problem(phrase));
            return None;
        };
        let inner = Scope { location, table, ..Scope::default() };
        let outer = std::mem::replace(&mut self.scope, inner);
        let item = read(self);
        let inner = std::mem::replace(&mut self.scope, outer);
        self.notes.problems.extend(inner.unknown(&[]));
        item
    }
}

pub(super) fn counted(found: usize, allowed: &RangeInclusive<usize>) -> Result<(), String> {
    let (least, most) = (allowed.start(), allowed.end());
    if allowed.contains(&found) {
        Ok(())
    } else if least == most {
        Err(format!("has {found} items; write {most}"))
    } else {
        Err(format!("has {found} items; write {least} to {most}"))
    }
}
