//! Words and names that do not belong into the tree.

use crate::{File, expect_none, files, has_word};

/// The words are put together here, so that this file does not hold them itself.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

const MACHINES: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/tmp/", "mw")];

const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("proxy.golang", ".org"),
];

const SAYS_NOTHING: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "shared"];

fn lines_with(file: &File, what: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let hits = file.text.lines().enumerate().filter_map(|(at, line)| what(line).map(|word| (at + 1, word)));
    hits.map(|(at, word)| format!("{}:{at}: {word}", file.path)).collect()
}

fn unfinished(file: &File) -> Vec<String> {
    lines_with(file, |line| UNFINISHED.iter().find(|word| has_word(line, word)).map(|word| (*word).to_owned()))
}

/// Paths of one machine; `a/home/b` is not one.
fn machine_paths(file: &File) -> Vec<String> {
    let within = |c: char| c.is_alphanumeric() || "_-.}".contains(c);
    let stands = |line: &str, path: &str| {
        line.match_indices(path).any(|(at, _)| !line[..at].chars().next_back().is_some_and(within))
    };
    lines_with(file, |line| MACHINES.iter().find(|path| stands(line, path)).map(|path| (*path).to_owned()))
}

fn registry_hosts(file: &File) -> Vec<String> {
    // Cargo writes its registry's address into its lock file and cannot leave it out.
    if file.path == "Cargo.lock" {
        return Vec::new();
    }
    lines_with(file, |line| REGISTRIES.iter().find(|host| line.contains(**host)).map(|host| (*host).to_owned()))
}

/// Askama's filter that switches escaping off.
fn unescaped(file: &File) -> Vec<String> {
    let raw = |line: &str| {
        let filters = line.split('|').skip(1).map(str::trim_start);
        filters.filter(|filter| filter.starts_with("safe")).any(|filter| has_word(filter, "safe"))
    };
    lines_with(file, |line| raw(line).then(|| concat!("|", "safe").to_owned()))
}

fn check(what: impl Fn(&File) -> Vec<String>, what_to_do: &str) {
    let findings: Vec<_> = files().iter().flat_map(what).collect();
    expect_none(&findings, what_to_do);
}

#[test]
fn nothing_is_left_unfinished() {
    check(unfinished, "Finish it, or say in words what holds instead and why.");
}

#[test]
fn nothing_names_a_machine() {
    check(machine_paths, "Name the path from the root of the repository, or take it from the environment.");
}

#[test]
fn nothing_names_a_registry() {
    check(registry_hosts, "Which registry or mirror serves is the reader's own setting: leave the address out.");
}

// A20 of docs/architecture.md.
#[test]
fn templates_escape_everything() {
    let templates: Vec<_> = files().into_iter().filter(|file| file.has_extension(&["html", "askama", "xml"])).collect();
    assert!(!templates.is_empty(), "no template was found: this rule looks for *.html");
    let findings: Vec<_> = templates.iter().flat_map(unescaped).collect();
    expect_none(&findings, "What a Bot or a sender wrote is never markup. Let the template build the elements.");
    let code: Vec<_> = files().iter().filter(|file| file.is_in("ingress/src")).flat_map(unescaped_in_code).collect();
    expect_none(&code, "What a Bot or a sender wrote is never markup: let a template escape it.");
}

/// The same from Rust: a template in a string, with escaping off, or a value that says it needs none.
fn unescaped_in_code(file: &File) -> Vec<String> {
    let ways = ["escape = \"none\"", "filters::Safe", "HtmlSafe", "MaybeSafe"];
    lines_with(file, |line| ways.iter().find(|way| line.contains(**way)).map(|way| (*way).to_owned()))
}

#[test]
fn file_names_say_what_is_inside() {
    let named = files().into_iter().filter(|file| is_named_for_nothing(&file.path)).map(|file| file.path);
    expect_none(&named.collect::<Vec<_>>(), "Name it for what it holds, or put the functions where they are used.");
}

fn is_named_for_nothing(path: &str) -> bool {
    path.split('/').any(|part| {
        let stem = part.split('.').next().unwrap_or(part);
        stem.split(['_', '-']).any(|word| SAYS_NOTHING.contains(&word))
    })
}

#[cfg(test)]
mod self_test {
    use super::{
        MACHINES, REGISTRIES, UNFINISHED, is_named_for_nothing, machine_paths, registry_hosts, unescaped,
        unescaped_in_code, unfinished,
    };
    use crate::File;

    fn file(text: &str) -> File {
        File { path: "src/a.rs".into(), text: text.into() }
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in UNFINISHED {
            assert_eq!(unfinished(&file(&format!("\n// {word}: later"))), [format!("src/a.rs:2: {word}")]);
        }
        assert!(unfinished(&file("mktemp -d name.XXXXXX; a todo list")).is_empty());
    }

    #[test]
    fn machine_paths_are_found() {
        for path in MACHINES {
            assert_eq!(machine_paths(&file(&format!("cd {path}x"))).len(), 1, "{path}");
            assert_eq!(machine_paths(&file(&format!("\"{path}x\""))).len(), 1, "{path}");
            assert!(machine_paths(&file(&format!("tests{path}x"))).is_empty(), "{path}");
        }
    }

    #[test]
    fn registry_hosts_are_found() {
        for host in REGISTRIES {
            assert_eq!(registry_hosts(&file(&format!("https://registry.{host}/x"))).len(), 1, "{host}");
        }
    }

    #[test]
    fn raw_markup_is_found() {
        assert_eq!(unescaped(&file("{{ body | safe }}")).len(), 1);
        assert_eq!(unescaped(&file("{{ body|lower|safe}}")).len(), 1);
        assert!(unescaped(&file("{{ a|safely }} | is safe")).is_empty());
        assert_eq!(unescaped_in_code(&file("#[template(source = \"x\", escape = \"none\")]")).len(), 1);
    }

    #[test]
    fn empty_names_are_found() {
        assert!(is_named_for_nothing("gateway/src/tool_utils.rs"));
        assert!(is_named_for_nothing("src/common/mod.rs"));
        assert!(!is_named_for_nothing("events/src/utility.rs"));
    }
}
