//! The advice as a page: its lines, and the plots that they rest on.

use super::advice::{Advice, At};
use super::lines;
use crate::check::Shares;
use crate::report::columns;
use crate::report::page::{Cell, Page};
use crate::report::plot::{self, Chart, Series};

/// One way to read a time.
type Read = fn(&At) -> f64;

pub(super) fn page(advice: &Advice) -> Page {
    let mut page = Page::new("gradwire: does compression pay?");
    page.verdict(advice.pays, &advice.why);
    let cell = |text: String, at: &str| if at.is_empty() { text.into() } else { Cell::figure(text, at) };
    let rows: Vec<Vec<Cell>> =
        lines(advice).into_iter().map(|(name, text, at)| vec![name.into(), cell(text, at)]).collect();
    page.table(&["", ""], &rows[..10]);

    page.heading("The gradients and the bound");
    page.picture(
        &columns::columns(
            "How many values have which magnitude",
            "log2 |g|; zeros are left out",
            &advice.histogram,
            (advice.exponent().into(), "the bound"),
        ),
        "Values left of the bound become zero, or a value within the bound.",
    );
    let point = |exponent: i16, y: f64| (f64::from(exponent), y);
    let ratio = advice.by_bound.iter().map(|at| point(at.exponent, at.ratio)).collect();
    page.picture(
        &plot::lines(&Chart {
            title: format!("Ratio of values by bound, codec {}", advice.codec),
            x: "exponent of the bound".into(),
            y: "ratio".into(),
            log_x: false,
            series: vec![Series { name: "ratio".into(), points: ratio }],
        }),
        "A wider bound saves more bytes and loses more of the norm.",
    );
    let rows: Vec<Vec<Cell>> = advice
        .by_bound
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let chosen = if row.exponent == advice.exponent() { ", advised" } else { "" };
            vec![
                format!("2^{}{chosen}", row.exponent).into(),
                Cell::figure(format!("{:.2}", row.ratio), format!("/by_bound/{at}/ratio")),
                Cell::figure(format!("{:.4}", row.norm_lost), format!("/by_bound/{at}/norm_lost")),
            ]
        })
        .collect();
    page.table(&["bound", "ratio", "norm lost"], &rows);

    page.heading("The iteration");
    page.text(
        "Simulated, not measured: a ring, without loss, congestion or collisions. The codec on the host has one core, at the speed \
         measured where this report was made.",
    );
    let job = format!("{}, MTU {}", advice.job.name, advice.job.mtu);
    let latency = format!("{:.1} us", 1e6 * advice.job.latency_s);
    let by = |title: String, x: &str, points: &[At]| plot::lines(&chart(title, x, points));
    page.picture(
        &by(
            format!("Iteration time by bandwidth, {job}, {} ranks, {latency}", advice.job.ranks),
            "Gbit/s",
            &advice.by_bandwidth,
        ),
        "Where the lines meet the compute, the network no longer bounds the iteration.",
    );
    times(&mut page, "Gbit/s", "by_bandwidth", &advice.by_bandwidth);
    let rate = advice.job.bandwidth as f64 / 1e9;
    page.picture(
        &by(format!("Iteration time by ranks, {job}, {rate} Gbit/s, {latency}"), "ranks", &advice.by_ranks),
        "More ranks sum more gradients, and sums compress less: their ratio is estimated.",
    );
    times(&mut page, "ranks", "by_ranks", &advice.by_ranks);

    page.heading("What is kept, by tensor");
    let rows: Vec<(String, Vec<f64>)> =
        advice.classes.iter().map(|row| (row.tensor.clone(), parts(row.shares))).collect();
    page.picture(
        &columns::shares("Shares of values", &["zero", "coded", "raw"], &rows),
        "Nothing is kept of zeros, sign and bin of coded values, all 32 bits of raw ones.",
    );
    page
}

fn parts(shares: Shares) -> Vec<f64> {
    match shares {
        Shares::Classes { zero, byte, half, raw } => vec![zero, byte, half, raw],
        Shares::BitPlane { zero, coded, raw } => vec![zero, coded, raw],
    }
}

const READ: [(&str, &str, Read); 5] = [
    ("f32", "f32_s", |at| at.times.f32_s),
    ("16 bit", "bits16_s", |at| at.times.bits16_s),
    ("gradwire, NIC", "in_nic_s", |at| at.times.in_nic_s),
    ("gradwire, host", "on_host_s", |at| at.times.on_host_s),
    ("compute alone", "compute_s", |at| at.times.compute_s),
];

fn chart(title: String, x: &str, points: &[At]) -> Chart {
    let line = |&(name, _, read): &(&str, &str, Read)| Series {
        name: name.into(),
        points: points.iter().map(|at| (at.at, read(at))).collect(),
    };
    // A model without times would be a line at zero, which no logarithm has.
    let shown = READ.iter().filter(|(_, _, read)| points.iter().all(|at| read(at) > 0.0));
    Chart { title, x: x.into(), y: "seconds".into(), log_x: true, series: shown.map(line).collect() }
}

fn times(page: &mut Page, x: &str, field: &str, points: &[At]) {
    let head: Vec<&str> = std::iter::once(x).chain(READ.map(|(name, ..)| name)).collect();
    let row = |(at, point): (usize, &At)| {
        let figure = |&(_, name, read): &(&str, &str, Read)| {
            Cell::figure(format!("{:.4}", read(point)), format!("/{field}/{at}/{name}"))
        };
        std::iter::once(point.at.to_string().into()).chain(READ.iter().map(figure)).collect()
    };
    page.table(&head, &points.iter().enumerate().map(row).collect::<Vec<_>>());
}
