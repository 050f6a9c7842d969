//! What a step says about what it may touch beside `writes`.

use super::load::{Loader, texts};
use super::model::Confine;
use crate::spec::policy::{Caps, Network, Sandbox};
use crate::text::units::{Size, parse_size};
use crate::text::yaml::tree::Node;

impl Loader<'_, '_, '_> {
    pub(super) fn confine(&mut self, node: &Node) -> Confine {
        let word = |key: &str| node.get(key).and_then(Node::text);
        let limits = node.get("limits");
        Confine {
            reads: node.get("reads").map(|list| texts(Some(list))),
            network: word("network").and_then(Network::parse),
            sandbox: word("sandbox").and_then(Sandbox::parse),
            caps: Caps {
                processes: limits
                    .and_then(|limits| limits.get("processes"))
                    .and_then(Node::number),
                memory: self.size(limits, "memory"),
                file: self.size(limits, "file"),
            },
        }
    }

    fn size(&mut self, limits: Option<&Node>, key: &str) -> Option<Size> {
        let node = limits?.get(key)?;
        match parse_size(node.text()?) {
            Ok(size) => Some(Size(size)),
            Err(fault) => {
                self.out.fault_with(node.place, fault.message, fault.hint);
                None
            }
        }
    }
}
