//! JSON as a tree to read. Every value is the text it was sent as: numbers keep all their digits, members their order.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::text::{Shown, counted};

/// The longest text a tree is made of, in bytes, and the most lines it has.
const BYTES_MAX: usize = 1 << 20;
const NODES_MAX: usize = 2_000;
const DEPTH_MAX: usize = 64;
const VALUE_CHARS: usize = 2_000;

/// One line of a tree, or the end of what is inside one.
#[derive(Debug)]
pub(crate) struct Node {
    /// Others are inside it.
    pub(crate) opens: bool,
    /// What was opened last ends here; it has no name and no value.
    pub(crate) closes: bool,
    /// The member's name, or the item's place in its list.
    pub(crate) name: Option<Shown>,
    /// The value as it was sent, or how many are inside.
    pub(crate) value: Shown,
}

/// A tree, in the order it is read.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    /// There is more of it than is shown.
    pub(crate) cut: bool,
}

/// The tree of a JSON text; none for what is no JSON, and for one that is too long.
pub(crate) fn tree(json: &str) -> Option<Tree> {
    let raw: &RawValue = (json.len() <= BYTES_MAX).then(|| serde_json::from_str(json).ok()).flatten()?;
    let mut tree = Tree::default();
    tree.grow(None, raw.get(), 0);
    Some(tree)
}

impl Tree {
    fn grow(&mut self, name: Option<Shown>, raw: &str, depth: usize) {
        if self.nodes.len() >= NODES_MAX {
            self.cut = true;
            return;
        }
        let inside = if depth < DEPTH_MAX { inside(raw) } else { None };
        let Some((what, inside)) = inside else {
            let value = Shown::short(raw, VALUE_CHARS);
            self.nodes.push(Node { opens: false, closes: false, name, value });
            return;
        };
        self.nodes.push(Node { opens: true, closes: false, name, value: Shown::line(&what) });
        for (name, value) in inside {
            self.grow(Some(Shown::short(&name, 200)), value.get(), depth + 1);
        }
        self.nodes.push(Node { opens: false, closes: true, name: None, value: Shown::default() });
    }
}

/// What is inside an object or a list, and how much that is; none for any other value.
fn inside(raw: &str) -> Option<(String, Vec<(String, &RawValue)>)> {
    match raw.as_bytes().first()? {
        b'{' => {
            let Members(members) = serde_json::from_str(raw).ok()?;
            Some((format!("{{ {} }}", counted(members.len() as u64, "member", "members")), members))
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
            let what = format!("[ {} ]", counted(items.len() as u64, "item", "items"));
            Some((what, items.into_iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect()))
        }
        _ => None,
    }
}

/// An object's members, in the order they were sent.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_keeps_digits_and_order() {
        let json = r#" {"z":1524831183200260097,"a":[1.0,-0.10e-400,{}],"t":"\u202ex"} "#;
        let shown = |node: &Node| match (node.closes, &node.name) {
            (true, _) => "end".to_owned(),
            (false, Some(name)) => format!("{name}={}", node.value),
            (false, None) => node.value.to_string(),
        };
        let lines: Vec<String> = tree(json).unwrap().nodes.iter().map(shown).collect();
        let wanted = [
            "{ 3 members }",
            "z=1524831183200260097",
            "a=[ 3 items ]",
            "0=1.0",
            "1=-0.10e-400",
            "2={ 0 members }",
            "end",
            "end",
            r#"t="\u202ex""#,
            "end",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn what_is_no_json_has_no_tree_and_a_huge_one_is_cut() {
        assert!(tree("a=1").is_none() && tree("").is_none());
        let wide = format!("[{}1]", "1,".repeat(NODES_MAX));
        let tree_of = tree(&wide).unwrap();
        assert!(tree_of.cut && tree_of.nodes.len() <= NODES_MAX + 1);
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let opened = tree(&deep).unwrap().nodes.iter().filter(|node| node.opens).count();
        assert_eq!(opened, DEPTH_MAX);
    }
}
