//! A trie with failure links (Aho-Corasick): finds all forms in one pass, in time linear in the text.
//! Kept here rather than taken from a library because it skips bytes inside a match.

use std::collections::VecDeque;

/// Bytes that are ignored in forms and texts: a form may be wrapped, indented, or UTF-16.
fn is_skipped(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0)
}

/// How many bytes of a value count.
pub(super) fn weight(value: &[u8]) -> usize {
    value.iter().filter(|byte| !is_skipped(**byte)).count()
}

const ROOT: u32 = 0;

#[derive(Clone, Copy, Default)]
struct Node {
    /// The first child, and the next child of the same parent; 0 is none.
    child: u32,
    sibling: u32,
    /// The node of the longest proper suffix that begins a form.
    fail: u32,
    depth: u32,
    /// The longest form that ends here.
    found: u32,
    /// How many of the last bytes may still become a form that has not ended here.
    open: u32,
    byte: u8,
}

/// Forms, ready to be looked for once [`Automaton::finish`] was called.
pub(super) struct Automaton {
    nodes: Vec<Node>,
    first: [u32; 256],
}

impl Default for Automaton {
    fn default() -> Self {
        Automaton {
            nodes: vec![Node::default()],
            first: [ROOT; 256],
        }
    }
}

impl Automaton {
    pub(super) fn add(&mut self, form: &[u8]) {
        if weight(form) < super::SHORTEST {
            return;
        }
        let mut node = ROOT;
        for byte in form.iter().copied().filter(|byte| !is_skipped(*byte)) {
            node = match self.child(node, byte) {
                ROOT => self.grow(node, byte),
                child => child,
            };
        }
        self.at_mut(node).found = self.at(node).depth;
    }

    fn grow(&mut self, parent: u32, byte: u8) -> u32 {
        // Forms are few and short: there are never 2^32 nodes.
        let new = u32::try_from(self.nodes.len()).unwrap_or(ROOT);
        let Node { child, depth, .. } = *self.at(parent);
        self.nodes.push(Node {
            sibling: child,
            depth: depth + 1,
            byte,
            ..Node::default()
        });
        self.at_mut(parent).child = new;
        if parent == ROOT {
            self.first[usize::from(byte)] = new;
        }
        new
    }

    /// Links every node to the one to continue with when no child matches.
    pub(super) fn finish(&mut self) {
        let mut queue = VecDeque::from([ROOT]);
        while let Some(node) = queue.pop_front() {
            let Node { fail, child, .. } = *self.at(node);
            let shorter = *self.at(fail);
            if node != ROOT {
                let this = self.at_mut(node);
                this.found = this.found.max(shorter.found);
                this.open = match child {
                    0 => shorter.open,
                    _ => this.depth,
                };
            }
            let mut next = child;
            while next != 0 {
                let Node { byte, sibling, .. } = *self.at(next);
                let target = match node {
                    ROOT => ROOT,
                    _ => self.step(fail, byte),
                };
                self.at_mut(next).fail = target;
                queue.push_back(next);
                next = sibling;
            }
        }
    }

    fn step(&self, mut node: u32, byte: u8) -> u32 {
        loop {
            let next = self.child(node, byte);
            if next != ROOT || node == ROOT {
                return next;
            }
            node = self.at(node).fail;
        }
    }

    /// The child for this byte; the root where there is none.
    fn child(&self, node: u32, byte: u8) -> u32 {
        if node == ROOT {
            return self.first[usize::from(byte)];
        }
        let mut next = self.at(node).child;
        while next != 0 && self.at(next).byte != byte {
            next = self.at(next).sibling;
        }
        next
    }

    fn at(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn at_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }
}

/// The state of one automaton in a text.
#[derive(Default)]
pub(super) struct Scanner {
    node: u32,
    /// The offsets of the bytes that led here.
    kept: VecDeque<u64>,
    /// Whether escaped line breaks are ignored too, and whether one may have begun.
    unescapes: bool,
    escaped: bool,
}

impl Scanner {
    /// A scanner for forms without backslashes. It skips `\n`, `\r` and `\t` as JSON escapes them, and
    /// JSON inside JSON.
    pub(super) fn unescaping() -> Scanner {
        Scanner {
            unescapes: true,
            ..Scanner::default()
        }
    }

    /// Takes a byte; if a form ends with it, gives the offset at which the longest one began.
    pub(super) fn feed(&mut self, automaton: &Automaton, byte: u8, at: u64) -> Option<u64> {
        if is_skipped(byte) {
            return None;
        }
        if self.unescapes && byte == b'\\' {
            self.escaped = true;
            return None;
        }
        if std::mem::take(&mut self.escaped) {
            if matches!(byte, b'n' | b'r' | b't') {
                return None;
            }
            self.node = ROOT;
        }
        self.node = automaton.step(self.node, byte);
        self.kept.push_back(at);
        let node = automaton.at(self.node);
        let surplus = self.kept.len().saturating_sub(node.depth as usize);
        self.kept.drain(..surplus);
        match node.found as usize {
            0 => None,
            length => self.kept.get(self.kept.len() - length).copied(),
        }
    }

    /// The first byte that may still become part of a form.
    pub(super) fn undecided(&self, automaton: &Automaton) -> Option<u64> {
        match automaton.at(self.node).open as usize {
            0 => None,
            open => self.kept.get(self.kept.len() - open).copied(),
        }
    }
}
