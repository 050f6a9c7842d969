//! The price of an evaluation: every parsed expression is rewritten so that what enters an operator,
//! a function or a macro is weighed first, and work over a fixed budget ends in a fault.
//!
//! The engine has no limit of its own, and 1,024 bytes are enough for sixteen nested loops. The
//! rewriting never changes a value, only whether it is computed at all. What was refused once stays
//! refused, even where `||` would swallow the error.

use std::cell::RefCell;
use std::collections::BTreeMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Node, IdedEntryExpr, IdedExpr, LiteralValue,
    operators,
};
use cel::common::types::{
    CelBool, CelBytes, CelInt, CelList, CelMap, CelString, DYN_TYPE, INT_TYPE,
};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::{ExprFault, FaultKind};

/// The steps that one evaluation may take: visiting a value is one, 64 bytes of text are one.
pub const MAX_STEPS: u64 = 2_000_000;

/// What is said where a macro walks over a map.
pub(super) const OVER_MAP: &str = "a macro walks over a map, whose order is not fixed";
/// The largest compiled pattern of `matches`, in bytes.
const MAX_PATTERN: usize = 64 * 1024;
/// What it costs to compile a pattern.
const PATTERN_STEPS: u64 = 10_000;

const SEEN: &str = "@seen";
const GROWN: &str = "@grown";
const LIST: &str = "@list";
const MATCHES: &str = "@matches";

type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Why an evaluation was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The budget is spent.
    Work,
    /// A macro was about to walk over a map.
    Map,
}

impl Refusal {
    /// The refusal as the user sees it.
    pub fn fault(self) -> ExprFault {
        match self {
            Refusal::Work => {
                let message = format!("it takes more than {MAX_STEPS} steps");
                ExprFault::new(FaultKind::Limit, message).hint("walk over a shorter list")
            }
            Refusal::Map => ExprFault::new(FaultKind::Type, OVER_MAP).hint("use a list"),
        }
    }

    fn error(self) -> ExecutionError {
        ExecutionError::function_error("@meter", self.fault().message)
    }
}

/// What one evaluation has left, and why it was ended.
#[derive(Default)]
struct Meter {
    left: u64,
    refused: Option<Refusal>,
    patterns: BTreeMap<String, Regex>,
}

thread_local! {
    /// The functions of the engine are plain `fn`s: their state can only be the thread's.
    static METER: RefCell<Meter> = RefCell::default();
}

/// Starts a new budget on this thread.
pub(super) fn start() {
    METER.with_borrow_mut(|meter| {
        *meter = Meter {
            left: MAX_STEPS,
            ..Meter::default()
        };
    });
}

/// Why the evaluation on this thread was ended, if it was.
pub(super) fn refused() -> Option<Refusal> {
    METER.with_borrow(|meter| meter.refused)
}

/// Charges what a value weighs; after the budget is spent, nothing is weighed any more.
fn charge_for(value: &dyn Val, per: u64) -> Result<(), ExecutionError> {
    charge(0)?;
    charge(weight(value, per))
}

fn charge(steps: u64) -> Result<(), ExecutionError> {
    METER.with_borrow_mut(|meter| {
        if meter.refused.is_none() && steps > meter.left {
            meter.refused = Some(Refusal::Work);
        }
        meter.left = meter.left.saturating_sub(steps);
        meter.refused.map_or(Ok(()), |why| Err(why.error()))
    })
}

/// Adds the functions that the rewritten expressions call.
pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(SEEN, SEEN, vec![DYN_TYPE], seen)?;
    env.add_overload(GROWN, GROWN, vec![DYN_TYPE], grown)?;
    env.add_overload(LIST, LIST, vec![DYN_TYPE, INT_TYPE], list)?;
    env.add_overload(MATCHES, MATCHES, vec![DYN_TYPE, DYN_TYPE], matches)
}

/// A value is about to be looked at.
fn seen<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let value = args.swap_remove(0);
    charge_for(value.as_ref(), 64)?;
    Ok(value)
}

/// A value is about to be copied, or was just made.
fn grown<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let value = args.swap_remove(0);
    charge_for(value.as_ref(), 8)?;
    Ok(value)
}

/// A value is about to be walked by a macro whose body has as many nodes as the second argument.
fn list<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let body = args.pop();
    let value = args.swap_remove(0);
    if value.downcast_ref::<CelMap>().is_some() {
        METER.with_borrow_mut(|meter| meter.refused.get_or_insert(Refusal::Map).to_owned());
        return Err(Refusal::Map.error());
    }
    let items = value
        .downcast_ref::<CelList>()
        .map_or(0, |list| list.inner().len() as u64);
    let nodes = body
        .as_ref()
        .and_then(|body| body.downcast_ref::<CelInt>())
        .map_or(1, |nodes| nodes.inner().unsigned_abs());
    charge_for(value.as_ref(), 64)?;
    charge(items.saturating_mul(nodes))?;
    Ok(value)
}

/// `text.matches(pattern)`, linear in the text, each pattern compiled once.
fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let text = |at: usize| args.get(at)?.downcast_ref::<CelString>();
    let (Some(text), Some(pattern)) = (text(0), text(1)) else {
        let types = args.iter().map(|arg| arg.get_type().name().to_owned());
        return Err(ExecutionError::no_such_overload("matches", types.collect()));
    };
    charge(text.inner().len() as u64 / 8)?;
    let found = with_pattern(pattern.inner(), |regex| regex.is_match(text.inner()))?;
    Ok(CowVal::owned(CelBool::from(found)))
}

