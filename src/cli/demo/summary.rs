//! What a person reads at the end of the demo.

use crate::{
    cli::demo::{curve, tally::Tally},
    config::units::bytes_text,
};

/// Characters of a line: fits every terminal.
const WIDTH: usize = 72;
/// Rows of the curve.
const HEIGHT: usize = 9;

/// The summary, the curve, and the text that the model wrote.
pub(super) fn text(tally: &Tally, seconds: f64, generated: &str) -> String {
    let result = tally.result();
    let (points, what) = tally.curve();
    let loss = |loss: Option<f64>| loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.3}"));
    let mut lines = vec![
        String::new(),
        format!("{} nodes, {} rounds, {seconds:.0} seconds", result.nodes, result.rounds),
        format!("validation loss   {} -> {}", loss(result.first_loss), loss(result.last_loss)),
        format!(
            "agreement         {}",
            if result.state_roots_equal {
                format!("{} states compared, all equal bit for bit", result.roots_compared)
            } else {
                "states DIFFER".to_owned()
            }
        ),
        format!(
            "network           {} a node and round, {} in all",
            bytes_text(result.bytes_per_node_per_round as u64),
            bytes_text(tally.bytes_sent()),
        ),
        result.compression_ratio.map_or_else(
            || "compression       nothing was sent".to_owned(),
            |ratio| {
                format!("compression       {ratio:.0} times less than an f32 ring at every step")
            },
        ),
        format!("time training     {:.1} %", result.utilization * 100.0),
        String::new(),
    ];
    if let Some(drawn) = curve::draw(&points, WIDTH, HEIGHT, "rounds") {
        lines.push(format!("{:>9}{what}", ""));
        lines.extend(drawn);
        lines.push(String::new());
    }
    if !generated.is_empty() {
        lines.push("the model writes:".to_owned());
        let lines_of_text = generated.lines().flat_map(wrap);
        lines.extend(lines_of_text.map(|line| format!("  {line}")));
    }
    lines.join("\n")
}

/// A line cut between words, so that each part fits.
fn wrap(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let last = parts.len() - 1;
        if parts[last].chars().count() + word.trim_end().chars().count() > WIDTH {
            parts.push(String::new());
        }
        let last = parts.len() - 1;
        parts[last].push_str(word);
    }
    parts.iter().map(|part| part.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::samples::samples;

    #[test]
    fn long_text_is_cut_between_words() {
        let parts = wrap(&"word ".repeat(40));
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.chars().count() <= WIDTH && part.ends_with("word")));
        assert_eq!(wrap(""), [""]);
    }

    #[test]
    fn a_summary_names_what_matters() {
        let mut tally = Tally::default();
        for node in ["node-1", "node-2"] {
            tally.node_started(node);
            samples().iter().for_each(|event| tally.record(node, event));
        }
        let text = text(&tally, 12.0, "Once\nupon");
        for needle in ["2 nodes, 30 rounds", "4.000 -> 1.500", "equal bit for bit", "  upon", "┤"]
        {
            assert!(text.contains(needle), "{needle}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
