//! What keeps every rule short to read, safe to parse and quick to judge.
//!
//! The CEL crate overflows the stack on long operator chains, and a comprehension inside another multiplies
//! its work. Everything here is checked when a rule is saved, or, where the size is only known then, when it runs.

use std::time::Duration;

/// The longest rule, in bytes.
pub const MAX_SOURCE: usize = 4 * 1024;
/// The most nodes a rule's syntax tree may have.
pub const MAX_NODES: usize = 512;
/// The deepest a syntax tree may be.
pub const MAX_DEPTH: usize = 64;
/// The longest chain of operands to the left: `a + b + c …`, `a.b.c …`, `a[0][1] …`.
pub const MAX_SPINE: usize = 48;
/// The deepest brackets may stand inside one another.
pub const MAX_BRACKETS: usize = 24;
/// The most `? :` in one rule.
pub const MAX_CONDITIONALS: usize = 16;
/// The most words and signs in one rule.
pub const MAX_TOKENS: usize = 2_048;
/// The most elements a comprehension may go through; more, and the rule is broken.
pub const MAX_RANGE: usize = 1_000;
/// The largest text (or `args`) a rule may read or make, in bytes; larger, and the rule is broken.
pub const MAX_INPUT: usize = 64 * 1024;
/// The most bytes one comprehension may look at: elements, times calls in its body, times the texts read there.
pub const MAX_LOOP_WORK: i64 = 8 * 1024 * 1024;
/// The most parts a `split` may give.
pub const MAX_PARTS: usize = 10_000;
/// The largest compiled regular expression, in bytes.
pub const MAX_REGEX: usize = 256 * 1024;
/// The most patterns in one rule: each is compiled, kept, and run over what it reads.
pub const MAX_PATTERNS: usize = 8;
/// The most rules in a boundary.
pub const MAX_RULES: usize = 256;
/// The stack that rules are compiled and judged on, in bytes.
pub const STACK: usize = 16 * 1024 * 1024;
/// How long one judgement may take before its call is refused and the thread replaced.
pub const PATIENCE: Duration = Duration::from_millis(50);
