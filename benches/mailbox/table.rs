//! Results as lines of text, with the goal beside each that has one.

/// Prints the heading of a part.
pub fn heading(title: &str, columns: [&str; 3]) {
    let [one, two, three] = columns;
    println!("\n{title:<44} {one:>12} {two:>12} {three:>12}  goal");
}

/// Prints one line; the goal says whether it was reached.
pub fn line(name: &str, columns: [String; 3], goal: Option<Goal>) {
    let [one, two, three] = columns;
    let goal = goal.map(Goal::show).unwrap_or_default();
    println!(
        "{:<44} {one:>12} {two:>12} {three:>12}  {goal}",
        format!("  {name}")
    );
}

/// Prints what could not be measured.
pub fn skipped(name: &str) {
    println!("  {name:<42} SKIPPED: it is not installed");
}

/// What is wanted, and whether it is so.
pub struct Goal {
    pub wanted: String,
    pub reached: bool,
}

impl Goal {
    pub fn at_most(value: f64, limit: f64, wanted: impl Into<String>) -> Goal {
        Goal {
            wanted: wanted.into(),
            reached: value <= limit,
        }
    }

    fn show(self) -> String {
        format!(
            "{} ({})",
            if self.reached { "yes" } else { "NO " },
            self.wanted
        )
    }
}
