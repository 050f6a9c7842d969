//! The SVG of a workflow: steps in layers from top to bottom, drawn without any other program.
//!
//! A step stands one layer below the last step that leads to it, lines that go back left out. Lines
//! to the next layer go straight down, longer ones along the right edge, those that go back along
//! the left. What leads to `_fail`, `_block` and `_stop` is written into the box instead of drawn.

use super::graph::{Line, Overlay, is_current, subtitle, visits};
use super::model::{StepId, Target, Workflow};
use crate::text::cut;

const BOX_WIDTH: usize = 230;
const GAP_X: usize = 40;
const GAP_Y: usize = 56;
const ROW: usize = 14;
const MARGIN: usize = 30;
const LANE: usize = 12;
/// Room for the labels of the lines along the edges.
const LABEL: usize = 150;
const MAX_TEXT: usize = 36;

struct Boxed {
    id: Option<StepId>,
    title: String,
    rows: Vec<String>,
    x: usize,
    y: usize,
    height: usize,
    current: bool,
    visited: bool,
}

/// Draws the outermost level; what is inside of loops and parallel steps is named in their boxes.
pub(super) fn svg(workflow: &Workflow, lines: &[Line], overlay: Option<&Overlay>) -> String {
    let index = |id: StepId| workflow.order.iter().position(|&step| step == id);
    let end = workflow.order.len();
    let mut links: Vec<(usize, usize, &Line)> = Vec::new();
    for line in lines {
        let (Some(from), to) = (index(line.from), line.to) else {
            continue;
        };
        match to {
            Target::Step(to) => links.extend(index(to).map(|to| (from, to, line))),
            Target::End => links.push((from, end, line)),
            _ => {}
        }
    }
    let mut boxes: Vec<Boxed> = workflow
        .order
        .iter()
        .map(|&id| boxed(workflow, id, lines, overlay))
        .collect();
    boxes.push(last(overlay));
    let layers = layers(end + 1, &links);
    let (width, height) = arrange(&mut boxes, &layers, &links);
    render(workflow, &boxes, &layers, &links, width, height)
}

fn boxed(workflow: &Workflow, id: StepId, lines: &[Line], overlay: Option<&Overlay>) -> Boxed {
    let step = workflow.step(id);
    let mut rows = vec![fit(&subtitle(workflow, step))];
    for line in lines.iter().filter(|line| line.from == id) {
        if matches!(line.to, Target::Fail | Target::Block | Target::Stop) {
            let why = if line.label.is_empty() {
                "else"
            } else {
                &line.label
            };
            rows.push(fit(&format!("{why} → {}", workflow.target_name(line.to))));
        }
    }
    let count = visits(step, overlay);
    let title = match count {
        0 => step.name.value.clone(),
        count => format!("{} ({count}×)", step.name.value),
    };
    Boxed {
        id: Some(id),
        title: fit(&title),
        height: 30 + rows.len() * ROW,
        rows,
        x: 0,
        y: 0,
        current: is_current(step, overlay),
        visited: count > 0,
    }
}

fn last(overlay: Option<&Overlay>) -> Boxed {
    let status = overlay.and_then(|overlay| overlay.status.clone());
    Boxed {
        id: None,
        title: "_end".to_owned(),
        rows: status.map(|status| fit(&status)).into_iter().collect(),
        x: 0,
        y: 0,
        height: 44,
        current: false,
        visited: false,
    }
}

fn fit(text: &str) -> String {
    cut::ellipsis(text, MAX_TEXT).into_owned()
}

/// The layer of each box: the longest way to it, lines that go back left out.
fn layers(count: usize, links: &[(usize, usize, &Line)]) -> Vec<usize> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    for &(from, to, _) in links {
        out[from].push(to);
    }
    let (order, position) = finish_order(count, &out);
    let mut layer = vec![0; count];
    for &from in &order {
        for &to in &out[from] {
            if position[to] > position[from] {
                layer[to] = layer[to].max(layer[from] + 1);
            }
        }
    }
    // The end stands below everything.
    layer[count - 1] = layer.iter().copied().max().unwrap_or(0).max(1);
    let shared = layer[..count - 1].contains(&layer[count - 1]);
    layer[count - 1] += usize::from(shared);
    layer
}

