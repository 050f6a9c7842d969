//! JSON to the engine's values and back, within limits of depth and size.
//!
//! An integer becomes `int`, one above `int`'s range `uint`, any other number `double`. On the way
//! back maps are sorted by key, so that equal values have equal text. It never guesses: what JSON
//! cannot hold is refused.

use std::collections::{BTreeMap, HashMap};

use cel::Value as Cel;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use cel::common::value::Val;
use cel::objects::Key;
use serde_json::{Map, Number, Value};

use super::names::Need;
use super::{ExprFault, FaultKind};

/// The deepest JSON that an expression may see.
pub const MAX_DEPTH: usize = 128;
/// The deepest JSON that an expression may make: what is kept has to be read back.
pub const MAX_MADE_DEPTH: usize = crate::text::canonical::MAX_JSON_DEPTH;
/// The most values that one evaluation may be given; 64 bytes of text count as one more.
pub const MAX_VALUES: usize = 1_000_000;

/// Turns JSON into values of the engine, and counts them.
pub(super) struct Input {
    left: usize,
}

impl Input {
    pub fn new() -> Self {
        Input { left: MAX_VALUES }
    }

    /// Converts what is needed of a value.
    pub fn value(&mut self, value: &Value, need: &Need) -> Result<Box<dyn Val>, ExprFault> {
        self.convert(value, need, 0)
    }

    /// Converts the fields that are needed of a map that is not put together.
    pub fn table<'v>(
        &mut self,
        needs: &BTreeMap<String, Need>,
        field: impl Fn(&str) -> Option<&'v Value>,
    ) -> Result<Box<dyn Val>, ExprFault> {
        self.spend(1)?;
        let mut map: HashMap<CelMapKey<'static>, Box<dyn Val>> = HashMap::new();
        for (key, need) in needs {
            if let Some(value) = field(key) {
                map.insert(CelMapKey::from(key.clone()), self.convert(value, need, 1)?);
            }
        }
        Ok(Box::new(CelMap::from(map)))
    }

    fn convert(
        &mut self,
        value: &Value,
        need: &Need,
        depth: usize,
    ) -> Result<Box<dyn Val>, ExprFault> {
        if depth > MAX_DEPTH {
            return Err(too_deep(MAX_DEPTH));
        }
        self.spend(1)?;
        Ok(match value {
            Value::Null => Box::new(CelNull),
            Value::Bool(truth) => Box::new(CelBool::from(*truth)),
            Value::Number(number) => from_number(number),
            Value::String(text) => {
                self.spend(text.len() / 64)?;
                Box::new(CelString::from(text.clone()))
            }
            Value::Array(items) => {
                let items = items
                    .iter()
                    .map(|item| self.convert(item, &Need::All, depth + 1));
                Box::new(CelList::from(items.collect::<Result<Vec<_>, _>>()?))
            }
            Value::Object(fields) => Box::new(self.map(fields, need, depth)?),
        })
    }

    fn map(
        &mut self,
        fields: &Map<String, Value>,
        need: &Need,
        depth: usize,
    ) -> Result<CelMap<'static>, ExprFault> {
        let mut map: HashMap<CelMapKey<'static>, Box<dyn Val>> = HashMap::new();
        let mut put = |key: &str, value: &Value, need: &Need| {
            let value = self.convert(value, need, depth + 1)?;
            map.insert(CelMapKey::from(key.to_owned()), value);
            Ok(())
        };
        match need {
            Need::All => fields
                .iter()
                .try_for_each(|(key, value)| put(key, value, need))?,
            Need::Fields(needs) => {
                for (key, need) in needs {
                    if let Some(value) = fields.get(key) {
                        put(key, value, need)?;
                    }
                }
            }
        }
        Ok(CelMap::from(map))
    }

    fn spend(&mut self, values: usize) -> Result<(), ExprFault> {
        self.left = self.left.checked_sub(values).ok_or_else(|| {
            let message = format!("the expression names more than {MAX_VALUES} values");
            ExprFault::new(FaultKind::Limit, message)
                .hint("name a field instead of a whole document")
        })?;
        Ok(())
    }
}

fn from_number(number: &Number) -> Box<dyn Val> {
    if let Some(int) = number.as_i64() {
        Box::new(CelInt::from(int))
    } else if let Some(uint) = number.as_u64() {
        Box::new(CelUInt::from(uint))
    } else {
        Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN)))
    }
}

/// A value of the engine as JSON.
pub(super) fn to_json(value: &Cel) -> Result<Value, ExprFault> {
    json(value, 0)
}

fn json(value: &Cel, depth: usize) -> Result<Value, ExprFault> {
    if depth > MAX_MADE_DEPTH {
        return Err(too_deep(MAX_MADE_DEPTH));
    }
    Ok(match value {
        Cel::Null => Value::Null,
        Cel::Bool(truth) => Value::Bool(*truth),
        Cel::Int(int) => Value::from(*int),
        Cel::UInt(uint) => Value::from(*uint),
        Cel::Float(float) => Number::from_f64(*float)
            .map(Value::Number)
            .ok_or_else(|| no_json(&format!("the number {float}")))?,
        Cel::String(text) => Value::String(text.as_ref().clone()),
        Cel::List(items) => {
            let items = items.iter().map(|item| json(item, depth + 1));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Cel::Map(map) => Value::Object(object(&map.map, depth)?),
        other => return Err(no_json(&format!("a value of type {}", other.type_of()))),
    })
}

fn object(map: &HashMap<Key, Cel>, depth: usize) -> Result<Map<String, Value>, ExprFault> {
    let mut fields = Vec::with_capacity(map.len());
    for (key, value) in map {
        match key {
            Key::String(name) => fields.push((name.as_ref().clone(), json(value, depth + 1)?)),
            _ => return Err(no_json("a map with a key that is not text")),
        }
    }
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(fields.into_iter().collect())
}

fn no_json(what: &str) -> ExprFault {
    ExprFault::new(
        FaultKind::Type,
        format!("the result is {what}, which JSON cannot hold"),
    )
}

fn too_deep(levels: usize) -> ExprFault {
    let message = format!("a value is nested more than {levels} levels deep");
    ExprFault::new(FaultKind::Limit, message)
}
