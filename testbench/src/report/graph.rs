//! A strategy's graph as a picture: a line for each rank, from left to right what waits for what.

use std::fmt::Write;

use gradwire_collectives::graph::{Format, Graph, Op};

/// Colours that people with any colour vision can tell apart (Okabe and Ito).
const KINDS: [(&str, &str, &str); 5] = [
    ("E", "encode", "#0072b2"),
    ("S", "send", "#e69f00"),
    ("R", "receive", "#56b4e9"),
    ("M", "merge", "#009e73"),
    ("D", "decode", "#cc79a7"),
];
const STEP: f64 = 34.0;
const LANE: f64 = 46.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 48.0;

const fn kind(op: Op) -> usize {
    match op {
        Op::Encode { .. } => 0,
        Op::Send { .. } => 1,
        Op::Recv { .. } => 2,
        Op::Merge { .. } => 3,
        Op::Decode { .. } => 4,
    }
}

/// The graphs of all ranks for one partition, as an SVG document. Messages that the codec makes are
/// drawn as lines, raw ones dashed.
#[must_use]
pub fn draw(title: &str, graphs: &[Graph]) -> String {
    let columns = columns(graphs);
    let last = columns.iter().flatten().copied().max().unwrap_or(0);
    let x = |column: usize| LEFT + STEP * column as f64;
    let y = |rank: usize| TOP + LANE * rank as f64;
    let (width, height) = (x(last) + 40.0, y(graphs.len()) + 20.0);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
<text x="12" y="20" font-size="14">{title}</text>
"##
    );
    for rank in 0..graphs.len() {
        let (x1, x2, y) = (LEFT - 14.0, x(last) + 20.0, y(rank));
        let _ = writeln!(svg, r##"<path d="M{x1:.0} {y:.0}H{x2:.0}" stroke="#ddd"/>"##);
        let _ = writeln!(svg, r#"<text x="12" y="{:.0}">rank {rank}</text>"#, y + 4.0);
    }
    for (from, graph) in graphs.iter().enumerate() {
        for (at, task) in graph.tasks().iter().enumerate() {
            let Op::Send { message, to } = task.op else { continue };
            let receive = Op::Recv { message, from };
            let Some(end) = graphs[to].tasks().iter().position(|task| task.op == receive) else { continue };
            let dash = if message.format == Format::Raw { r#" stroke-dasharray="4 3""# } else { "" };
            let _ = writeln!(
                svg,
                r##"<path d="M{:.0} {:.0}L{:.0} {:.0}" stroke="#888"{dash}/>"##,
                x(columns[from][at]),
                y(from),
                x(columns[to][end]),
                y(to)
            );
        }
    }
    for (rank, graph) in graphs.iter().enumerate() {
        for (at, task) in graph.tasks().iter().enumerate() {
            let (letter, _, colour) = KINDS[kind(task.op)];
            let (x, y) = (x(columns[rank][at]), y(rank));
            let _ = writeln!(svg, r#"<circle cx="{x:.0}" cy="{y:.0}" r="11" fill="{colour}"/>"#);
            let _ = writeln!(
                svg,
                r##"<text x="{x:.0}" y="{:.0}" text-anchor="middle" fill="#fff">{letter}</text>"##,
                y + 4.0
            );
        }
    }
    let mut key = 12.0;
    for (letter, name, colour) in KINDS {
        let y = height - 14.0;
        let _ = writeln!(svg, r#"<text x="{key:.0}" y="{y:.0}" fill="{colour}">{letter} {name}</text>"#);
        key += 24.0 + 7.0 * name.len() as f64;
    }
    svg.push_str("</svg>\n");
    svg
}

/// By rank and task: how many tasks come before it at least, anywhere, with no two of a rank in one
/// column.
fn columns(graphs: &[Graph]) -> Vec<Vec<usize>> {
    let mut columns: Vec<Vec<Option<usize>>> =
        graphs.iter().map(|graph| vec![None; graph.tasks().len()]).collect();
    let mut taken: Vec<Vec<usize>> = vec![Vec::new(); graphs.len()];
    loop {
        let mut moved = false;
        for (rank, graph) in graphs.iter().enumerate() {
            for (at, task) in graph.tasks().iter().enumerate() {
                if columns[rank][at].is_some() {
                    continue;
                }
                let mut before: Vec<Option<usize>> =
                    task.after.iter().map(|&before| columns[rank][before]).collect();
                if let Op::Recv { message, from } = task.op {
                    let send = Op::Send { message, to: rank };
                    let sent = graphs[from].tasks().iter().position(|task| task.op == send);
                    before.push(sent.and_then(|sent| columns[from][sent]));
                }
                let Some(before) = before.into_iter().collect::<Option<Vec<usize>>>() else { continue };
                let mut column = before.into_iter().max().map_or(0, |before| before + 1);
                while taken[rank].contains(&column) {
                    column += 1;
                }
                taken[rank].push(column);
                columns[rank][at] = Some(column);
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    columns.into_iter().map(|tasks| tasks.into_iter().map(|column| column.unwrap_or(0)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire_collectives::Strategy;

    #[test]
    fn each_operation_and_message_is_in_the_picture_once() {
        for strategy in Strategy::EXAMPLES {
            let graphs: Vec<Graph> = (0..4).map(|me| strategy.graph(4, me, 0).unwrap()).collect();
            let svg = draw(&strategy.to_string(), &graphs);
            let tasks: usize = graphs.iter().map(|graph| graph.tasks().len()).sum();
            let sends =
                graphs.iter().flat_map(Graph::tasks).filter(|task| matches!(task.op, Op::Send { .. }));
            assert_eq!(svg.matches("<circle").count(), tasks);
            assert_eq!(svg.matches(r##"stroke="#888""##).count(), sends.count());
            for (rank, columns) in columns(&graphs).iter().enumerate() {
                let mut columns = columns.clone();
                columns.sort_unstable();
                assert!(columns.windows(2).all(|pair| pair[0] < pair[1]), "{strategy}, rank {rank}");
            }
        }
    }
}
