//! What is refused before a parser sees it: length, depth of brackets, number of tokens.
//!
//! The parser and the evaluator behind it call themselves once per nested bracket and once per
//! chained operator, so the number of tokens bounds their stack. This scanner only counts: it never
//! decides what an expression means, and a text that it misreads is still refused by the parser.

use super::{ExprFault, FaultKind};

/// The longest expression, in bytes.
pub const MAX_BYTES: usize = 1024;
/// The deepest nesting of brackets.
pub const MAX_BRACKETS: usize = 16;
/// The most words, numbers, texts, brackets and operators in one expression.
pub const MAX_TOKENS: usize = 320;

/// The stand-in for `loop`, which CEL keeps for itself: as long, so that places stay right.
pub(super) const LOOP: &str = "_lp_";

/// Checks the limits; gives back the text for the parser.
pub(super) fn check(text: &str) -> Result<String, ExprFault> {
    if text.trim().is_empty() {
        return Err(ExprFault::new(FaultKind::Load, "it is empty").hint("write `true`"));
    }
    if text.len() > MAX_BYTES {
        let message = format!(
            "the expression is {} bytes long, over the limit of {MAX_BYTES}",
            text.len()
        );
        return Err(too_much(message));
    }
    Scan::new(text).run()
}

fn too_much(message: String) -> ExprFault {
    ExprFault::new(FaultKind::Limit, message)
        .hint("compute it in a step of its own, and test that step's output")
}

struct Scan<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    tokens: usize,
    out: String,
}

impl<'t> Scan<'t> {
    fn new(text: &'t str) -> Self {
        Scan {
            text,
            at: 0,
            depth: 0,
            tokens: 0,
            out: String::with_capacity(text.len()),
        }
    }

    fn run(mut self) -> Result<String, ExprFault> {
        while let Some(c) = self.text[self.at..].chars().next() {
            let start = self.at;
            let end = start + self.token_len(c);
            let token = &self.text[start..end];
            if !c.is_whitespace() && !token.starts_with("//") {
                self.count(c, start)?;
            }
            let own = token == "loop" && !self.out.trim_end().ends_with('.');
            self.out.push_str(if own { LOOP } else { token });
            self.at = end;
        }
        Ok(self.out)
    }

    /// Counts one token, and the brackets that are open after it.
    fn count(&mut self, c: char, start: usize) -> Result<(), ExprFault> {
        self.tokens += 1;
        match c {
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let over = if self.depth > MAX_BRACKETS {
            format!("more than {MAX_BRACKETS} brackets are open")
        } else if self.tokens > MAX_TOKENS {
            format!("the expression has more than {MAX_TOKENS} words and operators")
        } else {
            return Ok(());
        };
        Err(too_much(over).at(start))
    }

    /// How many bytes the token that starts here with `c` has.
    fn token_len(&self, c: char) -> usize {
        let rest = &self.text[self.at..];
        if is_word(c) {
            let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let is_prefix = rest[..len].chars().all(|c| "rRbB".contains(c)) && len <= 2;
            if is_prefix && rest[len..].starts_with(['"', '\'']) {
                let raw = rest[..len].contains(['r', 'R']);
                return len + quoted_len(&rest[len..], raw);
            }
            return len;
        }
        match c {
            '"' | '\'' => quoted_len(rest, false),
            '`' => rest[1..].find(['`', '\n']).map_or(1, |end| end + 2),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if ["&&", "||", "==", "!=", "<=", ">="]
                .iter()
                .any(|op| rest.starts_with(op)) =>
            {
                2
            }
            _ => c.len_utf8(),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The length of the text literal that `rest` starts with; an open one ends with its line.
fn quoted_len(rest: &str, raw: bool) -> usize {
    let quote = &rest[..1];
    let triple = quote.repeat(3);
    let mark = if rest.starts_with(&triple) {
        triple.as_str()
    } else {
        quote
    };
    let mut at = mark.len();
    while let Some(c) = rest[at..].chars().next() {
        if rest[at..].starts_with(mark) {
            return at + mark.len();
        }
        if mark.len() == 1 && matches!(c, '\n' | '\r') {
            return at;
        }
        at += c.len_utf8();
        if c == '\\' && !raw {
            at += rest[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    rest.len()
}