/// Boxes in the order in which a search leaves them, last first, and the place of each in it.
fn finish_order(count: usize, out: &[Vec<usize>]) -> (Vec<usize>, Vec<usize>) {
    let mut seen = vec![false; count];
    let mut order = Vec::new();
    for root in 0..count {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        let mut stack = vec![(root, 0)];
        while let Some((at, next)) = stack.last_mut() {
            let (at, tried) = (*at, *next);
            *next += 1;
            match out[at].get(tried) {
                Some(&to) if !seen[to] => {
                    seen[to] = true;
                    stack.push((to, 0));
                }
                Some(_) => {}
                None => {
                    order.push(at);
                    stack.pop();
                }
            }
        }
    }
    order.reverse();
    let mut position = vec![0; count];
    for (index, &at) in order.iter().enumerate() {
        position[at] = index;
    }
    (order, position)
}

/// Gives each box its place; the size of the whole comes back.
fn arrange(
    boxes: &mut [Boxed],
    layers: &[usize],
    links: &[(usize, usize, &Line)],
) -> (usize, usize) {
    let depth = layers.iter().copied().max().unwrap_or(0) + 1;
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); depth];
    for (index, &layer) in layers.iter().enumerate() {
        rows[layer].push(index);
    }
    let mut slot = vec![0.0f64; boxes.len()];
    for row in &mut rows {
        let wish = |index: usize| {
            let above: Vec<f64> = links
                .iter()
                .filter(|(from, to, _)| *to == index && layers[*from] < layers[index])
                .map(|(from, _, _)| slot[*from])
                .collect();
            match above.is_empty() {
                true => 0.0,
                false => above.iter().sum::<f64>() / above.len() as f64,
            }
        };
        let wishes: Vec<(usize, f64)> = row.iter().map(|&index| (index, wish(index))).collect();
        let mut sorted = wishes;
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        *row = sorted.iter().map(|(index, _)| *index).collect();
        let middle = (row.len() as f64 - 1.0) / 2.0;
        for (place, &index) in row.iter().enumerate() {
            slot[index] = place as f64 - middle;
        }
    }
    let widest = rows.iter().map(Vec::len).max().unwrap_or(1);
    let (left, right) = sides(layers, links);
    let inner = widest * (BOX_WIDTH + GAP_X) - GAP_X;
    let mut y = MARGIN;
    for row in &rows {
        let own = (row.len() * (BOX_WIDTH + GAP_X)).saturating_sub(GAP_X);
        for (place, &index) in row.iter().enumerate() {
            boxes[index].x = MARGIN + left + (inner - own) / 2 + place * (BOX_WIDTH + GAP_X);
            boxes[index].y = y;
        }
        let tallest = row.iter().map(|&index| boxes[index].height).max();
        y += tallest.unwrap_or(0) + GAP_Y;
    }
    (MARGIN * 2 + left + inner + right, y - GAP_Y + MARGIN)
}

/// The room that the lines along the edges need.
fn sides(layers: &[usize], links: &[(usize, usize, &Line)]) -> (usize, usize) {
    let back = links
        .iter()
        .filter(|(f, t, _)| layers[*t] <= layers[*f])
        .count();
    let long = links
        .iter()
        .filter(|(f, t, _)| layers[*t] > layers[*f] + 1)
        .count();
    (LABEL + back * LANE, LABEL + long * LANE)
}

fn render(
    workflow: &Workflow,
    boxes: &[Boxed],
    layers: &[usize],
    links: &[(usize, usize, &Line)],
    width: usize,
    height: usize,
) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\">\n"
    );
    out.push_str(&format!(
        "<title>{}</title>\n",
        escape(&workflow.name.value)
    ));
    out.push_str("<defs><marker id=\"a\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0L10 5L0 10z\" fill=\"#555\"/></marker></defs>\n");
    out.push_str(&format!(
        "<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    ));
    let mut lanes = Lanes::new(boxes, layers);
    let mut labels = String::new();
    for &(from, to, line) in links {
        let (path, x, y, anchor) = if layers[to] == layers[from] + 1 {
            straight(&boxes[from], &boxes[to])
        } else {
            lanes.around(from, to)
        };
        let dash = if line.aside {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let (stroke, thick) = if line.taken > 0 {
            ("#2b6cb0", 2.5)
        } else {
            ("#777", 1.2)
        };
        out.push_str(&format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{thick}\"{dash} marker-end=\"url(#a)\"/>\n"
        ));
        let label = match (line.label.as_str(), line.taken) {
            ("", 0) => continue,
            (label, 0) => fit(label),
            (label, taken) => format!("{} {taken}×", fit(label)),
        };
        labels.push_str(&format!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"10\" text-anchor=\"{anchor}\" fill=\"#333\" stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\">{}</text>\n",
            escape(label.trim())
        ));
    }
    boxes.iter().for_each(|one| draw_box(one, &mut out));
    out.push_str(&labels);
    out.push_str("</svg>\n");
    out
}

