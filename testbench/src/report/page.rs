//! A report as one HTML file that needs nothing else: no network, no script, pictures as inline
//! SVG, light and dark as the reader's system is. The report's JSON lies in it, and every figure
//! that is shown says where in the JSON it comes from, so that a program can hold the two together.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::Error;

/// A cell of a table: its text, and the JSON pointer of the figure that it shows.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    at: Option<String>,
}

impl Cell {
    /// A figure of the JSON.
    pub fn figure(text: impl Into<String>, at: impl Into<String>) -> Self {
        Self { text: text.into(), at: Some(at.into()) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), at: None }
    }
}

/// A page that grows from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// A page of this title, and nothing else yet.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), body: String::new() }
    }

    /// The verdict, in a box that shows if the news is good.
    pub fn verdict(&mut self, good: bool, text: &str) {
        let class = if good { "good" } else { "bad" };
        let _ = writeln!(self.body, r#"<p class="verdict {class}">{}</p>"#, escaped(text));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escaped(text));
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(text));
    }

    /// A picture with what to see in it.
    pub fn picture(&mut self, svg: &str, caption: &str) {
        let _ = writeln!(self.body, "<figure>\n{svg}<figcaption>{}</figcaption></figure>", escaped(caption));
    }

    /// A table: its head, then its rows; the first column names them.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<Cell>]) {
        self.body.push_str("<div class=\"wide\"><table>\n<tr>");
        for cell in head {
            let _ = write!(self.body, "<th>{}</th>", escaped(cell));
        }
        self.body.push_str("</tr>\n");
        for row in rows {
            self.body.push_str("<tr>");
            for cell in row {
                let at =
                    cell.at.as_ref().map_or_else(String::new, |at| format!(r#" data-at="{}""#, escaped(at)));
                let _ = write!(self.body, "<td{at}>{}</td>", escaped(&cell.text));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</table></div>\n");
    }

    /// Writes the page to `path`, with `report` as the JSON in it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path, report: &impl Serialize) -> Result<(), Error> {
        let html = self.html(report)?;
        std::fs::write(path, html).map_err(|source| Error::io(path.display().to_string(), "write", source))
    }

    fn html(&self, report: &impl Serialize) -> Result<String, Error> {
        // Within a script element, only what looks like its end would end it.
        let json = serde_json::to_string(report).map_err(std::io::Error::from)?.replace('<', "\\u003c");
        let (title, body) = (escaped(&self.title), &self.body);
        let version = env!("CARGO_PKG_VERSION");
        Ok(format!(
            r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{STYLE}</style>
</head>
<body>
<h1>{title}</h1>
{body}<footer>gradwire {version}. The figures of this page are in it as JSON: the element <code>report</code>.</footer>
<script type="application/json" id="report">{json}</script>
</body>
</html>
"#
        ))
    }
}

/// The pictures' colours are their own; paper, ink and grid are the page's.
const STYLE: &str = "\
:root { --paper: #fff; --ink: #1b1b1b; --faint: #ddd; --good: #e3f3ea; --bad: #fbe8e1; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #e6e6e6; --faint: #3a3f47; --good: #173326; --bad: #3d221a; }
}
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.verdict { padding: .7rem 1rem; border-radius: .4rem; font-weight: 600; }
.good { background: var(--good); } .bad { background: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--faint); }
th:first-child, td:first-child, td:nth-child(2):last-child { text-align: left; }
figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; } figcaption { font-size: .9rem; }
svg text { fill: var(--ink); } svg .paper { fill: var(--paper); } svg .grid { stroke: var(--faint); }
svg [stroke=\"#000000\"] { stroke: var(--ink); } svg [fill=\"#000000\"] { fill: var(--ink); }
footer { margin-top: 3rem; font-size: .85rem; opacity: .75; }
";

/// Text as HTML, and as the value of an attribute.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The path of a page, as an option has it: refused now rather than when all the work is done.
///
/// # Errors
/// Its name has another ending, or there is no such folder.
pub fn path(text: &str) -> Result<PathBuf, String> {
    match Path::new(text).extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => super::output(text),
        _ => Err("a page is .html".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_stay_text() {
        let mut page = Page::new("<script>alert(1)</script>");
        let evil = "</td><script>alert(\"2\")</script>";
        page.table(&[evil], &[vec![evil.into(), Cell::figure(evil, "/a\"b")]]);
        page.verdict(false, evil);
        page.picture("<svg></svg>\n", evil);
        let html = page.html(&serde_json::json!({ "name": "</script><script>" })).unwrap();
        assert_eq!(html.matches("<script").count(), 1, "{html}");
        assert!(html.contains(r#"data-at="/a&quot;b""#) && html.contains("\\u003c/script>"));
    }

    #[test]
    fn a_page_asks_for_nothing() {
        let html = Page::new("t").html(&0).unwrap();
        for asks in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!html.contains(asks), "{asks}");
        }
        assert!(path("x.svg").is_err() && path("x.html").is_ok());
    }
}