fn with_pattern(pattern: &str, ask: impl Fn(&Regex) -> bool) -> Result<bool, ExecutionError> {
    let known = METER.with_borrow(|meter| meter.patterns.get(pattern).cloned());
    if let Some(regex) = known {
        return Ok(ask(&regex));
    }
    charge(PATTERN_STEPS)?;
    let regex = RegexBuilder::new(pattern)
        .size_limit(MAX_PATTERN)
        .build()
        .map_err(|error| ExecutionError::function_error("matches", one_line(&error.to_string())))?;
    METER.with_borrow_mut(|meter| meter.patterns.insert(pattern.to_owned(), regex.clone()));
    Ok(ask(&regex))
}

/// The last line of what the regex crate says, which names the fault.
fn one_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or(message).trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// How many values there are in a value, and `per` bytes of text count as one more.
fn weight(value: &dyn Val, per: u64) -> u64 {
    let text = |len: usize| 1 + len as u64 / per;
    if let Some(list) = value.downcast_ref::<CelList>() {
        let items = list.inner().iter();
        return 1 + items.map(|item| weight(item.as_ref(), per)).sum::<u64>();
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        let entries = map.inner().iter();
        let weights =
            entries.map(|(key, value)| weight(key.inner(), per) + weight(value.as_ref(), per));
        return 1 + weights.sum::<u64>();
    }
    if let Some(string) = value.downcast_ref::<CelString>() {
        return text(string.inner().len());
    }
    value
        .downcast_ref::<CelBytes>()
        .map_or(1, |bytes| text(bytes.inner().len()))
}

/// Rewrites an expression so that its evaluation is metered.
pub(super) fn metered(node: IdedExpr) -> IdedExpr {
    let IdedExpr { id, expr } = node;
    let expr = match expr {
        Node::Call(call) => return metered_call(id, call),
        Node::Comprehension(walk) => Node::Comprehension(Box::new(metered_walk(*walk))),
        Node::List(mut list) => {
            let elements = list.elements.into_iter();
            list.elements = elements.map(|item| wrap(GROWN, metered(item))).collect();
            Node::List(list)
        }
        Node::Map(mut map) => {
            map.entries = map.entries.into_iter().map(metered_entry).collect();
            Node::Map(map)
        }
        Node::Select(mut select) => {
            select.operand = Box::new(metered(*select.operand));
            Node::Select(select)
        }
        other => other,
    };
    IdedExpr { id, expr }
}

fn metered_entry(mut entry: IdedEntryExpr) -> IdedEntryExpr {
    if let EntryExpr::MapEntry(pair) = &mut entry.expr {
        pair.key = metered(std::mem::take(&mut pair.key));
        pair.value = wrap(GROWN, metered(std::mem::take(&mut pair.value)));
    }
    entry
}

fn metered_walk(mut walk: ComprehensionExpr) -> ComprehensionExpr {
    let body = (count(&walk.loop_step) + count(&walk.loop_cond)) as i64;
    let body = IdedExpr {
        id: 0,
        expr: Node::Literal(LiteralValue::Int(CelInt::from(body))),
    };
    walk.iter_range = call(LIST, vec![metered(walk.iter_range), body]);
    walk.loop_cond = metered(walk.loop_cond);
    walk.loop_step = metered(walk.loop_step);
    walk.result = metered(walk.result);
    walk
}

fn metered_call(id: u64, mut made: CallExpr) -> IdedExpr {
    let appends = made.func_name == operators::ADD && made.args.first().is_some_and(is_internal);
    let passes = matches!(
        made.func_name.as_str(),
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::CONDITIONAL
            | operators::NOT_STRICTLY_FALSE
            | operators::INDEX
    );
    let weigh = |node: IdedExpr| match appends || passes {
        true => metered(node),
        false => wrap(SEEN, metered(node)),
    };
    made.args = made.args.into_iter().map(weigh).collect();
    made.target = made.target.map(|target| Box::new(weigh(*target)));
    if made.func_name == "matches" {
        let target = made.target.take().map(|target| *target);
        return call(MATCHES, target.into_iter().chain(made.args).collect());
    }
    let grows = made.func_name == operators::ADD && !appends;
    let expr = IdedExpr {
        id,
        expr: Node::Call(made),
    };
    if grows { wrap(GROWN, expr) } else { expr }
}

/// Puts a function around an expression, unless its value costs nothing.
fn wrap(function: &str, node: IdedExpr) -> IdedExpr {
    match node.expr {
        Node::Literal(_) => node,
        _ if is_internal(&node) => node,
        _ => call(function, vec![node]),
    }
}

/// Names with `@` are the macros' own: nobody can write them.
fn is_internal(node: &IdedExpr) -> bool {
    matches!(&node.expr, Node::Ident(name) if name.starts_with('@'))
}

fn call(function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let made = CallExpr {
        func_name: function.to_owned(),
        target: None,
        args,
    };
    IdedExpr {
        id: 0,
        expr: Node::Call(made),
    }
}

/// How many nodes an expression has.
fn count(node: &IdedExpr) -> usize {
    let mut nodes = 0;
    super::names::each(node, &mut |_| nodes += 1);
    nodes
}