/// A path, and where its label stands.
type Drawn = (String, usize, usize, &'static str);

fn straight(a: &Boxed, b: &Boxed) -> Drawn {
    let (x1, y1) = (a.x + BOX_WIDTH / 2, a.y + a.height);
    let (x2, y2) = (b.x + BOX_WIDTH / 2, b.y);
    let middle = (y1 + y2) / 2;
    let path = format!("M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}");
    (path, (x1 + x2) / 2, middle + 3, "middle")
}

/// The lines along the edges: each has a lane of its own, and leaves its box a little lower.
struct Lanes<'b> {
    boxes: &'b [Boxed],
    layers: &'b [usize],
    left: usize,
    right: usize,
    used: Vec<usize>,
}

impl<'b> Lanes<'b> {
    fn new(boxes: &'b [Boxed], layers: &'b [usize]) -> Self {
        Lanes {
            boxes,
            layers,
            left: 0,
            right: 0,
            used: vec![0; boxes.len()],
        }
    }

    fn around(&mut self, from: usize, to: usize) -> Drawn {
        let (a, b) = (&self.boxes[from], &self.boxes[to]);
        let (near, far) = (self.layers[from], self.layers[to]);
        let span = near.min(far)..=near.max(far);
        let beside = self.boxes.iter().zip(self.layers);
        let xs = beside
            .filter(|(_, layer)| span.contains(layer))
            .map(|(one, _)| one.x);
        let y1 = a.y + 10 + (self.used[from] * 12) % a.height.saturating_sub(14).max(1);
        let y2 = b.y + b.height / 2;
        self.used[from] += 1;
        if far > near {
            self.right += 1;
            let lane = xs.max().unwrap_or(0) + BOX_WIDTH + 12 + self.right * LANE;
            let ends = (a.x + BOX_WIDTH, b.x + BOX_WIDTH);
            (along(ends, y1, y2, lane), ends.0 + 4, y1 - 2, "start")
        } else {
            self.left += 1;
            let lane = xs.min().unwrap_or(0).saturating_sub(12 + self.left * LANE);
            let ends = (a.x, b.x);
            (along(ends, y1, y2, lane), ends.0 - 4, y1 - 2, "end")
        }
    }
}

/// Out of one box, along a lane, into the other.
fn along((x1, x2): (usize, usize), y1: usize, y2: usize, lane: usize) -> String {
    let (out, back) = match y2 > y1 {
        true => (y1 + 20, y2.saturating_sub(20)),
        false => (y1.saturating_sub(20), y2 + 20),
    };
    format!(
        "M{x1} {y1}C{lane} {y1} {lane} {y1} {lane} {out}L{lane} {back}C{lane} {y2} {lane} {y2} {x2} {y2}"
    )
}

fn draw_box(one: &Boxed, out: &mut String) {
    let (fill, stroke) = match (one.current, one.visited, one.id) {
        (true, _, _) => ("#fff3c4", "#b7791f"),
        (_, true, _) => ("#e6f0fa", "#2b6cb0"),
        (_, _, None) => ("#e6f4ea", "#2f855a"),
        _ => ("#f7f7f7", "#555"),
    };
    out.push_str(&format!(
        "<rect x=\"{}\" y=\"{}\" width=\"{BOX_WIDTH}\" height=\"{}\" rx=\"8\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n",
        one.x, one.y, one.height
    ));
    let middle = one.x + BOX_WIDTH / 2;
    out.push_str(&format!(
        "<text x=\"{middle}\" y=\"{}\" font-size=\"13\" font-weight=\"bold\" text-anchor=\"middle\">{}</text>\n",
        one.y + 19,
        escape(&one.title)
    ));
    for (index, row) in one.rows.iter().enumerate() {
        out.push_str(&format!(
            "<text x=\"{middle}\" y=\"{}\" font-size=\"10\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n",
            one.y + 34 + index * ROW,
            escape(row)
        ));
    }
}

/// Text as XML takes it.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
